"""The time of a batch in its tasks, from a property of their job.

Workers import this module and none of the driver's: a new worker process is ready sooner.
"""

from __future__ import annotations

from typing import Final

from pyspark import TaskContext

NOW: Final = "queuewatch.now_ms"
LATEST: Final = "queuewatch.latest_ms"
"""The later of the batch time and the clock's reading: events up to then are not dated in the future."""
BEFORE: Final = "queuewatch.before_ms"
"""The time of the latest step of the batches before."""


def task_now_ms() -> int:
    """Return the time that the driver announced, in epoch milliseconds."""
    return _announced(NOW)


def task_latest_ms() -> int:
    """Return the latest time an event can have happened, in epoch milliseconds."""
    return _announced(LATEST)


def task_before_ms() -> int:
    """Return the time of the latest step of the batches before, in epoch milliseconds; 0 for the first batch."""
    return _announced(BEFORE)


def _announced(name: str) -> int:
    context = TaskContext.get()
    announced = context.getLocalProperty(name) if context is not None else None
    if announced is None:
        raise RuntimeError("the driver announced no batch time to this task")
    return int(announced)
