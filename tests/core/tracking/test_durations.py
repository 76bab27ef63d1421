"""Message durations, compared with one message at a time: any order within the lateness, duplicates, restarts, shards."""

from __future__ import annotations

import bisect
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.core.settings import QueueName
from streaming.core.tracking.durations import DURATION_BUCKETS_S, DURATIONS
from tests.core.driving import event, run_steps

ORDERS = QueueName("aws_sqs", "", "orders")

Message = tuple[int, list[int], int, bool]
"""When it was sent; received (ascending, ms after the send); deleted (after the last receive); whether its send is reported."""


@st.composite
def messages(draw: st.DrawFn) -> list[Message]:
    """Return some messages, each received once or a few times."""
    made = []
    for _ in range(draw(st.integers(1, 6))):
        sent = draw(st.integers(0, 60_000))
        receives = sorted(draw(st.lists(st.integers(0, 120_000), min_size=1, max_size=4, unique=True)))
        made.append((sent, receives, draw(st.integers(0, 90_000)), draw(st.booleans())))
    return made


def events_of(number: int, message: Message) -> list[dict[str, Any]]:
    """Return the reported events of one message."""
    sent, receives, work, reported = message
    named = {"message_id": f"{number:08x}-0000-4000-8000-000000000000"}
    events = [event("sent", sent, **named)] if reported else []
    events += [event("received", sent + at, receive_count=i + 1, **named) for i, at in enumerate(receives)]
    return [*events, event("deleted", sent + receives[-1] + work, **named)]


def expected(made: list[Message]) -> tuple[dict[int, int], dict[str, int]]:
    """Return buckets and sums by their definitions."""
    counts: Counter[int] = Counter()
    sums = dict.fromkeys(DURATIONS, 0)
    for _, receives, work, reported in made:
        took = {"processing": work}
        if reported:
            took |= {"wait": receives[0], "sojourn": receives[-1] + work}
        for name, ms in took.items():
            counts[DURATIONS.index(name) << 8 | bisect.bisect_left(DURATION_BUCKETS_S, ms / 1000)] += 1
            sums[name] += ms
    return dict(counts), sums


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_durations_are_those_of_the_messages(data: st.DataObject) -> None:
    """However events are split into steps, repeated and spread over shards, a message counts once, when its times are known."""
    made = data.draw(messages())
    reported = [one for number, message in enumerate(made) for one in events_of(number, message)]
    by_time = sorted(reported, key=lambda one: one["at"])
    again = data.draw(st.lists(st.sampled_from(reported), max_size=4))
    cut = data.draw(st.integers(0, len(by_time)))
    steps = [(300_000, by_time[:cut]), (301_000, [*by_time[cut:], *again]), (302_000, again)]
    shards, restart = data.draw(st.sampled_from([1, 3])), data.draw(st.booleans())
    facts = run_steps(steps, shards=shards, restart=restart)[-1].queues[ORDERS]
    counts, sums = expected(made)
    assert facts.durations == counts
    assert {name: facts.total(f"{name}_ms") for name in DURATIONS} == sums


def test_a_send_that_is_reported_late_is_counted_then() -> None:
    """Producers and consumers report separately: the deletion may arrive first."""
    sent, *rest = events_of(1, (1_000, [2_000], 3_000, True))
    first, second = run_steps([(60_000, rest), (61_000, [sent])])
    assert first.queues[ORDERS].total("sojourn_ms") == 0
    assert second.queues[ORDERS].total("sojourn_ms") == 5_000
    assert second.queues[ORDERS].total("wait_ms") == 2_000
    assert second.queues[ORDERS].total("processing_ms") == 3_000
