"""A dead-letter queue of which only the counts are known, and whose messages a redrive task moves back to their source."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.driving import T0, event
from tests.judge.driving import in_steps, judged

POLL_S = 30
STARTED_S = 1_000


def oldest_s(until_s: int, known_from_s: int = STARTED_S, **task: Any) -> float:
    """Return by when the oldest of six dead letters was there, in seconds, where every count shows six.

    `task`: what the collector reports of a redrive task at polls after `known_from_s`.
    """
    events = []
    for at_s in range(0, until_s + 1, POLL_S):
        counts: dict[str, Any] = {"visible": 6, "in_flight": 0, "delayed": 0, "is_dead_letter_queue": True}
        if at_s > known_from_s and task:
            counts["redrive_task"] = {"started_at": T0 + 1000 * STARTED_S, **task}
        events.append(event("queue_state", 1000 * at_s, attributes=counts))
    view = judged(in_steps(events, 10, until_s)).snapshots[-1].queues[0]
    assert not view.exact_ages
    return (view.oldest_ms["all"] - T0) / 1000


@pytest.mark.parametrize(
    ("why", "task"),
    [
        ("it has ended", {"status": "COMPLETED", "moved": 6}),
        ("it has failed halfway", {"status": "FAILED", "moved": 3}),
        ("it still runs", {"status": "RUNNING", "moved": 3, "progressed_at": T0 + 1000 * 1_020}),
    ],
)
def test_messages_that_were_moved_and_failed_again_are_not_as_old_as_those_before(why: str, task: dict[str, Any]) -> None:
    """They come back before the next poll: the depth is the same, but these are other messages."""
    assert oldest_s(1_500, **task) >= STARTED_S, why


def test_a_task_that_moved_nothing_leaves_them_there() -> None:
    """As without a task: an unchanged backlog consists of the same messages."""
    without = oldest_s(1_500)
    assert without < 200
    assert oldest_s(1_500, status="FAILED", moved=0) == without


def test_a_task_that_is_found_late_ends_what_stood_since_before_its_start() -> None:
    """The collector looks for new tasks less often than it reads counts."""
    assert oldest_s(2_000, known_from_s=1_300, status="COMPLETED", moved=6) >= STARTED_S


def test_what_an_earlier_task_moved_says_nothing_of_messages_since_then() -> None:
    """It remains the latest task until another one starts."""
    moved: dict[str, Any] = {"status": "COMPLETED", "moved": 6}
    assert oldest_s(1_500, **moved) == oldest_s(2_500, **moved)
