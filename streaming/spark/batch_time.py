"""The time at which a batch is judged: the timestamp that Spark logged with the batch.

It is therefore the same when the batch runs again. If the clock jumps, or the job is behind its source, `streaming.core.clock`
decides the time.

Tasks read it from a property of their job. As a column it would be a constant in the code that Spark generates, and
Spark would compile new code in every batch.
"""

from __future__ import annotations

import structlog
from pyspark.sql import DataFrame

from streaming.checkpoint.memory_store import MemoryStore
from streaming.checkpoint.offset_log import batch_time_ms
from streaming.checkpoint.tick_log import check_ticks
from streaming.core.clock import Clock, tick
from streaming.folder import Folder
from streaming.spark.in_task import BEFORE, LATEST, NOW

_log = structlog.get_logger(__name__)


class BatchTimes:
    """The times of batches, on the driver; `offsets` is the folder `offsets` of the checkpoint, Spark's log of batches.

    Without `memories` the log is trusted unchecked.
    """

    clock: Clock | None = None
    """The clock at the latest batch."""

    def __init__(self, offsets: Folder, memories: MemoryStore | None = None) -> None:
        self._offsets = offsets
        self._memories = memories

    def announce(self, batch: DataFrame, batch_id: int) -> int:
        """Set the time of `batch` for the jobs this thread is about to start, and return it in epoch milliseconds.

        Raises `TooManyTicks` when the clock was set forward so far that the batch would take too long.
        """
        check_ticks(self._offsets, batch_id)
        now_ms = read_ms = self.of(batch_id)
        before_ms = 0
        if self._memories is not None:
            memory = self._memories.before(batch_id)
            self.clock = _ticked(memory.clock, read_ms)
            now_ms = self.clock.now
            lost = batch_id > 0 and not memory.at and not memory.clock.now
            # The states of a job that lost its memory may be newer than what is read: their time must not go back.
            before_ms = now_ms if lost else memory.at
        context = batch.sparkSession.sparkContext
        context.setLocalProperty(NOW, str(now_ms))
        context.setLocalProperty(LATEST, str(max(now_ms, read_ms)))
        context.setLocalProperty(BEFORE, str(before_ms))
        return now_ms

    def of(self, batch_id: int) -> int:
        """Return the timestamp in Spark's log. Raises `ValueError` when the log lacks the batch or has another format."""
        content = self._offsets.read(str(batch_id))
        if content is None:
            raise ValueError(f"Spark has not logged batch {batch_id}")
        try:
            return batch_time_ms(content)
        except ValueError as error:
            raise ValueError(f"Spark's log of batch {batch_id} has {error}") from error


def _ticked(before: Clock, read_ms: int) -> Clock:
    clock = tick(before, read_ms)
    if clock.trusted != before.trusted:
        event = "clock_trusted_again" if clock.trusted else "clock_not_trusted"
        _log.warning(event, clock_reads_ms=read_ms, now_ms=clock.now, jump_s=(read_ms - before.now) / 1000)
    return clock
