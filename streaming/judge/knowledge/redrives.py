"""What the redrive task of a dead-letter queue shows of its messages."""

from __future__ import annotations

from streaming.core.reporting.report import QueueSummary


def redriven_at(summary: QueueSummary) -> int:
    """Return a time at or after which the latest redrive task moved messages out of this queue; 0 where none is known to have.

    The collector reports when a running task was last seen to move any (`progressed_at`), and of an ended one only its start.
    """
    known = summary.attributes.get("redrive_task")
    task = known.value if known is not None and isinstance(known.value, dict) else {}
    moved, times = task.get("moved"), (task.get("progressed_at"), task.get("started_at"))
    if not isinstance(moved, int) or moved <= 0:
        return 0
    return max((at for at in times if isinstance(at, int)), default=0)
