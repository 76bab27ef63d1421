"""How far event time has advanced decides which events are late."""

from __future__ import annotations

import pytest

from streaming.core.settings import QueueName
from tests.core.driving import T0, event, run_steps

NAME = QueueName("aws_sqs", "", "orders")
SPOOLED_MS = 1_200_000


@pytest.mark.parametrize("shards", [1, 3])
def test_counts_do_not_make_the_events_of_a_slow_topic_late(shards: int) -> None:
    """In every step a collector reports the present, and clients what happened twenty minutes ago."""
    steps = [
        (
            at_ms,
            [
                event("queue_state", at_ms, attributes={"visible": 1_000, "in_flight": 0}),
                *(event("sent", at_ms - SPOOLED_MS, message_id=f"m-{at_ms}-{n}") for n in range(30)),
            ],
        )
        for at_ms in range(0, 60_000, 10_000)
    ]
    merged = run_steps(steps, shards=shards)[-1]
    assert merged.events_total["late"] == 0
    assert merged.queues[NAME].numbers["visible"] == 180


def test_counts_alone_advance_event_time() -> None:
    """Otherwise nothing would ever be forgotten where only they are reported."""
    counts = [(at_ms, [event("queue_state", at_ms, attributes={"visible": 1})]) for at_ms in (0, 10_000)]
    assert [merged.high_water for merged in run_steps(counts)] == [T0, T0 + 10_000]
