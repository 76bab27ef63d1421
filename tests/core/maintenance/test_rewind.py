"""`now` recovers after a wrong one was trusted."""

from __future__ import annotations

from streaming.core.settings import QueueName
from streaming.core.state.state import ShardState
from tests.core.driving import T0, event, run_steps

MONTH = 30 * 86_400_000
NAME = QueueName("aws_sqs", "", "orders")


def test_now_comes_back_and_life_goes_on() -> None:
    """Messages expired by the month ahead stay expired; later ones are tracked by the correct time."""
    states: list[ShardState] = []
    steps = [
        (0, [event("sent", 0, message_id="m"), event("heartbeat", 0, consumer="c")]),
        (MONTH, [event("heartbeat", MONTH, consumer="c"), event("sent", MONTH, message_id="then")]),
        (2_000, [event("sent", 1_500, message_id="n"), event("heartbeat", 1_500, consumer="c")]),
        (40_000, [event("received", 3_000, message_id="n", receive_count=1)]),
    ]
    expired, back, later = run_steps(steps, states=states, restart=True)[1:]
    assert (expired.now, back.now, later.now) == (T0 + MONTH, T0 + 2_000, T0 + 40_000)
    assert back.high_water <= T0 + 2_000
    assert back.collectors == {"c": T0 + 2_000}
    assert later.events_total["late"] == 0
    summary = later.queues[NAME]
    assert summary.total("expired") == 1
    assert summary.last_received_at == T0 + 3_000
    assert summary.last_event_at <= T0 + 3_000
    assert summary.numbers["visible"] == 2, "the window of n ended by the right time"


def test_a_small_step_back_waits() -> None:
    """As with the clock of a batch that was read a moment early."""
    reports = run_steps([(10_000, []), (9_000, []), (10_500, [])])
    assert [merged.now - T0 for merged in reports] == [10_000, 10_000, 10_500]


def test_no_time_of_messages_groups_and_consumers_stays_in_the_future() -> None:
    """A dead letter that was noticed then would be announced for a month, and a group that ended then not be stuck."""
    states: list[ShardState] = []
    about = {"message_id": "m", "group": "g", "consumer": "w"}
    steps = [
        (0, [event("queue_state", 0, "d", attributes={"retention_s": 86_400 * 60}), event("heartbeat", 0, consumer="c")]),
        (1_000, [event("sent", 500, "q.fifo", **about), event("received", 600, "q.fifo", receive_count=1, **about)]),
        (MONTH, [event("dead_lettered", 60_000, message_id="x", to_queue="d")]),
        (120_000, [event("heartbeat", 120_000, consumer="c")]),
    ]
    *_, back = run_steps(steps, states=states)
    [state] = states
    assert back.now == T0 + 120_000
    limit = back.now + 300_000
    assert [arrival.rank[0] <= back.now for arrival in back.arrivals] == [True]
    times = {"groups": state.groups.time, "reached": state.groups.reached_at, "failed": state.consumers.failed_at}
    times |= {"consumers": state.consumers.time, "fingerprints": state.fingerprints["at"]}
    times |= {name: state.rows[name] for name in ("ended", "ended_noticed", "arrived", "arrived_noticed", "last_received")}
    assert {name for name, values in times.items() if (values > limit).any()} == set()
    assert state.groups.time.max() > 0, "the message of the group expired by the wrong time"
