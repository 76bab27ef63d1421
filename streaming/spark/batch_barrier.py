"""A barrier at which a query can be stopped between two batches."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pyspark.sql import DataFrame

from streaming.spark.internals import sleep_in_java

OnBatch = Callable[[DataFrame, int], None]

_LONG_MS = 24 * 3_600_000


class BatchBarrier:
    """Holds the query at the start of a batch once it is closed, so that it can be stopped there.

    A stop interrupts the query wherever it is. In the middle of a batch, the batch's work is lost, and tasks, workers and
    Spark's log report failures; at its start, nothing runs yet. The held batch is in Spark's log of offsets but not
    committed: it runs after the next start.
    """

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._held = threading.Event()

    def close(self) -> None:
        """Let no further batch start."""
        self._closed.set()

    def wait_held(self, timeout_s: float) -> bool:
        """Block until a batch is held, or until the timeout (False)."""
        return self._held.wait(timeout_s)

    def guarding(self, on_batch: OnBatch) -> OnBatch:
        """Return the function for `foreachBatch`, which calls `on_batch` while the barrier is open."""

        def guarded(batch: DataFrame, batch_id: int) -> None:
            if self._closed.is_set():
                self._held.set()
                sleep_in_java(batch.sparkSession, _LONG_MS)
            on_batch(batch, batch_id)

        return guarded
