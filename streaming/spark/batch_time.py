"""The time a batch is judged at: the timestamp Spark logged with the batch, so the same when the batch runs again.

It is told to the tasks as a property of their job. As a column it would be a constant in the code that Spark generates,
which would be other code, compiled anew, in every batch.
"""

from __future__ import annotations

import json
from typing import Final

from pyspark import TaskContext
from pyspark.sql import DataFrame

from streaming.spark.folder import Folder

PROPERTY: Final = "queuewatch.now_ms"


class BatchTimes:
    """The driver's side; `offsets` is the folder `offsets` of the checkpoint, Spark's log of batches."""

    def __init__(self, offsets: Folder) -> None:
        self._offsets = offsets

    def tell(self, batch: DataFrame, batch_id: int) -> int:
        """Tell the jobs this thread is about to start when `batch` was begun; epoch milliseconds."""
        now_ms = self.of(batch_id)
        batch.sparkSession.sparkContext.setLocalProperty(PROPERTY, str(now_ms))
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


def task_now_ms() -> int:
    """In a task: what the driver told; epoch milliseconds."""
    context = TaskContext.get()
    told = context.getLocalProperty(PROPERTY) if context is not None else None
    if told is None:
        raise RuntimeError("no batch time was told to this task")
    return int(told)
