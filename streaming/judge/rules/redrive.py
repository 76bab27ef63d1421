"""Signals about redrive tasks, which move dead letters back: a failed task, and one that has stopped moving."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streaming.judge.broker_counts import overdue_from
from streaming.judge.conditions.conditions import conditions
from streaming.judge.context import DAY_MS, Context
from streaming.judge.findings.signals import Finding
from streaming.judge.findings.words import duration_ms, plural, seconds

FAILED_SHOWN_MS = DAY_MS
"""A failed task that is not repeated remains the last one for ever: it is shown for a day."""
PROGRESS_KNOWN_MS = 360_000
"""A report tells of a task's progress for this long: some collectors poll every five minutes."""


@conditions("redrive_failed")
def failed_since(c: Context) -> dict[str, int]:
    """The last move task failed. A task is known by its start: another one may fail before a report shows that it ran."""
    task, at = _task(c)
    return {_started(task): at} if task.get("status") == "FAILED" else {}


@conditions("redrive_moved")
def progress_since(c: Context) -> dict[str, int]:
    """A move task runs and has messages left. Without the collector's own time of progress, that is a count that changes.

    An application that starts a task reports no progress: where no collector follows it, nothing is known of the task.
    """
    task, _ = _task(c)
    if task.get("status") != "RUNNING" or not isinstance(task.get("moved"), int):
        return {}
    to_move = task.get("to_move")
    if type(to_move) is int and _moved(task) >= to_move:
        return {}
    began = task.get("progressed_at")
    return {f"{task.get('started_at')}:{_moved(task)}": began if isinstance(began, int) else c.now}


def redrive_failed(c: Context) -> Iterator[Finding]:
    """The last move task of this dead-letter queue ended as FAILED."""
    started, since = next(iter(failed_since(c).items()), ("", None))
    if since is None or c.now - since > FAILED_SHOWN_MS:
        return
    task, _ = _task(c)
    reason = str(task.get("failure_reason") or "no reason given")
    evidence = {
        "reason": reason,
        **_figures(task),
        "summary": (
            f"The redrive of {c.name.queue}{_target(task)} failed after {plural(_moved(task), 'message')}: {reason}. "
            "The others remain in the queue and keep ageing."
        ),
    }
    yield c.finding("RedriveFailed", "warning", since, evidence, part=started or None)


def redrive_stalled(c: Context) -> Iterator[Finding]:
    """A move task runs, has messages left, and moved none for 10 min, as its reports show: one since it moved, and a recent one.

    It ends when no report came for that long: its collector is gone.
    """
    since = next(iter(progress_since(c).values()), None)
    if since is None:
        return
    limit_ms = int(c.thresholds.redrive_stalled_s * 1000)
    task, reported_at = _task(c)
    if c.now - since < limit_ms or reported_at <= since:
        return
    known_ms = max(PROGRESS_KNOWN_MS, limit_ms) if c.firing_here("RedriveStalled") else PROGRESS_KNOWN_MS
    if c.now >= max(reported_at + known_ms, overdue_from(c.summary) or 0):
        return
    evidence = {
        **_figures(task),
        "stalled_s": seconds(c.now - since),
        "summary": (
            f"The redrive of {c.name.queue}{_target(task)} has moved nothing for {duration_ms(c.now - since)}, "
            f"after {plural(_moved(task), 'message')}: it still blocks further redrives."
        ),
    }
    yield c.finding("RedriveStalled", "warning", since, evidence)


def _task(c: Context) -> tuple[Mapping[str, Any], int]:
    known = c.summary.attributes.get("redrive_task")
    if known is None or not isinstance(known.value, dict):
        return {}, c.now
    return known.value, known.at


def _started(task: Mapping[str, Any]) -> str:
    """Return when a task started, as text; empty where that is not reported."""
    started = task.get("started_at")
    return str(started) if isinstance(started, int) else ""


def _moved(task: Mapping[str, Any]) -> int:
    moved = task.get("moved")
    return moved if isinstance(moved, int) else 0


def _target(task: Mapping[str, Any]) -> str:
    return f" to {task['to_queue']}" if task.get("to_queue") else ""


def _figures(task: Mapping[str, Any]) -> dict[str, Any]:
    # `null` stands for what is not known.
    return {name: task[name] for name in ("moved", "to_move", "started_at", "to_queue", "task_id") if task.get(name) is not None}
