"""Which consumer a failed delivery is counted for, however its message is delivered again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streaming.core.events.events import RECEIVED
from streaming.core.settings import QueueName, Settings
from streaming.core.state.state import ShardState
from tests.core.driving import T0, event, run_steps

JOBS = QueueName("activemq", "", "jobs")
Wire = dict[str, Any]


def mq(kind: str, at_s: int, consumer: str = "a", count: int = 1) -> Wire:
    """Build an event of one message of an ActiveMQ queue."""
    about: Wire = {"system": "activemq", "message_id": "m"}
    if kind != "sent":
        about |= {"consumer": consumer}
    if kind == "received":
        about |= {"receive_count": count}
    return event(kind, 1000 * at_s, "jobs", **about)


RETURNED = [mq("sent", 0), mq("received", 1), mq("released", 10), mq("received", 11, "b")]


@pytest.mark.parametrize("together", [True, False], ids=["in one step", "each in its own"])
@pytest.mark.parametrize(
    ("events", "failed"),
    [
        pytest.param(RETURNED[:3], {"a": 1}, id="it is given back"),
        pytest.param(RETURNED, {}, id="unread: the next receive has the same count"),
        pytest.param([*RETURNED, mq("deleted", 12, "b")], {}, id="and the next one finishes it"),
        pytest.param([*RETURNED, mq("released", 12, "b")], {"b": 1}, id="or fails"),
        pytest.param([*RETURNED[:3], mq("received", 11, "b", 2), mq("released", 12, "b")], {"a": 1, "b": 1}, id="both failed"),
    ],
)
def test_a_delivery_that_failed_is_counted_for_the_last_who_received_it(
    events: list[Wire], failed: dict[str, int], together: bool
) -> None:
    """A prefetched message that is given back unread is received again with the same count: nobody failed."""
    steps = [(20_000, events)] if together else [(e["at"] - events[0]["at"] + 500, [e]) for e in events]
    summary = run_steps(steps, restart=True)[-1].queues[JOBS]
    assert {name: results.failed for name, results in summary.consumer_results.items() if results.failed} == failed
    assert summary.total("failed") == sum(failed.values())


@pytest.mark.simulation
@pytest.mark.parametrize("every_ms", [1_000, 5_000])
def test_deliveries_beyond_the_kept_timeline_are_counted_for_those_who_had_them(every_ms: int) -> None:
    """Consumer a had 79 deliveries, whose windows ran out; b has the 80th. Only the latest 32 receives are kept."""
    events = [event("queue_state", 0, attributes={"visibility_timeout_s": 30}), event("sent", 500, message_id="m")]
    for n in range(1, 81):
        events.append(event("received", 30_000 * n, message_id="m", receive_count=n, consumer="b" if n == 80 else "a"))
    steps = [(at, [e for e in events if at - every_ms < e["at"] - T0 <= at]) for at in range(0, 80 * 30_000 + 5_001, every_ms)]
    summary = run_steps(steps)[-1].queues[QueueName("aws_sqs", "", "orders")]
    assert {name: results.failed for name, results in summary.consumer_results.items() if results.failed} == {"a": 79}


def extended(at_s: int, lasts_s: int = 30) -> Wire:
    """Build an extension by consumer a, until `lasts_s` later."""
    return mq("extended", at_s) | {"invisible_until": T0 + 1000 * (at_s + lasts_s)}


@pytest.mark.parametrize("together", [True, False], ids=["in one step", "each in its own"])
@pytest.mark.parametrize("extensions", [3, 4, 5, 50])
def test_a_consumer_that_extends_a_message_many_times_is_blamed(extensions: int, together: bool) -> None:
    """A timeline of four attempts keeps the receive, and the latest extensions."""
    events = [mq("sent", 0), mq("received", 1), *(extended(2 + 10 * n) for n in range(extensions))]
    over = 10_000 * extensions + 60_000
    steps = [(over, events)] if together else [*((e["at"] - T0 + 500, [e]) for e in events), (over, [])]
    states: list[ShardState] = []
    summary = run_steps(steps, Settings(attempts_per_message=4), restart=True, states=states)[-1].queues[JOBS]
    assert {name: results.failed for name, results in summary.consumer_results.items()} == {"a": 1}
    assert summary.total("failed") == 1
    assert (states[0].attempts["at"] - T0).tolist() == [1_000, *[1000 * (2 + 10 * n) for n in range(extensions)][-3:]]


@pytest.mark.parametrize("together", [True, False], ids=["in one step", "each in its own"])
def test_how_each_delivery_ended_is_kept(together: bool) -> None:
    """The oldest attempts are dropped only when all others are receives and the last operations of deliveries."""
    deliveries = [(1, range(2, 40, 10)), (101, range(110, 150, 10)), (201, range(210, 290, 10))]
    events = [mq("sent", 0)]
    for n, (at, extensions) in enumerate(deliveries):
        events += [mq("received", at, count=n + 1), *(extended(second, 20) for second in extensions)]
    steps = [(300_000, events)] if together else [(e["at"] - T0 + 500, [e]) for e in events]
    for kept, times in ((7, [1, 32, 101, 140, 201, 270, 280]), (4, [101, 140, 201, 280])):
        states: list[ShardState] = []
        run_steps(steps, Settings(attempts_per_message=kept), restart=True, states=states)
        [state] = states
        assert (state.attempts["at"] - T0).tolist() == [1000 * second for second in times]
        assert np.count_nonzero(state.attempts["code"] == RECEIVED) == kept // 2
        assert (state.rows["restart"] - T0).tolist() == [300_000], "CloudWatch's age restarts when the third receive ends"
        if kept == 7:
            assert state.rows["restart_before"].tolist() == [0], "no earlier end of that receive is taken for another one's"
