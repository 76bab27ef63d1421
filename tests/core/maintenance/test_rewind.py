"""`now` recovers after a wrong one was trusted."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.maintenance.rewind import rewind
from streaming.core.settings import QueueName, Settings
from streaming.core.state.queue_table import TIMES as TIMES_OF_QUEUES
from streaming.core.state.rows import ENDS, ROW_COLUMNS, TIMES
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


HOURS = 2 * 3_600_000


@pytest.mark.parametrize("receives", [1, 2], ids=["delivered once", "with a timeline"])
def test_deletions_end_the_messages_of_a_host_whose_clock_was_ahead(receives: int) -> None:
    """Their sends and receives are two hours ahead; the deletions are not, and would be earlier than what they end."""
    early = [event("queue_state", 0, attributes={"visibility_timeout_s": 30}), event("heartbeat", 0, consumer="c")]
    ahead = [event("sent", HOURS - 60_000, message_id="m")]
    for n in range(receives):
        ahead.append(event("received", HOURS - 50_000 + 40_000 * n, message_id="m", receive_count=n + 1, consumer="c"))
    steps = [(0, early), (HOURS, ahead), (10_000, []), (20_000, [event("deleted", 19_000, message_id="m", consumer="c")])]
    *_, back, deleted = run_steps(steps, restart=True)
    assert back.queues[NAME].oldest[0] == T0 + 10_000
    assert [back.queues[NAME].numbers[name] for name in ("visible", "in_flight")] == [0, 1]
    assert deleted.queues[NAME].total("deleted") == 1
    assert [deleted.queues[NAME].numbers[name] for name in ("visible", "in_flight")] == [0, 0]


def test_a_window_lasts_as_long_as_before() -> None:
    """It ends after now, as it did; one that began by the right time does not change."""
    right = [event("received", 1_000, message_id="r", receive_count=1, invisible_until=T0 + 2 * HOURS)]
    ahead = [event("sent", HOURS - 60_000, message_id="m", visible_at=T0 + HOURS + 30_000)]
    ahead += [event("received", HOURS - 2_000, message_id="m", receive_count=3, invisible_until=T0 + HOURS + 40_000)]
    ahead += [event("extended", HOURS - 1_000, message_id="m", invisible_until=T0 + HOURS + 59_000)]
    states: list[ShardState] = []
    run_steps([(2_000, right), (HOURS, ahead), (10_000, [])], states=states)
    [state] = states
    rows = {state.message_id(row): row for row in range(len(state.rows))}

    def times(message_id: str, *names: str) -> list[int]:
        return [int(state.rows[name][rows[message_id]]) - T0 for name in names]

    assert times("m", "sent", "delay", "window_at", "window_end", "restart") == [10_000, 100_000, 10_000, 70_000, 70_000]
    assert times("r", "window_at", "window_end") == [1_000, 2 * HOURS]
    assert (state.attempts["at"] - T0).tolist() == [9_999, 10_000], "in the order in which they were"
    assert (state.attempts["end"] - T0).tolist() == [52_000, 70_000]


def test_every_column_of_times_is_rewound() -> None:
    """A column of eight bytes with a sign is one of times."""
    assert {name for name, (dtype, _) in ROW_COLUMNS.items() if dtype == "i8"} == {*TIMES, *ENDS}
    assert set(ENDS.values()) <= set(TIMES)


def test_every_time_of_a_queue_is_rewound() -> None:
    """But for the skew, which is a duration."""
    states: list[ShardState] = []
    run_steps([(MONTH, [event("heartbeat", MONTH, consumer="c"), event("sent", MONTH, message_id="m")])], states=states)
    [state] = states
    for name in TIMES_OF_QUEUES:
        state.queues.column(name)[:] = T0 + MONTH
    rewind(state, T0, Settings())
    assert {name for name in TIMES_OF_QUEUES if state.queues.column(name)[0] != T0} == {"skew_ms"}


@pytest.mark.parametrize("ahead", [False, True], ids=["the clock was right", "the clock was two hours ahead"])
def test_a_head_that_younger_messages_pass_over_is_stuck(ahead: bool) -> None:
    """Also where what was received by the wrong time had been sent by it: that is no younger than what is sent later."""

    def handled(at: int, message_id: str) -> list[dict[str, Any]]:
        about = {"message_id": message_id, "group": message_id}
        receive = event("received", at + 100, "q.fifo", receive_count=1, consumer="w", **about)
        return [event("sent", at, "q.fifo", **about), receive, event("deleted", at + 200, "q.fifo", consumer="w", **about)]

    steps = [(1_000, [event("queue_state", 0, "q.fifo", attributes={"visibility_timeout_s": 30}), *handled(500, "a")])]
    steps += [(HOURS, handled(HOURS - 1_000, "b"))] if ahead else []
    waits = [event("sent", 12_000 + i, "q.fifo", message_id=f"h{i}", group="h") for i in range(2)]
    steps += [(10_000, []), (14_000, waits), *((at, handled(at - 900, f"n{at}")) for at in range(15_000, 160_001, 5_000))]
    ordered = run_steps(steps)[-1].queues[NAME._replace(queue="q.fifo")].ordered_facts
    assert ordered is not None
    assert [(stuck.group.name, stuck.reason) for stuck in ordered.stuck] == [("h", "not_received")]
    assert ordered.youngest_received_sent_at == T0 + 159_100
