"""Queues that are shown as one: sums, the worst, who is named, and what stays with each queue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streaming.config.model import Config, to_settings
from streaming.core.settings import FoldRule, QueueName, Settings
from streaming.judge.metrics import samples
from streaming.judge.snapshot import QueueView, Snapshot
from streaming.judge.views.aggregated_queues import aggregate_views
from tests.core.driving import T0, event
from tests.judge.driving import judged
from tests.sinks.fakes import queue_view

ROW = QueueName("aws_sqs", "", "orders-*")
FOLDING = Settings(now_is_event_time=True, folds=(FoldRule("orders-*", "aws_sqs"),))


def sent(queue: str, at: int, *ids: str, **fields: Any) -> list[dict[str, Any]]:
    """Messages that wait."""
    return [event("sent", at, queue, message_id=name, sent_at=T0 + at, **fields) for name in ids]


def settled(queue: str, at: int, name: str) -> list[dict[str, Any]]:
    """A message that came and went."""
    return [
        *sent(queue, at, name),
        event("received", at + 10, queue, message_id=name, receive_count=1),
        event("deleted", at + 20, queue, message_id=name),
    ]


def value(snapshot: Snapshot, name: str, queue: str = ROW.queue, **labels: str) -> float | None:
    """One sample of a queue."""
    wanted = {"queue": queue, **labels}.items()
    return next((s.value for s in samples(snapshot, snapshot.at_ms) if s.name == name and wanted <= s.labels.items()), None)


def test_depths_are_summed_the_age_is_the_oldest_and_the_worst_is_named() -> None:
    """Three tenants: one row."""
    events = [*sent("orders-a", 0, "a1"), *sent("orders-b", 5_000, "b1", "b2"), *settled("orders-c", 6_000, "c1")]
    said = judged([(7_000, events)], FOLDING).snapshots[-1]
    (row,) = said.aggregated_queues
    assert (row.name, row.visible, row.tracked) == (ROW, 3, 3)
    assert row.oldest_ms["all"] == T0
    assert [name.queue for name in row.members] == ["orders-a", "orders-b", "orders-c"]
    assert row.worst_member == ROW.sibling("orders-a")
    assert value(said, "queuewatch_queue_info", worst_queue="orders-a") == 1
    assert value(said, "queuewatch_messages_sent_total") == 4
    assert value(said, "queuewatch_sojourn_seconds_count") == 1


def test_there_is_one_set_of_series_however_many_queues_there_are() -> None:
    """And the others have theirs."""

    def series(tenants: int) -> list[str]:
        events = [e for n in range(tenants) for e in settled(f"orders-{n}", n, f"m{n}")]
        said = judged([(1_000, [*events, *settled("mail", 0, "x")])], FOLDING).snapshots[-1]
        queues = {s.labels["queue"] for s in samples(said, said.at_ms) if "queue" in s.labels}
        assert queues == {"orders-*", "mail"}
        return [s.name for s in samples(said, said.at_ms)]

    assert len(series(40)) == len(series(1))


def test_signals_stay_with_their_queue() -> None:
    """A fold is about what is shown: whoever is paged must know whose queue it is."""
    about: dict[str, Any] = {"message_id": "m1", "sent_at": T0}
    events = [event("received", n * 100, "orders-b", receive_count=n, **about) for n in (1, 2, 3)]
    steps = [(1_000, [*events, *sent("orders-a", 0, "a1")])]
    folded, plain = judged(steps, FOLDING), judged(steps)
    assert folded.changes == plain.changes
    assert [finding.key.queue for finding in folded.firing("PoisonMessage")] == ["orders-b"]
    said = folded.snapshots[-1]
    assert value(said, "queuewatch_signals", "orders-b", signal="PoisonMessage") == 1
    (row,) = said.aggregated_queues
    assert row.worst_member == ROW.sibling("orders-b"), "it has a signal; the other is only older"


def test_a_total_does_not_fall_when_a_queue_vanishes() -> None:
    """A counter that falls looks like a restart to Prometheus, and like a burst to its rate."""
    settings = replace(FOLDING, forget_queue_after_ms=60_000)
    first = [*settled("orders-gone", 0, "m1"), *settled("orders-stays", 0, "m2")]
    said = judged([(1_000, first), (90_000, settled("orders-stays", 89_000, "m3"))], settings)
    before, after = said.snapshots
    assert [len(snapshot.aggregated_queues[0].members) for snapshot in (before, after)] == [2, 1]
    for name, counts in (("queuewatch_messages_deleted_total", (2, 3)), ("queuewatch_sojourn_seconds_count", (2, 3))):
        assert (value(before, name), value(after, name)) == counts
    # 20 ms is in the native bucket that ends at 2^-5.5 s.
    native = [snapshot.aggregated_queues[0].durations["sojourn"].native for snapshot in (before, after)]
    assert [histogram.to_dict() for histogram in native] == [{-22: 2}, {-22: 3}]


def test_a_restart_and_more_shards_change_nothing() -> None:
    """Nothing of a fold is remembered: it follows from the queues."""
    steps = [(n * 1_000, settled(f"orders-{n % 3}", n * 1_000 - 500, f"m{n}")) for n in range(1, 6)]
    expected = judged(steps, FOLDING).snapshots[-1].aggregated_queues[0]
    for shards, restart in ((3, False), (1, True)):
        assert judged(steps, FOLDING, shards=shards, restart=restart).snapshots[-1].aggregated_queues[0] == expected


def test_without_the_setting_nothing_is_folded() -> None:
    """Rows are queues, as ever."""
    said = judged([(1_000, [*sent("orders-a", 0, "a1"), *sent("orders-b", 0, "b1")])]).snapshots[-1]
    assert not said.aggregated_queues
    assert said.rows() is said.queues


@pytest.mark.parametrize(
    ("folds", "rows", "why"),
    [
        ((FoldRule("orders-*-dlq"), FoldRule("orders-*")), ["orders-*", "orders-*-dlq"], "the first entry that matches wins"),
        ((FoldRule("orders-*"),), ["orders-*"], "a pattern means what it matches, dead letters too"),
        ((FoldRule("orders-*", "activemq"),), ["orders-1", "orders-1-dlq", "orders-2"], "of another system"),
        ((FoldRule("aws_sqs//orders-?"),), ["aws_sqs//orders-?", "orders-1-dlq"], "matched with system and scope"),
    ],
)
def test_which_queues_are_folded(folds: tuple[FoldRule, ...], rows: list[str], why: str) -> None:
    """By name alone, so that it never changes while a queue lives."""
    events = [e for name in ("orders-1", "orders-2", "orders-1-dlq") for e in sent(name, 0, f"m-{name}")]
    said = judged([(1_000, events)], replace(FOLDING, folds=folds)).snapshots[-1]
    assert sorted(view.queue for view in said.rows()) == rows, why


def test_queues_of_different_scopes_are_different_rows() -> None:
    """Two accounts may have the same names."""
    events = [*sent("orders-1", 0, "a", scope="eu"), *sent("orders-2", 0, "b", scope="us")]
    said = judged([(1_000, events)], FOLDING).snapshots[-1]
    assert [(row.scope, len(row.members)) for row in said.aggregated_queues] == [("eu", 1), ("us", 1)]


def folded(*members: QueueView) -> QueueView:
    """Those queues as one, without signals."""
    return aggregate_views(ROW, members, {}, top_k=2)


def test_what_is_not_known_of_one_queue_makes_the_row_a_lower_bound() -> None:
    """Its basis says so, and no age is exact."""
    known = queue_view("orders-1", visible=4, oldest_ms={"all": 1_000})
    row = folded(known, queue_view("orders-2", visible=None, basis="counts", basis_reason="only counted", age_counts=()))
    assert (row.visible, row.basis, row.basis_reason) == (4, "partial", "its queues are known in different ways")
    assert row.exact_ages == frozenset()
    assert folded(known, queue_view("orders-2")).exact_ages == {"all", "visible", "cloudwatch", "healthy"}
    counted_empty = queue_view("orders-2", basis="counts", basis_reason="only counted", age_counts=())
    assert folded(known, counted_empty).exact_ages == {"all", "visible", "cloudwatch", "healthy"}


def test_the_status_is_the_worst_and_a_drain_time_that_of_the_slowest() -> None:
    """A queue with a backlog that does not drain means that the row does not."""
    fine, slow = queue_view("orders-1", visible=3, time_to_drain_s=5.0), queue_view("orders-2", visible=9, time_to_drain_s=60.0)
    stalled = queue_view("orders-3", visible=1, status="stalled")
    assert (folded(fine, slow).status, folded(fine, slow).time_to_drain_s) == ("ok", 60.0)
    row = folded(fine, slow, stalled)
    assert (row.status, row.time_to_drain_s, row.worst_member) == ("stalled", None, stalled.name)


def test_the_section_of_the_file_becomes_settings() -> None:
    """With a system or without."""
    config = Config.model_validate({"fold": [{"queues": "orders-*", "system": "aws_sqs"}, {"queues": "mail-*"}]})
    assert to_settings(config).folds == (FoldRule("orders-*", "aws_sqs"), FoldRule("mail-*"))
