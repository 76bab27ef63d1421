"""Steps further apart than samples usually are, as on a slow machine: counts fall between samples, or before the first."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.judge.snapshot import QueueView
from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import SETTINGS, judged

Events = list[dict[str, Any]]

PER_S = 4
WORKED_ON_S = 8
POLL_S = 15
SLOW = (28, 43, 70, 85, 112, 127, 154, 180, 207, 222, 250)
"""Fifteen to thirty seconds apart, the first one long after the first messages and counts."""
RESTARTED = (10, 20, 30, 40, 50, 60, 700, 710, 720, 730, 740, 750)
"""Nothing was judged for more than ten minutes: the counts of that time arrive in one step."""


def busy(from_s: int, until_s: int, *, seen: float = 1.0) -> Events:
    """Four messages per second, partly reported, and counts of all of them."""
    out: Events = []
    for i in range(from_s * PER_S, until_s * PER_S):
        if i * seen % 1 >= seen:
            continue
        at, name = i / PER_S, f"m{i}"
        out.append(ev("sent", at, message_id=name))
        out.append(ev("received", at + 0.2, message_id=name, receive_count=1, consumer="w", sent_at=T0 + round(at * 1000)))
        out.append(ev("deleted", at + WORKED_ON_S, message_id=name, consumer="w"))
    for at_s in range(0, until_s, POLL_S):
        there = PER_S * max(min(at_s - from_s, WORKED_ON_S), 0)
        attributes = {"visibility_timeout_s": 30, "visible": 0, "in_flight": there, "delayed": 0}
        out.append(ev("queue_state", at_s, attributes=attributes))
    return sorted(out, key=lambda e: e["at"])


def views_at(events: Events, times: tuple[int, ...]) -> list[QueueView]:
    """Return the queue at each of these times, in seconds."""
    before, steps = -1, []
    for at in times:
        steps.append((at * 1000, [e for e in events if before * 1000 < e["at"] - T0 <= at * 1000]))
        before = at
    return [snapshot.queues[0] for snapshot in judged(steps, SETTINGS).snapshots]


@pytest.mark.parametrize("from_s", [0, 10, 17, 40, 75])
def test_a_queue_that_is_reported_in_full_is_never_called_partly_known(from_s: int) -> None:
    """The tracked numbers before and after a count enclose it, wherever the traffic begins."""
    assert {view.basis for view in views_at(busy(from_s, 250), SLOW) if view.tracked} == {"messages"}


@pytest.mark.parametrize("seen", [0.25, 0.5])
def test_messages_of_which_a_part_is_reported_are_recognised_all_the_same(seen: float) -> None:
    """Counts outside the range tracked around them show it, however far apart the steps are."""
    bases = [view.basis for view in views_at(busy(0, 250, seen=seen), SLOW)]
    assert set(bases[3:]) == {"partial"}


def test_a_producer_whose_consumers_are_not_seen_is_recognised() -> None:
    """The tracked number grows, while the broker has few messages."""
    events = [e for e in busy(0, 250) if e["type"] in ("sent", "queue_state")]
    views = views_at(events, SLOW)
    assert {view.basis for view in views[3:]} == {"producers"}


def test_counts_of_a_time_that_was_not_judged_contradict_nothing() -> None:
    """Ten minutes that were tracked afterwards: their counts cannot be compared with what is tracked now."""
    events = busy(0, 60) + [e for e in busy(400, 750) if e["at"] - T0 > 60_000]
    assert {view.basis for view in views_at(sorted(events, key=lambda e: e["at"]), RESTARTED)} == {"messages"}
