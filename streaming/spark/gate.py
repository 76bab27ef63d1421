"""A stop between two batches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

OnBatch = Callable[[DataFrame, int], None]

_LONG_MS = 24 * 3_600_000


class Gate:
    """Holds the query at the beginning of a batch once it is closed, so that it can be stopped there.

    A stop interrupts whatever the query does just then. In the middle of a batch that costs the batch's work and is
    reported as failures by tasks, workers and Spark's log; here nothing runs yet. The batch that is held is in Spark's
    log of offsets and not committed: it runs after the next start.
    """

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._held = threading.Event()

    def close(self) -> None:
        """Let no further batch begin."""
        self._closed.set()

    def wait_held(self, timeout_s: float) -> bool:
        """Block until a batch is held, or the time is over (False)."""
        return self._held.wait(timeout_s)

    def guarding(self, on_batch: OnBatch) -> OnBatch:
        """The function for `foreachBatch` that calls `on_batch` while the gate is open."""

        def guarded(batch: DataFrame, batch_id: int) -> None:
            if self._closed.is_set():
                self._held.set()
                _sleep_until_interrupted(batch)
            on_batch(batch, batch_id)

        return guarded


def _sleep_until_interrupted(batch: DataFrame) -> None:
    """Sleep in the query's own thread on the Java side, where a stop interrupts it: Spark knows that for what it is."""
    context: Any = batch.sparkSession.sparkContext
    context._jvm.java.lang.Thread.sleep(_LONG_MS)
