"""A message that was redriven may still name the queue that it once came from. That makes no dead-letter queue of its new one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest

from streaming.core.reporting.report import QueueSummary
from streaming.core.settings import QueueName
from tests.core.driving import event, run_steps
from tests.judge.driving import SETTINGS, judged

Wire = dict[str, Any]
everywhere = pytest.mark.parametrize("shards", [1, 3])


def got(count: int | None, name: str = "m", at: int = 60_000, queue: str = "retry") -> Wire:
    """Return a receive of a message that names `orders` as the queue it came from."""
    counted = {} if count is None else {"receive_count": count}
    return event("received", at, queue, message_id=name, from_queue="orders", **counted)


def state(queue: str = "retry", **attributes: Any) -> Wire:
    """Return the collector's report on a queue."""
    return event("queue_state", 50_000, queue, attributes={"kind": "standard", **attributes})


def after(events: Sequence[Wire], shards: int, queue: str = "retry", system: str = "aws_sqs") -> QueueSummary:
    """Return what is known of the queue after the events, each in a step of its own that starts from the stored state."""
    steps = [(100_000 + n, [e | {"system": system}]) for n, e in enumerate(events)]
    *_, merged = run_steps([*steps, (200_000, [])], SETTINGS, shards=shards, restart=True)
    summary = merged.queues[QueueName(system, "", queue)]
    assert summary.total("arrived") == len(merged.arrivals)
    return summary


FIRST_RECEIVE = [got(1, "other", 40_000)]
AGAINST = {
    "a first receive of the same message": [got(1, at=40_000)],
    "a first receive of another": FIRST_RECEIVE,
    "a redrive to it": [event("redriven", 40_000, "dead", message_id="a", to_queue="retry", new_message_id="b")],
    "a redrive of an unknown new id": [event("redriven", 40_000, "dead", message_id="a", to_queue="retry")],
    "a redrive task to it": [state("dead", redrive_task={"status": "RUNNING", "to_queue": "retry"})],
    "it has a dead-letter queue": [state(dead_letter_queue="dead")],
    "it is nobody's dead-letter queue": [state(dead_letter_sources=[])],
}


@pytest.mark.simulation
@everywhere
@pytest.mark.parametrize("against", AGAINST.values(), ids=AGAINST)
def test_a_later_receive_of_a_redriven_message_is_no_arrival(against: list[Wire], shards: int) -> None:
    """In any order: neither it nor what is sent there counts as a dead letter."""
    events = [got(2), event("sent", 30_000, "retry", message_id="new"), *against]
    found = {}
    for order in permutations(events):
        summary = after(order, shards)
        assert (summary.dead_letter, summary.total("arrived"), summary.numbers["dead_letters"]) == (False, 0, 0)
        totals = {name: summary.total(name) for name in ("received", "touched", "touched_unsent", "unseen_receives")}
        found[repr(totals)] = summary.numbers["visible"] + summary.numbers["in_flight"]
    assert len(found) == 1


FOR = {
    "another queue names it": [state("orders", dead_letter_queue="retry")],
    "it names its sources": [state(dead_letter_sources=["orders"])],
    "a reported move": [event("dead_lettered", 40_000, message_id="x", to_queue="retry")],
}


@everywhere
@pytest.mark.parametrize("known", FOR.values(), ids=FOR)
def test_a_queue_that_is_known_as_a_dead_letter_queue_stays_one(known: list[Wire], shards: int) -> None:
    """One may redrive to it, and it may have a dead-letter queue itself."""
    events = [*known, got(2), *FIRST_RECEIVE, state("dead", redrive_task={"status": "RUNNING", "to_queue": "retry"})]
    for order in (events, events[::-1]):
        assert after(order, shards).dead_letter


@everywhere
@pytest.mark.parametrize(("system", "count"), [("aws_sqs", 2), ("aws_sqs", None), ("rabbitmq", 1)])
def test_a_dead_letter_that_names_its_source_shows_a_dead_letter_queue(system: str, count: int | None, shards: int) -> None:
    """On SQS its receives go on counting, from two at least. Elsewhere, or if none are reported, the count tells nothing."""
    summary = after([got(count)], shards, system=system)
    assert (summary.dead_letter, summary.total("arrived")) == (True, 1)


@everywhere
@pytest.mark.parametrize("known", FOR.values(), ids=FOR)
def test_in_a_known_dead_letter_queue_a_first_receive_shows_an_arrival_too(known: list[Wire], shards: int) -> None:
    """A sender may count the receives of each queue by itself."""
    assert after([*known, got(1)], shards).total("arrived") == after(known, shards).total("arrived") + 1


@everywhere
def test_a_message_redriven_to_its_source_tells_nothing(shards: int) -> None:
    """It names the queue that it is received from."""
    for count in (1, 2):
        assert not after([got(count, queue="orders")], shards, "orders").dead_letter


@pytest.mark.simulation
def test_a_stalled_queue_that_messages_were_redriven_to_is_announced() -> None:
    """And no ordinary message there is announced as a dead letter, or as one that expires."""
    queue = event("queue_state", 0, "retry", attributes={"kind": "standard", "retention_s": 3_600})
    redriven = [got(1, at=10_000), got(2, at=50_000), event("deleted", 51_000, "retry", message_id="m")]
    sent = [event("sent", 60_000 + n, "retry", message_id=f"m{n}") for n in range(9)]
    found = judged([(t, [queue, *redriven, *sent] if t == 60_000 else []) for t in range(0, 3_000_000, 60_000)])
    seen = {signal for _, signal, status, _ in found.changes_seen() if status == "firing"}
    assert "QueueStalled" in seen
    assert not seen & {"DeadLetterArrived", "DeadLetterExpiring"}
