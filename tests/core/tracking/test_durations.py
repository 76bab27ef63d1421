"""Message durations, compared with one message at a time: any order within the lateness, duplicates, restarts, shards."""

from __future__ import annotations

import bisect
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.core.maintenance.reshard import reshard
from streaming.core.reporting.merge import Merged
from streaming.core.settings import QueueName, Settings
from streaming.core.state.duration_buckets import DURATION_BUCKETS_S, DURATIONS, NATIVE_ZERO
from streaming.core.state.queues import TOTALS
from streaming.core.state.state import ShardState
from streaming.core.state_reports import report_of
from streaming.judge.snapshot import Duration, NativeBuckets
from streaming.judge.views.durations import durations
from tests.core.driving import event, run_steps
from tests.core.maintenance.test_reshard import go_on

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


def native_bucket(took_ms: int) -> int:
    """Return the native bucket of a duration by its definition: the lowest k with seconds ≤ 2^(k/4), in integers."""
    if took_ms == 0:
        return NATIVE_ZERO
    index = NATIVE_ZERO
    while took_ms**4 * 2 ** max(-index, 0) > 1_000**4 * 2 ** max(index, 0):
        index += 1
    return index


def expected(made: list[Message]) -> dict[str, Duration]:
    """Return the distributions by their definitions."""
    took: dict[str, list[int]] = {name: [] for name in DURATIONS}
    for _, receives, work, reported in made:
        took["processing"].append(work)
        if reported:
            took["wait"].append(receives[0])
            took["sojourn"].append(receives[-1] + work)
    return {name: distribution(found) for name, found in took.items() if found}


def distribution(took_ms: list[int]) -> Duration:
    """Return the distribution of some durations."""
    classic = Counter(bisect.bisect_left(DURATION_BUCKETS_S, ms / 1000) for ms in took_ms)
    native = Counter(map(native_bucket, took_ms))
    counts = tuple(classic[bucket] for bucket in range(len(DURATION_BUCKETS_S) + 1))
    buckets = NativeBuckets.of(np.array(sorted(native)), np.array([native[index] for index in sorted(native)]))
    return Duration(counts, sum(took_ms) / 1000, buckets, sum(took_ms) / 1000)


def found_in(report: Merged) -> dict[str, Duration]:
    """Return the distributions that are published of the queue."""
    summary = report.queues[ORDERS]
    return durations(summary.durations, dict(zip(TOTALS, summary.totals, strict=True)))


@pytest.mark.simulation
@given(st.data())
@settings(max_examples=60)
def test_durations_are_those_of_the_messages(data: st.DataObject) -> None:
    """However events are split into steps, repeated and spread over shards, a message counts once, when its times are known.

    The first receive counts however few attempts are kept.
    """
    tracking = Settings(attempts_per_message=data.draw(st.sampled_from([1, 2, 32])))
    made = data.draw(messages())
    reported = [one for number, message in enumerate(made) for one in events_of(number, message)]
    by_time = sorted(reported, key=lambda one: one["at"])
    again = data.draw(st.lists(st.sampled_from(reported), max_size=4))
    cut = data.draw(st.integers(0, len(by_time)))
    steps = [(300_000, by_time[:cut]), (301_000, [*by_time[cut:], *again]), (302_000, again)]
    shards, restart = data.draw(st.sampled_from([1, 2, 3, 5])), data.draw(st.booleans())
    states: list[ShardState] = []
    report = run_steps(steps, tracking, shards=shards, restart=restart, states=states)[-1]
    assert found_in(report) == expected(made)
    there = reshard(states, data.draw(st.sampled_from([1, 2, 3, 5])), tracking)
    assert found_in(report_of(there, tracking)) == expected(made)


def test_a_batch_that_runs_again_counts_its_messages_once() -> None:
    """After a crash it starts from the state of the batch before, whose counts are not changed by the first attempt."""
    before, again = (1_000, [500], 70, True), (2_000, [1_000, 1_200], 140, True)
    states: list[ShardState] = []
    run_steps([(60_000, events_of(1, before))], states=states)
    packed = states[0].pack()
    for _ in range(2):
        report = go_on([ShardState.unpack(packed)], 61_000, events_of(2, again))
        assert found_in(report) == expected([before, again])


def test_a_send_that_is_reported_late_is_counted_then() -> None:
    """Producers and consumers report separately: the deletion may arrive first."""
    sent, *rest = events_of(1, (1_000, [2_000], 3_000, True))
    first, second = run_steps([(60_000, rest), (61_000, [sent])])
    assert first.queues[ORDERS].total("sojourn_ms") == 0
    assert second.queues[ORDERS].total("sojourn_ms") == 5_000
    assert second.queues[ORDERS].total("wait_ms") == 2_000
    assert second.queues[ORDERS].total("processing_ms") == 3_000


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 1, 0), (1, 2, 0)])
def test_the_wait_is_counted_whichever_report_comes_last(order: tuple[int, ...]) -> None:
    """Each in a step of its own, as from several partitions."""
    about = {"message_id": "m"}
    sent, received = event("sent", 0, **about), event("received", 30_000, receive_count=1, **about)
    life = [sent, received, event("deleted", 40_000, **about)]
    *_, merged = run_steps([(41_000 + 1_000 * n, [life[i]]) for n, i in enumerate(order)], restart=True)
    summary = merged.queues[ORDERS]
    times = {name: summary.total(name) for name in ("wait_ms", "processing_ms", "sojourn_ms", "processed")}
    assert times == {"wait_ms": 30_000, "processing_ms": 10_000, "sojourn_ms": 40_000, "processed": 1}
