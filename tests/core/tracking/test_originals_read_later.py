"""A receive in a dead-letter queue ends the original, also where the events of the source queue are read after it."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from streaming.core.settings import QueueName
from tests.core.driving import T0, event, run_steps
from tests.judge.driving import SETTINGS

Wire = dict[str, Any]
SOURCE = QueueName("aws_sqs", "", "orders")
STATE = event("queue_state", 0, attributes={"dead_letter_queue": "dead", "visibility_timeout_s": 30, "retention_s": 345_600})
FIRST = event("received", 10_000, message_id="m", receive_count=1, sent_at=T0)
THERE = event("received", 50_000, "dead", message_id="m", receive_count=2, sent_at=T0)
GONE = (0, 0, 1)
"""Nothing visible, nothing in flight, one dead-lettered."""


def source(steps: list[list[Wire]], shards: int = 1, last_ms: int = 500_000) -> tuple[int, int, int]:
    """Return what is visible, in flight and dead-lettered in the source queue after these steps."""
    in_time = [*((60_000, step) for step in steps), (last_ms, [])]
    summary = run_steps(in_time, SETTINGS, shards=shards, restart=True, fewest_tombstones=1)[-1].queues[SOURCE]
    return summary.numbers["visible"], summary.numbers["in_flight"], summary.total("dead_lettered")


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_the_original_ends_in_whatever_order_the_events_are_read(order: tuple[int, ...], shards: int) -> None:
    """The attributes that name the dead-letter queue, the receive in the source queue and the one in the dead-letter queue."""
    parts = [STATE, FIRST, THERE]
    steps = [[parts[i]] for i in order]
    assert source(steps, shards) == GONE
    assert source([step for one in steps for step in (one, [])], shards) == GONE
    assert source([[parts[i] for i in order]], shards) == GONE


def test_the_original_ends_also_if_the_dead_letter_is_settled_or_redriven_before_it_is_read() -> None:
    """Nothing follows that would show again where it was."""
    deleted = event("deleted", 51_000, "dead", message_id="m")
    redriven = event("redriven", 51_000, "dead", message_id="m", to_queue="orders", new_message_id="m2")
    assert source([[STATE], [THERE], [deleted], [FIRST]]) == GONE
    assert source([[STATE], [THERE], [redriven], [FIRST]]) == (1, 0, 1)


@pytest.mark.parametrize("later", [[[FIRST], []], [[], [FIRST]], [[FIRST]]], ids=["before", "after", "at once"])
def test_a_message_that_came_back_under_its_own_id_stays(later: list[list[Wire]]) -> None:
    """It was redriven before any event of its first life is read."""
    redriven = event("redriven", 55_000, "dead", message_id="m", to_queue="orders", new_message_id="m")
    before, *after = later
    assert source([[STATE], [THERE], [*before, redriven], *after])[:2] == (1, 0)


def test_a_delivery_long_after_shows_that_it_was_not_moved() -> None:
    """No clocks differ that much."""
    late = event("received", 110_001, message_id="m", receive_count=3)
    assert source([[STATE], [THERE], [late]]) == (1, 0, 0)


def test_what_was_sent_to_the_dead_letter_queue_is_another_message() -> None:
    """It has no original."""
    sent = event("sent", 40_000, "dead", message_id="m")
    assert source([[STATE], [sent, THERE], [FIRST]]) == (1, 0, 0)


def test_a_queue_that_is_named_as_a_source_later_is_one() -> None:
    """Its dead-letter queue was known from another source queue, and nothing of its own is read any more."""
    other = event("queue_state", 0, "others", attributes={"dead_letter_queue": "dead"})
    assert source([[other], [THERE], [FIRST], [STATE]]) == GONE
