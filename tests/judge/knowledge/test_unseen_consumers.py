"""Consumers that do not report show in the number in flight, however well all other counts agree."""

from __future__ import annotations

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import in_steps, judged


@pytest.mark.simulation
def test_long_jobs_of_consumers_that_do_not_report_are_no_stall() -> None:
    """Nothing left the queue for eight minutes, so as many messages are tracked as counted. But consumers have most of them."""
    events = [ev("sent", 5 + 50 * i, message_id=f"m{i}") for i in range(10)]
    for at in range(0, 480, 30):
        there = sum(5 + 50 * i <= at for i in range(10))
        waiting = min(there, 2) if at > 100 else 0
        counts = {"visibility_timeout_s": 30, "visible": waiting, "in_flight": there - waiting, "delayed": 0}
        events.append(ev("queue_state", at, attributes=counts))
    found = judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, 480))
    assert found.snapshots[-1].queues[0].basis == "producers"
    assert {snapshot.queues[0].basis for snapshot in found.snapshots if snapshot.queues and snapshot.queues[0].in_flight} <= {
        "producers",
        "partial",
    }
    assert [c for c in found.changes if c.finding.key.signal == "QueueStalled"] == []


@pytest.mark.parametrize("consumers", [True, False], ids=["started for the burst", "gone"])
def test_a_burst_that_waits_for_consumers_to_start_does_not_show_that_there_are_none(consumers: bool) -> None:
    """A queue is empty, and its consumers are scaled to zero. They take the burst two minutes later, and do not report."""
    events = [ev("sent", 610 + i // 3, message_id=f"m{i}") for i in range(60)]
    for at in range(0, 1200, 60):
        waiting = 0 if at < 660 or (consumers and at >= 780) else 60
        counts = {"visibility_timeout_s": 30, "visible": waiting, "in_flight": 0, "delayed": 0}
        events.append(ev("queue_state", at, attributes=counts))
    found = judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, 1200)).snapshots
    assert {snapshot.queues[0].basis for snapshot in found if snapshot.at_ms >= T0 + 620_000} == (
        {"producers"} if consumers else {"producers", "messages"}
    )
    taken = [snapshot.queues[0].oldest_ms for snapshot in found if snapshot.at_ms >= T0 + 730_000]
    assert not taken[0]
    assert bool(taken[-1]) is not consumers
