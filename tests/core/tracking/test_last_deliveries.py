"""Cloudflare moves or deletes a message that is given back at its last delivery, and reports that to nobody."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.reporting.merge import Merged
from streaming.core.settings import QueueName
from streaming.judge.findings.signals import SignalName
from tests.core.driving import T0, event, run_steps
from tests.judge.driving import judged

KNOWN = {"max_receive_count": 4}
TO_DLQ = KNOWN | {"dead_letter_queue": "dead"}
NO_DLQ = KNOWN | {"dead_letter_queue": ""}
MINUTE = 60_000
LEASE_MS = 15 * MINUTE
Wire = dict[str, Any]


def of_cloudflare(kind: str, at_ms: int, queue: str = "orders", **fields: Any) -> Wire:
    """Build an event of a Worker."""
    return event(kind, at_ms, queue, **fields) | {"system": "cloudflare_queues"}


def delivered(attributes: dict[str, Any], counts: tuple[int, ...] = (1, 2, 3, 4), *, last_is_reported: bool = True) -> list[Wire]:
    """A message that fails at each delivery, five seconds apart."""
    events = [of_cloudflare("queue_state", 0, attributes=attributes)] if attributes else []
    for count in counts:
        at = 5_000 * count
        about: Wire = {"message_id": "bad", "receive_count": count, "consumer": "worker"}
        events.append(of_cloudflare("received", at, sent_at=T0, invisible_until=T0 + at + LEASE_MS, **about))
        if last_is_reported or count < counts[-1]:
            events.append(of_cloudflare("released", at + 500, **about))
    return events


def found(merged: Merged, queue: str = "orders") -> dict[str, int]:
    """Return what is tracked and how messages ended."""
    summary = merged.queues[QueueName("cloudflare_queues", "", queue)]
    numbers = {name: summary.numbers[name] for name in ("visible", "in_flight", "dead_letters")}
    counted = numbers | {name: summary.total(name) for name in ("dead_lettered", "dropped", "reconciled")}
    return {name: count for name, count in counted.items() if count}


@pytest.mark.parametrize(
    ("attributes", "at_once", "after_two_minutes"),
    [
        (TO_DLQ, {"dead_lettered": 1}, {"dead_lettered": 1}),
        (NO_DLQ, {"dropped": 1}, {"dropped": 1}),
        (KNOWN | {"dead_letter_queue": None}, {"dropped": 1}, {"dropped": 1}),
        (KNOWN | {"has_dead_letter_queue": False}, {"dropped": 1}, {"dropped": 1}),
        # There is one, of which only the name is not known.
        (KNOWN | {"dead_letter_queue": None, "has_dead_letter_queue": True}, {"visible": 1}, {"reconciled": 1}),
        # Where it went is not known.
        (KNOWN, {"visible": 1}, {"reconciled": 1}),
        # Cloudflare's default is three retries.
        ({}, {"visible": 1}, {"reconciled": 1}),
        # There are more deliveries to come.
        ({"max_receive_count": 9}, {"visible": 1}, {"visible": 1}),
        # It was delivered more often than that: the limit must be another one.
        ({"max_receive_count": 3}, {"visible": 1}, {"visible": 1}),
    ],
    ids=[
        "dead-letter queue",
        "none",
        "null",
        "says so",
        "no name",
        "one or none",
        "limit unknown",
        "retries left",
        "other limit",
    ],
)
def test_a_message_given_back_at_its_last_delivery_is_gone(
    attributes: dict[str, Any], at_once: dict[str, int], after_two_minutes: dict[str, int]
) -> None:
    """Whatever the telemetry says, it does not wait."""
    steps = run_steps([(21_000, delivered(attributes)), (2 * MINUTE + 21_000, [])])
    assert [found(merged) for merged in steps] == [at_once, after_two_minutes]


def test_it_arrives_in_the_dead_letter_queue() -> None:
    """With its time of sending, from which its retention runs."""
    (merged,) = run_steps([(21_000, delivered(TO_DLQ))])
    assert found(merged, "dead") == {"visible": 1, "dead_letters": 1}
    assert [(a.message_id, a.at - T0, a.known_by) for a in merged.arrivals] == [("bad", 20_500, "inferred")]


@pytest.mark.parametrize("attributes", [TO_DLQ, NO_DLQ, {}], ids=["dead-letter queue", "none", "limit unknown"])
def test_a_last_delivery_that_nobody_finishes_ends_with_its_window(attributes: dict[str, Any]) -> None:
    """The Worker ended with no report: the message may have been acknowledged, so neither a move nor a loss is claimed."""
    events = delivered(attributes, last_is_reported=False)
    before, after = run_steps([(2 * MINUTE, events), (LEASE_MS + 2 * MINUTE, [])])
    assert (found(before), found(after)) == ({"in_flight": 1}, {"reconciled": 1})


def test_a_later_delivery_shows_that_it_was_there() -> None:
    """The queue gives more deliveries than Cloudflare's default."""
    again = delivered({}, counts=(5,), last_is_reported=False)
    *_, merged = run_steps([(21_000, delivered({})), (2 * MINUTE, []), (3 * MINUTE, again)])
    assert found(merged)["in_flight"] == 1


