"""Retention: where the broker has one a message is lost with it; where it has none, time alone never ends a message."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from streaming.core.reporting.merge import Merged
from streaming.core.settings import QueueName, Settings
from tests.core.driving import T0, event, run_steps

SETTINGS = Settings(now_is_event_time=True)
DAY_MS = 86_400_000
Wire = dict[str, Any]


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


RECEIVED_LATE = [
    event("sent", 0, message_id="m"),
    event("received", 4 * DAY_MS - 100_000, message_id="m", receive_count=1, invisible_until=T0 + 4 * DAY_MS - 10_000),
]


def in_flight_and_expired(events: list[Wire], seconds_after: list[int], queue: Wire | None = None) -> list[tuple[int, int]]:
    """Return how many messages are in flight and how many expired, so many seconds after four days."""
    times = [4 * DAY_MS + after * 1_000 for after in seconds_after]
    states = [event("queue_state", 0, attributes=queue)] if queue else []
    steps = [(at, [e for e in states + events if before < e["at"] - T0 <= at]) for before, at in pairwise([-1, *times])]
    merged = [one.queues[QueueName("aws_sqs", "", "orders")] for one in run_steps(steps, SETTINGS, restart=True)]
    return [(summary.numbers["in_flight"], summary.total("expired")) for summary in merged]


def test_a_message_in_flight_does_not_expire_by_a_retention_that_is_only_assumed() -> None:
    """It is kept while its window is extended, and an extension after the four days shows that the retention is longer."""
    extended = [
        event("extended", 4 * DAY_MS + at, message_id="m", invisible_until=T0 + 4 * DAY_MS + at + 100_000)
        for at in (-20_000, 60_000)
    ]
    assert in_flight_and_expired([*RECEIVED_LATE, *extended], [0, 70, 159, 200]) == [(1, 0), (1, 0), (1, 0), (0, 0)]
    assert in_flight_and_expired([*RECEIVED_LATE, extended[0]], [0, 79, 80]) == [(1, 0), (1, 0), (0, 1)]
    assert in_flight_and_expired(RECEIVED_LATE, [-20, 0]) == [(1, 0), (0, 1)]


def test_a_message_in_flight_expires_by_a_retention_that_is_known() -> None:
    """SQS deletes it whoever holds it."""
    extended = event("extended", 4 * DAY_MS - 20_000, message_id="m", invisible_until=T0 + 4 * DAY_MS + 80_000)
    assert in_flight_and_expired([*RECEIVED_LATE, extended], [-10, 0], {"retention_s": 4 * 86_400}) == [(1, 0), (0, 1)]


@pytest.mark.parametrize("type_", ["sent", "received", "extended", "released"])
def test_an_event_after_the_retention_shows_that_the_message_is_there(type_: str) -> None:
    """It is kept for as long again from there: a collector may find it, and name the time when it was sent, as `sent` does."""
    found = event(type_, 5 * DAY_MS, message_id="m", sent_at=T0)
    steps = [(5 * DAY_MS, [found]), (9 * DAY_MS - 1, []), (9 * DAY_MS, [])]
    merged = [one.queues[QueueName("aws_sqs", "", "orders")] for one in run_steps(steps, SETTINGS, restart=True)]
    assert [summary.total("expired") for summary in merged] == [0, 0, 1]


SHORT = event("queue_state", 0, attributes={"retention_s": 60})
DELIVERED = [event("sent", 0, message_id="m"), event("received", 50_000, message_id="m", receive_count=1)]
EARLIER_ENDS = [event("deleted", 58_000, message_id="m"), event("dead_lettered", 58_000, message_id="m", to_queue="d")]


@pytest.mark.parametrize("end", EARLIER_ENDS, ids=lambda one: str(one["type"]))
def test_an_end_before_the_retention_ran_out_that_is_read_after_it_is_the_end(end: Wire) -> None:
    """The message seemed to have expired: its times and how often it failed are those of its end. It stays counted as expired."""
    late, in_time = (
        run_steps([*steps, (70_000, [])], SETTINGS, restart=True)[-1].queues[QueueName("aws_sqs", "", "orders")]
        for steps in ([(50_000, [SHORT, *DELIVERED]), (61_000, []), (66_000, [end])], [(61_000, [SHORT, *DELIVERED, end])])
    )
    counted = ("deleted", "dead_lettered", "failed", "processing_ms", "sojourn_ms")
    assert [late.total(name) for name in counted] == [in_time.total(name) for name in counted]
    assert (late.total("expired"), late.total("found_later"), late.losses) == (1, 1, [])


def test_an_end_after_the_retention_ran_out_does_not_disprove_the_expiry() -> None:
    """SQS answers to the deletion of a message that is gone as to any other."""
    steps = [(50_000, [SHORT, *DELIVERED]), (61_000, []), (66_000, [event("deleted", 62_000, message_id="m")])]
    summary = run_steps(steps, SETTINGS, restart=True)[-1].queues[QueueName("aws_sqs", "", "orders")]
    assert [summary.total(name) for name in ("expired", "found_later", "deleted")] == [1, 0, 1]


@pytest.mark.parametrize("type_", ["received", "extended", "released"])
def test_a_sign_of_life_that_is_read_after_the_expiry_disproves_it(type_: str) -> None:
    """As one that is read before it does: the message is tracked again, and no loss is reported."""
    later = event(type_, 60_500, message_id="m")
    *_, before, after, last = run_steps(
        [(50_000, [SHORT, *DELIVERED]), (61_000, []), (66_000, [later]), (120_500, [])], SETTINGS, restart=True
    )
    found = [one.queues[QueueName("aws_sqs", "", "orders")] for one in (before, after, last)]
    assert [len(summary.losses) for summary in found] == [1, 0, 1]
    assert [summary.total("expired") - summary.total("found_later") for summary in found] == [1, 0, 1]


def test_a_reported_expiry_stays() -> None:
    """Another report, of an end before it, makes it no loss, and is counted beside it."""
    expired = event("expired", 55_000, message_id="m", reason="ttl")
    steps = [(56_000, [SHORT, *DELIVERED, expired]), (66_000, [event("deleted", 54_000, message_id="m")])]
    summary = run_steps(steps, SETTINGS, restart=True)[-1].queues[QueueName("aws_sqs", "", "orders")]
    assert [summary.total(name) for name in ("expired", "found_later", "deleted")] == [1, 0, 1]


@pytest.mark.parametrize("at_ms", [55_000, 62_000])
def test_an_expiry_that_is_reported_after_it_seemed_to_be_is_the_same_one(at_ms: int) -> None:
    """It is no duplicate, and counts no second time; when it was, and why, is as reported."""
    expired = event("expired", at_ms, message_id="m", reason="ttl")
    *_, merged = run_steps(
        [(50_000, [SHORT, *DELIVERED]), (61_000, []), (66_000, [expired]), (67_000, [expired]), (70_000, [DELIVERED[1]])],
        SETTINGS,
        restart=True,
    )
    summary = merged.queues[QueueName("aws_sqs", "", "orders")]
    assert [(loss.at - T0, loss.reason) for loss in summary.losses] == [(at_ms, "ttl")]
    assert [summary.total(name) for name in ("expired", "found_later")] == [1, 0]
    assert (merged.events_total["accepted"], merged.events_total["duplicate"]) == (4, 2)
