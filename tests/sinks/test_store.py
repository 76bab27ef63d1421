"""The store keeps the latest snapshot, a bounded history, and the signals that were resolved last."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from sinks.history import History
from sinks.store import SnapshotStore
from streaming.core.settings import QueueName
from streaming.judge.snapshot import QueueView
from tests.sinks.fakes import NOW_MS, many_queues, queue_view, shop_snapshot

STEP_MS = 10_000


def test_the_latest_snapshot_replaces_the_one_before() -> None:
    """The version increases with each snapshot, so a reader can tell that it is new."""
    store = SnapshotStore()
    assert store.latest is None
    first, second = shop_snapshot(NOW_MS), shop_snapshot(NOW_MS + 1_000)
    store.publish(first)
    store.publish(second)
    assert store.latest is not None
    assert (store.latest.version, store.latest.snapshot) == (2, second)


def test_findings_come_worst_first_and_then_longest_firing() -> None:
    """Every list of signals uses this order."""
    store = SnapshotStore()
    store.publish(shop_snapshot())
    assert store.latest is not None
    order = [(f.severity, f.since_ms) for f in store.latest.firing]
    assert order == sorted(order, key=lambda item: (item[0] != "critical", item[1]))
    dead_letters = store.latest.findings[QueueName("aws_sqs", "123456789012/eu-west-1", "orders-dlq")]
    assert [f.severity for f in dead_letters] == ["critical", "warning"]


def test_the_history_keeps_the_peak_of_each_step() -> None:
    """A peak within a step must not vanish from the sparkline."""
    history = History(step_s=10, points=4)
    for second, visible in ((0, 3), (4, 90), (9, 5), (10, 6), (31, 7)):
        at_ms = NOW_MS + second * 1000
        history.record(at_ms, [queue_view("q", visible=visible, oldest_ms={"all": at_ms - visible * 100})])
    trend = history.of(QueueName("aws_sqs", "123456789012/eu-west-1", "q"))
    assert trend is not None
    assert trend.backlog == (90, 6, None, 7), "the step nothing was published in is a gap, not a zero"
    assert trend.oldest_age_s == pytest.approx((9.0, 0.6, None, 0.7))
    assert (trend.step_s, trend.end_ms) == (10, NOW_MS + 30_000)


def test_an_empty_queue_has_age_zero_and_an_unknown_one_has_none() -> None:
    """An unknown depth is not zero, and where nothing is visible, messages may be in flight or delayed."""
    assert _recorded(queue_view("q")) == ((0,), (0,))
    assert _recorded(queue_view("q", delayed=None)) == ((0,), (0,)), "not counted by its broker, or as visible"
    assert _recorded(queue_view("q", visible=None)) == ((None,), (None,))
    for held in ({"in_flight": 3}, {"in_flight": None}, {"delayed": 3}):
        assert _recorded(queue_view("q", **held)) == ((0,), (None,)), held


@pytest.mark.parametrize("in_order", [1, -1])
def test_within_a_step_an_unknown_age_wins_over_an_empty_queue_and_a_known_one_over_both(in_order: int) -> None:
    """A queue that was empty for a part of the step had an age of which nothing is known in the other."""
    empty, unknown = queue_view("q"), queue_view("q", in_flight=3)
    known = queue_view("q", in_flight=3, oldest_ms={"all": NOW_MS - 60_000})
    for views, ages in (((empty, unknown), (None,)), ((unknown, known), (60,)), ((empty, known), (60,))):
        assert _recorded(*views[::in_order])[1] == pytest.approx(ages)


def _recorded(*views: QueueView) -> tuple[tuple[float | None, ...], tuple[float | None, ...]]:
    """Return the backlog and age of a step in which these views of a queue were recorded one after the other."""
    history = History(points=1)
    for view in views:
        history.record(NOW_MS, [view])
    trend = history.of(views[0].name)
    assert trend is not None
    return trend.backlog, trend.oldest_age_s


def test_a_queue_that_vanishes_and_returns_starts_a_new_history() -> None:
    """A queue's row may be used by other queues in between."""
    history = History(step_s=10, points=3)
    history.record(NOW_MS, [queue_view("a", visible=1), queue_view("b", visible=2)])
    history.record(NOW_MS + STEP_MS, [queue_view("c", visible=3), queue_view("b", visible=2)])
    assert history.of(queue_view("a").name) is None
    history.record(NOW_MS + 2 * STEP_MS, [queue_view("a", visible=9)])
    trend = history.of(queue_view("a").name)
    assert trend is not None
    assert trend.backlog == (None, None, 9)


def test_a_clock_that_steps_back_changes_nothing() -> None:
    """A replayed batch carries an earlier time, which is ignored."""
    history = History(step_s=10, points=2)
    history.record(NOW_MS, [queue_view("a", visible=5)])
    history.record(NOW_MS - STEP_MS, [queue_view("a", visible=500)])
    trend = history.of(queue_view("a").name)
    assert trend is not None
    assert trend.backlog == (None, 5)


def test_a_clock_that_was_ahead_does_not_freeze_the_history() -> None:
    """When the service's time is taken back, the history starts again: it would stand still until the clock has caught up."""
    history = History(step_s=10, points=3)
    history.record(NOW_MS + 86_400_000, [queue_view("a", visible=5)])
    history.record(NOW_MS, [queue_view("a", visible=6)])
    history.record(NOW_MS + STEP_MS, [queue_view("a", visible=7)])
    trend = history.of(queue_view("a").name)
    assert trend is not None
    assert trend.end_ms == (NOW_MS + STEP_MS) // STEP_MS * STEP_MS
    assert trend.backlog == (None, 6, 7)


def test_memory_stays_bounded_when_queues_come_and_go() -> None:
    """A thousand short-lived queues, ten at a time, need fewer than 40 rows."""
    history = History(points=5)
    for i in range(100):
        history.record(NOW_MS + i * STEP_MS, [queue_view(f"q{i}-{j}", visible=j) for j in range(10)])
    values: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = history._values
    assert len(values) < 40


def test_publishing_costs_a_few_calls_per_queue() -> None:
    """`publish` runs in the job's thread between two batches, so it neither renders nor sorts."""
    store = SnapshotStore()
    snapshot = many_queues(1_000)
    store.publish(snapshot)
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        store.publish(replace(snapshot, at_ms=snapshot.at_ms + 1_000))
    finally:
        sys.setprofile(None)
    assert calls < 15 * len(snapshot.queues), calls


def test_resolved_signals_are_remembered_newest_first_and_bounded() -> None:
    """What fired a minute ago is worth showing; older signals are in the signal log."""
    store = SnapshotStore(resolved_kept=2)
    snapshot = shop_snapshot()
    firing = snapshot.firing
    store.publish(snapshot)
    for i in range(1, 4):
        store.publish(replace(snapshot, at_ms=NOW_MS + i * 1000, firing=firing[i:]))
    assert [(r.finding, r.at_ms) for r in store.resolved()] == [
        (firing[2], NOW_MS + 3_000),
        (firing[1], NOW_MS + 2_000),
    ]


def test_values_derived_from_a_snapshot_are_computed_once() -> None:
    """Turning pages does not sort again; a new snapshot does."""
    store = SnapshotStore()
    asked: list[int] = []

    def order() -> int:
        asked.append(len(asked))
        return len(asked)

    for answer in (1, 2):
        store.publish(many_queues(3))
        published = store.latest
        assert published is not None
        assert [published.once("order", order) for _ in range(3)] == [answer] * 3
