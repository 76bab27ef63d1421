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


@pytest.mark.parametrize("sends", [False, True], ids=["counts alone", "with sends"])
def test_a_stall_does_not_begin_to_fire_after_the_counts_have_ended(sends: bool) -> None:
    """Consumers that do not report may have worked off this backlog, which stood for a minute when it was last counted."""
    events = counts("q", [300, 330, 360])
    for at_s in range(0, 300, 30):
        events.append(event("queue_state", at_s * 1000, "q", attributes=BACKLOG | {"visible": 0, "in_flight": 3}))
    if sends:
        events += [event("sent", at_s * 1000, "q", message_id=f"m{at_s}") for at_s in range(0, 900, 10)]
    assert stalls(judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, 900)), "q") == []


def test_a_queue_counted_once_vanishes_after_ten_minutes() -> None:
    """Nothing shows yet how far apart the polls are."""
    assert shown(judged(in_steps(counts("q", [0]), 30, 900)), "q")[-1] == 600


@pytest.mark.parametrize("every_s", [300, 600, 900])
@pytest.mark.parametrize("backlog", [0, 7])
def test_status_and_basis_do_not_change_between_two_polls(every_s: int, backlog: int) -> None:
    """Two minutes after each count the status was stale, and ten minutes after it the basis unknown."""
    attributes = BACKLOG | {"visible": backlog, "in_flight": 0 if backlog else 2}
    events = [event("queue_state", s * 1000, "q", attributes=attributes) for s in range(0, 4 * every_s, every_s)]
    found = judged(in_steps(events, 30, 4 * every_s))
    seen = [(view.status, view.basis) for s in found.snapshots if s.at_ms - T0 >= 2_000 * every_s for view in s.queues]
    assert set(seen) == {("stopped" if backlog else "ok", "counts")}
    assert len(seen) == 2 * every_s // 30 + 1


def test_a_queue_is_stale_when_its_next_count_is_overdue() -> None:
    """After two minutes, or a quarter more than the interval between the last two counts where polls are further apart."""
    for every_s, stale_s in ((30, 120), (90, 120), (600, 750)):
        sends = [event("sent", 0, "q", message_id="m")]
        found = judged(in_steps([*sends, *counts("q", [0, every_s])], 10, every_s + 900))
        stale = [(s.at_ms - T0) // 1000 for s in found.snapshots if s.queues[0].status == "stale"]
        assert next(t for t in stale if t > every_s) == every_s + stale_s


def test_a_collector_that_was_gone_for_hours_and_ends_after_one_poll_is_noticed() -> None:
    """The time between two counts is no interval between polls then."""
    polls = [*range(0, 300, 30), 7_800]
    sends = [event("sent", 0, "q", message_id="m")]
    found = judged(in_steps([*sends, *counts("q", polls)], 30, 8_400))
    last = {(s.at_ms - T0) // 1000: s.queues[0].status for s in found.snapshots}
    assert last[7_830] != "stale"
    assert last[7_920] == "stale"
