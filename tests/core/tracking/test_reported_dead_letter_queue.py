"""A collector may know a dead-letter queue by its name: nothing need have moved there since it listens."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import QueueName
from tests.core.driving import event, run_steps
from tests.judge.driving import SETTINGS, judged

Wire = dict[str, Any]


def parked(at_ms: int, kind: str = "queue_state", **fields: Any) -> Wire:
    """Build an event of the queue `parked` of a broker."""
    return event(kind, at_ms, "parked", **fields) | {"system": "activemq"}


def counted(at_ms: int, is_dead: object) -> Wire:
    """Report nine messages, no consumers, and what the collector says of the queue."""
    attributes = {"kind": "standard", "visible": 9, "in_flight": 0, "consumers": 0, "is_dead_letter_queue": is_dead}
    return parked(at_ms, attributes=attributes)


@pytest.mark.parametrize(("is_dead", "expected"), [(True, True), (False, False), (None, False), ("true", False)])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_reported_dead_letter_queue_is_one(is_dead: object, expected: bool, shards: int) -> None:
    """In every shard: what is sent there arrives as a dead letter."""
    steps = [(0, [counted(0, is_dead)]), (2_000, [parked(1_000, "sent", message_id="m")])]
    *_, merged = run_steps(steps, SETTINGS, shards=shards, restart=True)
    queue = merged.queues[QueueName("activemq", "", "parked")]
    assert (queue.dead_letter, len(merged.arrivals)) == (expected, expected)


@pytest.mark.simulation
@pytest.mark.parametrize("is_dead", [True, False])
def test_what_was_in_it_before_is_no_stalled_backlog(is_dead: bool) -> None:
    """Nobody is expected to consume it."""
    found = judged([(n * 10_000, [counted(n * 10_000, is_dead)]) for n in range(60)])
    assert bool(found.firing("QueueStalled")) is not is_dead
    assert (found.snapshots[-1].queues[0].status == "ok") is is_dead
