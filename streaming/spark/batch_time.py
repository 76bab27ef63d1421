"""The time a batch is judged at: the timestamp Spark logged with the batch, so the same when the batch runs again; where it
jumps, the time that `streaming.core.clock` makes of it.

It is told to the tasks as a property of their job. As a column it would be a constant in the code that Spark generates,
which would be other code, compiled anew, in every batch.
"""

from __future__ import annotations

import json
from typing import Final

import structlog
from pyspark import TaskContext
from pyspark.sql import DataFrame

from streaming.core.clock import Clock, tick
from streaming.spark.folder import Folder
from streaming.spark.memory_store import MemoryStore

_log = structlog.get_logger(__name__)

PROPERTY: Final = "queuewatch.now_ms"
LATEST_PROPERTY: Final = "queuewatch.latest_ms"
"""The later of that and what the clock reads: events up to then are not dated in the future."""


class BatchTimes:
    """The driver's side; `offsets` is the folder `offsets` of the checkpoint, Spark's log of batches.

    Without `memories` the log is believed whatever it says.
    """

    clock: Clock | None = None
    """As of the batch last told of."""

    def __init__(self, offsets: Folder, memories: MemoryStore | None = None) -> None:
        self._offsets = offsets
        self._memories = memories

    def tell(self, batch: DataFrame, batch_id: int) -> int:
        """Tell the jobs this thread is about to start when `batch` was begun; epoch milliseconds."""
        now_ms = read_ms = self.of(batch_id)
        if self._memories is not None:
            self.clock = _ticked(self._memories.before(batch_id).clock, read_ms)
            now_ms = self.clock.now
        context = batch.sparkSession.sparkContext
        context.setLocalProperty(PROPERTY, str(now_ms))
        context.setLocalProperty(LATEST_PROPERTY, str(max(now_ms, read_ms)))
        return now_ms

    def of(self, batch_id: int) -> int:
        """The timestamp in Spark's log. Raises `ValueError` when the log has no such batch or another form."""
        content = self._offsets.read(str(batch_id))
        if content is None:
            raise ValueError(f"Spark has not logged batch {batch_id}")
        try:
            # A version, the batch's own data as JSON, then a line per source.
            return int(json.loads(content.decode().splitlines()[1])["batchTimestampMs"])
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise ValueError(f"Spark's log of batch {batch_id} has another form than expected: {error}") from error


def _ticked(before: Clock, read_ms: int) -> Clock:
    clock = tick(before, read_ms)
    if clock.trusted != before.trusted:
        words = "clock_believed_again" if clock.trusted else "clock_not_believed"
        _log.warning(words, clock_reads_ms=read_ms, now_ms=clock.now, jump_s=(read_ms - before.now) / 1000)
    return clock


def task_now_ms() -> int:
    """In a task: what the driver told; epoch milliseconds."""
    return _told(PROPERTY)


def task_latest_ms() -> int:
    """In a task: the latest time an event can have happened; epoch milliseconds."""
    return _told(LATEST_PROPERTY)


def _told(name: str) -> int:
    context = TaskContext.get()
    told = context.getLocalProperty(name) if context is not None else None
    if told is None:
        raise RuntimeError("no batch time was told to this task")
    return int(told)