def test_other_systems_keep_it_until_the_next_receive() -> None:
    """SQS moves a message when it would be received once too often."""
    events = [one | {"system": "aws_sqs"} for one in delivered(TO_DLQ)]
    (merged,) = run_steps([(2 * MINUTE, events)])
    assert merged.queues[QueueName("aws_sqs", "", "orders")].numbers["visible"] == 1


def firing(attributes: dict[str, Any], signal: SignalName) -> list[str]:
    """Return what a signal says after the traffic has ended for ten minutes."""
    steps = [(21_000, delivered(attributes))] + [(n * MINUTE, []) for n in range(1, 11)]
    return [str(c.finding.evidence["summary"]) for c in judged(steps).changes if c.finding.key.signal == signal]


@pytest.mark.parametrize("attributes", [TO_DLQ, NO_DLQ, KNOWN, {}])
def test_a_queue_is_not_stalled_by_a_message_that_is_gone(attributes: dict[str, Any]) -> None:
    """After the last message of the day, nothing is settled for long."""
    assert not firing(attributes, "QueueStalled")


def test_the_move_and_the_loss_are_announced() -> None:
    """In words that are true of Cloudflare."""
    arrived, lost = firing(TO_DLQ, "DeadLetterArrived")[0], firing(NO_DLQ, "MessageDropped")[0]
    assert arrived == "Message bad arrived in dead from orders (inferred: it was given back at its last delivery)."
    why = "given back at its last delivery, and there is no dead-letter queue"
    assert lost.startswith(f"Message bad was dropped unprocessed ({why}) after 4 receives")


def dead_lettered(attributes: dict[str, Any], deliveries: int, *, reported: bool) -> list[Wire]:
    """A message fails at each of its four deliveries, and then in the dead-letter queue, where its deliveries count anew."""
    events = delivered(TO_DLQ)
    if reported:
        move: Wire = {"message_id": "bad", "receive_count": 4, "to_queue": "dead"}
        events[-1] = of_cloudflare("dead_lettered", 20_500, **move)
    events.append(of_cloudflare("queue_state", 0, "dead", attributes=attributes))
    for count in range(1, deliveries + 1):
        at = 30_000 + 5_000 * count
        about: Wire = {"message_id": "bad", "receive_count": count, "consumer": "worker"}
        events.append(of_cloudflare("received", at, "dead", sent_at=T0, invisible_until=T0 + at + LEASE_MS, **about))
        events.append(of_cloudflare("released", at + 500, "dead", **about))
    return events


@pytest.mark.parametrize("reported", [True, False], ids=["reported", "inferred"])
@pytest.mark.parametrize(
    ("attributes", "deliveries", "expected"),
    [
        ({"max_receive_count": 2, "dead_letter_queue": ""}, 1, {"visible": 1, "dead_letters": 1}),
        ({"max_receive_count": 2, "dead_letter_queue": ""}, 2, {"dropped": 1}),
        ({"max_receive_count": 5, "dead_letter_queue": ""}, 4, {"visible": 1, "dead_letters": 1}),
        ({"max_receive_count": 2, "dead_letter_queue": "parked"}, 2, {"dead_lettered": 1}),
        ({}, 3, {"visible": 1, "dead_letters": 1}),
        ({}, 4, {"reconciled": 1}),
    ],
)
def test_a_dead_letter_that_its_own_consumer_fails_to_handle(
    attributes: dict[str, Any], deliveries: int, expected: dict[str, int], reported: bool
) -> None:
    """A dead-letter queue with a consumer loses messages like any other."""
    *_, merged = run_steps([(60_000, dead_lettered(attributes, deliveries, reported=reported)), (3 * MINUTE, [])])
    assert found(merged, "dead") == expected


def test_a_dead_letter_of_another_system_keeps_its_count() -> None:
    """SQS goes on counting in the dead-letter queue."""
    events = [one | {"system": "aws_sqs"} for one in dead_lettered({}, 4, reported=True)]
    *_, merged = run_steps([(60_000, events), (3 * MINUTE, [])])
    assert merged.queues[QueueName("aws_sqs", "", "dead")].numbers["dead_letters"] == 1


@pytest.mark.parametrize(
    ("attributes", "after_minutes", "expected"),
    [
        ({}, 3, {"visible": 1}),
        # The queue may allow one retry.
        ({}, 5, {"reconciled": 1}),
        (KNOWN, 5, {"visible": 1}),
    ],
    ids=["lately", "limit unknown", "retries left"],
)
def test_a_message_given_back_and_not_delivered_again(
    attributes: dict[str, Any], after_minutes: int, expected: dict[str, int]
) -> None:
    """Where the limit is not known, it may have been the last delivery: it does not wait for days."""
    *_, merged = run_steps([(21_000, delivered(attributes, counts=(1, 2))), (after_minutes * MINUTE, [])])
    assert found(merged) == expected


def test_a_message_given_back_for_long_is_known_again_when_it_is_delivered() -> None:
    """Its queue has a delay for retries that the Worker does not know."""
    again = delivered({}, counts=(3,), last_is_reported=False)
    *_, merged = run_steps(
        [
            (21_000, delivered({}, counts=(1, 2))),
            (5 * MINUTE, []),
            (6 * MINUTE, [one | {"at": T0 + 6 * MINUTE, "invisible_until": T0 + 6 * MINUTE + LEASE_MS} for one in again]),
        ]
    )
    assert found(merged) == {"in_flight": 1, "reconciled": 1}
