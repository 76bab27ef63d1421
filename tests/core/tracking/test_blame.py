"""Which consumer a failed delivery is counted for, however its message is delivered again."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import QueueName
from tests.core.driving import event, run_steps

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
