"""Pauses of consumers in the broker's counts."""

from __future__ import annotations

import pytest

from streaming.core.state.queues import Depth
from streaming.judge.knowledge.pauses import PAUSES_KEPT, Pause, longest_of_schedule, pauses_with

MINUTE_MS = 60_000


def depth(at_min: float, visible: int, in_flight: int = 1) -> Depth:
    """Return a count."""
    return Depth(round(at_min * MINUTE_MS), visible, in_flight, 0)


def test_a_pause_counts_once_the_consumers_have_caught_up() -> None:
    """One that leaves more than half of the backlog may be a fix that did not hold."""
    pauses = pauses_with([], depth(20, 90), 5 * MINUTE_MS, 90, 5 * MINUTE_MS)
    assert [(pause.began_at, pause.ended_at, pause.caught_up) for pause in pauses] == [(5 * MINUTE_MS, 20 * MINUTE_MS, False)]
    assert longest_of_schedule(pauses, 0, 0, 3, 22 * MINUTE_MS) == 0
    pauses = pauses_with(pauses, depth(21, 20), 0, 0, 5 * MINUTE_MS)
    assert longest_of_schedule(pauses, 0, 0, 3, 22 * MINUTE_MS) == 15 * MINUTE_MS


def test_a_short_standstill_is_no_pause() -> None:
    """A count may just miss what is in flight."""
    assert pauses_with([], depth(4, 0), 1 * MINUTE_MS, 3, 5 * MINUTE_MS) == []


@pytest.mark.parametrize(
    ("known_since", "longest"),
    [(0, 10), (-40, 0), (-10, 10)],
    ids=["known with the first pause", "had worked for longer than it paused", "had worked for as long"],
)
def test_a_schedule_pauses_for_half_of_the_time(known_since: int, longest: int) -> None:
    """Since the queue became known, in minutes."""
    began = 2_000 * MINUTE_MS
    pause = Pause(began, began + 10 * MINUTE_MS, 50, True)
    assert (
        longest_of_schedule([pause], began + known_since * MINUTE_MS, 560 * MINUTE_MS, 3, pause.ended_at) == longest * MINUTE_MS
    )


@pytest.mark.parametrize(
    ("pauses", "worked_min", "longest"),
    [
        pytest.param([(100, 120)], 9, 20, id="one pause, and less than half as much work"),
        pytest.param([(100, 120)], 10, 0, id="one pause, and half as much work: an outage"),
        pytest.param([(100, 120), (130, 150)], 10, 20, id="two pauses"),
        pytest.param([(-2_000, -1_980), (100, 120)], 10, 20, id="two pauses, one of them the day before"),
    ],
)
def test_one_pause_is_a_schedule_only_if_little_work_followed(
    pauses: list[tuple[int, int]], worked_min: int, longest: int
) -> None:
    """In minutes, for a queue that is known since the last pause began."""
    found = [Pause(began * MINUTE_MS, ended * MINUTE_MS, 50, True) for began, ended in pauses]
    worked_until = found[-1].ended_at + worked_min * MINUTE_MS
    assert longest_of_schedule(found, found[0].began_at, 100 * MINUTE_MS, 3, worked_until) == longest * MINUTE_MS


def test_of_very_many_pauses_the_latest_are_kept() -> None:
    """The time before the first of them says nothing then."""
    pauses: list[Pause] = []
    for n in range(PAUSES_KEPT + 20):
        pauses = pauses_with(pauses, depth(10 * n + 6, 0), 10 * n * MINUTE_MS, 9, 5 * MINUTE_MS)
    assert len(pauses) == PAUSES_KEPT
    assert longest_of_schedule(pauses, 0, 0, 3, pauses[-1].ended_at) == 6 * MINUTE_MS
