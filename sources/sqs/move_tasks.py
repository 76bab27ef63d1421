"""Follow the redrive task of a dead-letter queue: its progress, rate and remaining time. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from queuewatch.move_tasks import move_task_id
from queuewatch.places import place_of_arn


class Progress(NamedTuple):
    """The progress of a task at a time."""

    started_at: int
    at: int
    moved: int
    progressed_at: int
    """When its count of moved messages was last seen to rise, or when the task was first seen."""


def latest(results: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the most recently started task in an answer of ListMessageMoveTasks."""
    return max(results, key=lambda task: int(task.get("StartedTimestamp") or 0), default=None)


def redrive_task(task: Mapping[str, Any], at: int, before: Progress | None) -> tuple[dict[str, Any], Progress | None]:
    """Return the attribute `redrive_task` at `at` (epoch milliseconds), and the progress to pass in the next time.

    `rate_per_s` is the task's rate since `before`, or since its start the first time; `time_left_s` follows from it, or
    from the task's own limit while it has moved nothing; both are left out when unknown. `progressed_at` distinguishes a
    task that no longer moves anything from a slow one. SQS counts approximately: `moved` may exceed `to_move`.
    """
    status = str(task.get("Status") or "UNKNOWN")
    moved = int(task.get("ApproximateNumberOfMessagesMoved") or 0)
    started_at = int(task.get("StartedTimestamp") or 0)
    found: dict[str, Any] = {"status": status, "moved": moved, "started_at": started_at}
    to_move = task.get("ApproximateNumberOfMessagesToMove")
    if to_move is not None:
        found["to_move"] = int(to_move)
    limit = task.get("MaxNumberOfMessagesPerSecond")
    if limit is not None:
        found["limit_per_s"] = int(limit)
    if task.get("DestinationArn"):
        found["to_queue"] = place_of_arn(str(task["DestinationArn"])).queue
    if task.get("FailureReason"):
        found["failure_reason"] = str(task["FailureReason"])
    task_id = move_task_id(task.get("TaskHandle"))
    if task_id is not None:
        found["task_id"] = task_id
    if status not in ("RUNNING", "CANCELLING"):
        return found, None
    rate = _rate_per_s(moved, at, started_at, before)
    if rate is not None:
        found["rate_per_s"] = round(rate, 1)
    if to_move is not None:
        left = max(0, int(to_move) - moved)
        speed = rate or (float(limit) if limit else None)
        if left == 0 or speed:
            found["time_left_s"] = round(left / speed) if speed else 0
    same = before is not None and before.started_at == started_at and before.moved >= moved
    progressed_at = before.progressed_at if before is not None and same else at
    found["progressed_at"] = progressed_at
    return found, Progress(started_at, at, moved, progressed_at)


def _rate_per_s(moved: int, at: int, started_at: int, before: Progress | None) -> float | None:
    if before is not None and before.started_at == started_at and at > before.at:
        return max(0, moved - before.moved) * 1000 / (at - before.at)
    return moved * 1000 / (at - started_at) if at > started_at else None
