"""Retention: where the broker has one a message is lost with it; where it has none, time alone never ends a message."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.reporting.merge import Merged
from streaming.core.settings import QueueName, Settings
from tests.core.driving import event, run_steps

SETTINGS = Settings(now_is_event_time=True)
DAY_MS = 86_400_000


def report(merged: Merged, system: str, queue: str) -> dict[str, Any]:
    """Return what is tracked and how messages ended in a queue."""
    summary = merged.queues[QueueName(system, "", queue)]
    return {name: summary.total(name) for name in ("expired", "reconciled")} | {"visible": summary.numbers["visible"]}


@pytest.mark.parametrize(
    ("system", "attributes", "day_5", "day_15"),
    [
        # SQS: four days unless the queue says otherwise.
        ("aws_sqs", {}, {"expired": 1, "reconciled": 0, "visible": 0}, {"expired": 1, "reconciled": 0, "visible": 0}),
        # ActiveMQ deletes nothing by age; tracking must end some time, but that is no loss.
        ("activemq", {}, {"expired": 0, "reconciled": 0, "visible": 1}, {"expired": 0, "reconciled": 1, "visible": 0}),
        (
            "rabbitmq",
            {"retention_s": 86_400},
            {"expired": 1, "reconciled": 0, "visible": 0},
            {"expired": 1, "reconciled": 0, "visible": 0},
        ),
    ],
)
def test_only_a_retention_that_the_system_has_loses_messages(
    system: str, attributes: dict[str, Any], day_5: dict[str, int], day_15: dict[str, int]
) -> None:
    """A message that nobody receives."""
    events = [
        event("queue_state", 0, attributes={"visible": 0, **attributes}) | {"system": system},
        event("sent", 1, message_id="m") | {"system": system},
    ]
    last = run_steps([(1_000, events), (5 * DAY_MS, []), (15 * DAY_MS, [])], SETTINGS)
    assert [report(merged, system, "orders") for merged in last[1:]] == [day_5, day_15]


def test_a_message_without_retention_is_tracked_as_long_as_something_is_heard_of_it() -> None:
    """Received on the tenth day, so the fortnight runs from there."""
    of = {"system": "activemq"}
    steps = [
        (1_000, [event("sent", 0, message_id="m") | of]),
        (10 * DAY_MS, [event("received", 10 * DAY_MS, message_id="m", consumer="a") | of]),
        (15 * DAY_MS, []),
        (25 * DAY_MS, []),
    ]
    merged = run_steps(steps, SETTINGS)
    in_flight = [one.queues[QueueName("activemq", "", "orders")].numbers["in_flight"] for one in merged]
    assert in_flight == [0, 1, 1, 0]


def test_a_message_without_retention_stays_where_the_brokers_counts_are_reported() -> None:
    """A dead letter of three weeks is still there, and is listed. A fortnight after the last count it is forgotten."""
    of = {"system": "activemq"}
    counts = {"visible": 1, "in_flight": 0, "delayed": 0}
    steps = [(1_000, [event("sent", 0, message_id="m") | of])]
    steps += [(day * DAY_MS, [event("queue_state", day * DAY_MS, attributes=counts) | of]) for day in range(1, 22)]
    merged = run_steps([*steps, (34 * DAY_MS, []), (36 * DAY_MS, [])], SETTINGS)
    visible = [one.queues[QueueName("activemq", "", "orders")].numbers["visible"] for one in merged]
    assert visible == [1] * 23 + [0]
