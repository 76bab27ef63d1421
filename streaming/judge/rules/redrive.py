"""Signals about redrive tasks, which move dead letters back: a failed task, and one that has stopped moving."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streaming.judge.context import DAY_MS, Context, duration, seconds
from streaming.judge.signals import Finding

FAILED_SHOWN_MS = DAY_MS
"""A failed task that is not repeated remains the last one for ever: it is shown for a day."""


def redrive_failed(c: Context) -> Iterator[Finding]:
    """The last move task of this dead-letter queue ended as FAILED."""
    task, at = _task(c)
    if task.get("status") != "FAILED":
        c.memory.holds_since("redrive_failed", False, c.now)
        return
    since = c.memory.holds_since("redrive_failed", True, c.now, at) or at
    if c.now - since > FAILED_SHOWN_MS:
        return
    reason = str(task.get("failure_reason") or "no reason given")
    evidence = {
        "reason": reason,
        **_figures(task),
        "summary": (
            f"The redrive of {c.name.queue}{_target(task)} failed after {_moved(task)} messages: {reason}. "
            "The others are still there and go on ageing."
        ),
    }
    yield c.finding("RedriveFailed", "warning", since, evidence)


def redrive_stalled(c: Context) -> Iterator[Finding]:
    """A move task runs, has messages left, and moved none for 10 min."""
    task, _ = _task(c)
    left = task.get("to_move") is None or _moved(task) < int(task["to_move"])
    if task.get("status") != "RUNNING" or not left:
        c.memory.since.pop("redrive_moved", None)
        return
    # Without the collector's own time of progress, progress is a count that changes.
    known = f"redrive_moved:{task.get('started_at')}:{_moved(task)}"
    for gone in [name for name in c.memory.since if name.startswith("redrive_moved") and name != known]:
        del c.memory.since[gone]
    began = task.get("progressed_at")
    since = c.memory.holds_since(known, True, c.now, began if isinstance(began, int) else None) or c.now
    if c.now - since < c.thresholds.redrive_stalled_s * 1000:
        return
    evidence = {
        **_figures(task),
        "stalled_s": seconds(c.now - since),
        "summary": (
            f"The redrive of {c.name.queue}{_target(task)} has moved nothing for {duration(c.now - since)}, "
            f"after {_moved(task)} messages: it goes on blocking further redrives."
        ),
    }
    yield c.finding("RedriveStalled", "warning", since, evidence)


def _task(c: Context) -> tuple[Mapping[str, Any], int]:
    known = c.summary.attributes.get("redrive_task")
    if known is None or not isinstance(known[1], dict):
        return {}, c.now
    return known[1], known[0]


def _moved(task: Mapping[str, Any]) -> int:
    moved = task.get("moved")
    return moved if isinstance(moved, int) else 0


def _target(task: Mapping[str, Any]) -> str:
    return f" to {task['to_queue']}" if task.get("to_queue") else ""


def _figures(task: Mapping[str, Any]) -> dict[str, Any]:
    return {name: task[name] for name in ("moved", "to_move", "started_at", "to_queue", "task_id") if name in task}
