"""Queues known only by the broker's counts, where these are far apart: they vanish when a count is overdue, not between two."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.driving import T0, event
from tests.judge.driving import Judged, in_steps, judged

pytestmark = pytest.mark.simulation

BACKLOG = {"visible": 7, "in_flight": 0, "delayed": 0, "retention_s": 345_600, "visibility_timeout_s": 30}


def counts(queue: str, at_s: list[int]) -> list[dict[str, Any]]:
    """Return counts of a backlog that does not move."""
    return [event("queue_state", s * 1000, queue, attributes=BACKLOG) for s in at_s]


def shown(found: Judged, queue: str) -> list[int]:
    """Return the times at which a queue is in the snapshot, in seconds."""
    return [(s.at_ms - T0) // 1000 for s in found.snapshots if any(view.name.queue == queue for view in s.queues)]


def stalls(found: Judged, queue: str) -> list[tuple[int, str]]:
    """Return when QueueStalled of a queue changed, in seconds."""
    changes = (c for c in found.changes if c.finding.key.signal == "QueueStalled" and c.finding.key.queue == queue)
    return [((c.at_ms - T0) // 1000, c.status) for c in changes]


@pytest.mark.parametrize(("every_s", "shards"), [(700, 1), (900, 3), (3_600, 1)])
def test_a_stall_is_reported_once_however_far_apart_the_polls_are(every_s: int, shards: int) -> None:
    """At polls fifteen minutes apart the queue vanished ten minutes after each count, and its stall paged at every poll."""
    until_s, step_s = 4 * every_s, every_s // 20
    events = counts("q", list(range(0, until_s, every_s)))
    found = judged(in_steps(events, step_s, until_s), shards=shards, restart=shards > 1)
    ((_, status),) = stalls(found, "q")
    assert status == "firing"
    assert set(range(every_s, until_s, step_s)) <= set(shown(found, "q"))


def test_a_late_poll_is_not_a_missing_one() -> None:
    """Polls take time, and reports reach the judge later: a count that is a fifth of the interval late ends nothing."""
    found = judged(in_steps(counts("q", [0, 900, 1_980, 2_700]), 60, 3_000))
    assert set(range(900, 3_001, 60)) <= set(shown(found, "q"))
    assert [status for _, status in stalls(found, "q")] == ["firing"]


def test_a_queue_vanishes_when_its_next_count_is_overdue() -> None:
    """Ten minutes after the last count, or after a quarter more than the interval between the last two; each for itself."""
    often, rarely = counts("often", list(range(0, 1_801, 300))), counts("rarely", [0, 900, 1_800])
    found = judged(in_steps(sorted([*often, *rarely], key=lambda e: e["at"]), 15, 3_000))
    assert shown(found, "often")[-1] == 1_800 + 600
    assert shown(found, "rarely")[-1] == 1_800 + 900 * 5 // 4
    assert stalls(found, "often")[-1] == (1_800 + 615, "resolved")


def test_a_queue_counted_once_vanishes_after_ten_minutes() -> None:
    """Nothing shows yet how far apart the polls are."""
    assert shown(judged(in_steps(counts("q", [0]), 30, 900)), "q")[-1] == 600
