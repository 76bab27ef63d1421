"""What senders may write at will is limited in bytes: names, attributes and reasons of new kinds in every event."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.maintenance import compact
from streaming.core.settings import QueueName, Settings
from streaming.core.state import queue_table
from streaming.core.state.state import ShardState
from streaming.core.tracking import apply, apply_ends, queue_events
from tests.core.driving import T0, event, run_steps
from tests.core.reference import Wire

ROOM_FOR_FIVE = 550
"""Bytes of five names of a hundred characters."""


def _long(n: int) -> str:
    return f"{n:0100}"


@pytest.mark.parametrize("restart", [False, True])
def test_messages_of_groups_whose_names_do_not_fit_are_left_out(monkeypatch: pytest.MonkeyPatch, restart: bool) -> None:
    """Those of the groups that are known, and of none, are tracked all the same."""
    monkeypatch.setattr(apply, "MOST_GROUP_BYTES", ROOM_FOR_FIVE)
    first = [event("sent", n, "q.fifo", message_id=f"m{n}", group=_long(n)) for n in range(5)]
    later = [event("sent", 20 + n, "q.fifo", message_id=f"n{n}", group=_long(n)) for n in range(9)]
    later.append(event("sent", 30, "q.fifo", message_id="alone"))
    merged = run_steps([(10, first), (40, later)], restart=restart)[-1]
    (summary,) = merged.queues.values()
    assert (summary.numbers["visible"], summary.left_out_at) == (5 + 5 + 1, T0 + 28)
    assert merged.invalid_total == {"too_many_messages": 4}


def test_a_group_that_is_forgotten_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "MOST_GROUP_BYTES", ROOM_FOR_FIVE)
    monkeypatch.setattr("streaming.core.maintenance.compact.SWEPT_NAMES", 0)
    steps: list[tuple[int, list[Wire]]] = []
    for n in range(40):
        about = {"message_id": f"m{n}", "group": _long(n)}
        steps.append((600_000 * n + 10, [event("sent", 600_000 * n, **about), event("deleted", 600_000 * n + 5, **about)]))
    merged = run_steps(steps, restart=True)[-1]
    (summary,) = merged.queues.values()
    assert (summary.total("sent"), summary.total("deleted"), merged.invalid_total) == (40, 40, {})


@pytest.mark.parametrize("restart", [False, True])
def test_consumers_whose_names_do_not_fit_are_unknown(monkeypatch: pytest.MonkeyPatch, restart: bool) -> None:
    """Their deliveries count; nobody is blamed for them."""
    monkeypatch.setattr(apply, "MOST_CONSUMER_BYTES", ROOM_FOR_FIVE)
    received = [event("received", n, message_id=f"m{n}", receive_count=1, consumer=_long(n)) for n in range(9)]
    deleted = [event("deleted", 20, message_id=f"m{n}", consumer=_long(n)) for n in (0, 8)]
    merged = run_steps([(10, received[:3]), (15, received[3:]), (30, deleted)], restart=restart)[-1]
    (summary,) = merged.queues.values()
    assert (summary.numbers["in_flight"], summary.total("received"), summary.total("deleted")) == (7, 9, 2)
    assert len(summary.consumers) == 4
    assert merged.invalid_total == {}


@pytest.mark.parametrize("restart", [False, True])
def test_consumers_that_are_gone_make_room(monkeypatch: pytest.MonkeyPatch, restart: bool) -> None:
    """An application that names a new one for each message does not make those of others unknown for a day."""
    for module in (apply, compact):
        monkeypatch.setattr(module, "MOST_CONSUMER_BYTES", 5_000)
    monkeypatch.setattr(compact, "SWEPT_NAMES", 1)
    steps: list[tuple[int, list[Wire]]] = []
    for n in range(200):
        at, about = 30_000 * n, {"message_id": f"m{n}", "consumer": _long(n)}
        steps.append((at + 10, [event("received", at, receive_count=1, **about), event("deleted", at + 5, **about)]))
    new = event("received", 6_000_000, "other", message_id="held", receive_count=1, consumer="x" * 100)
    states: list[ShardState] = []
    merged = run_steps([*steps, (6_000_010, [new])], Settings(lateness_ms=60_000), restart=restart, states=states)[-1]
    (held,) = merged.queues[QueueName("aws_sqs", "", "other")].consumers
    assert held.consumer == "x" * 100
    assert states[0].consumers.texts.nbytes <= 2_600
    assert merged.queues[QueueName("aws_sqs", "", "orders")].consumer_results[_long(199)].finished == 1


def _tags(length: int, **others: Any) -> dict[str, Any]:
    return {"attributes": {"visible": 3, "in_flight": 0, "tags": {"owner": "x" * length}, **others}}


def test_the_attributes_of_a_queue_are_limited_in_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many events bring them. What rules read is kept, the shortest of it first; of the rest the latest."""
    monkeypatch.setattr(queue_table, "MOST_ATTRIBUTE_BYTES", 450)
    steps = [(10 * n + 1, [event("queue_state", 10 * n, attributes={f"note_{n}": "x" * 100})]) for n in range(9)]
    steps.append((101, [event("queue_state", 100, **_tags(100, retention_s=60))]))
    steps.append((111, [event("queue_state", 110, **_tags(500, retention_s=60))]))
    states: list[ShardState] = []
    merged = run_steps(steps, restart=True, states=states)
    (before,), (after,) = merged[-2].queues.values(), merged[-1].queues.values()
    assert set(before.attributes) == {"visible", "in_flight", "retention_s", "tags", "note_8"}
    assert set(after.attributes) == {"visible", "in_flight", "retention_s", "note_8"}
    (text,) = states[0].queues.attribute_texts().texts
    assert len(text) <= 450


def test_the_longest_attributes_are_shortened_where_those_of_all_queues_are_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are not touched, and the broker's counts of all of them go on."""
    monkeypatch.setattr(queue_table, "MOST_SHARD_ATTRIBUTE_BYTES", 2_000)
    monkeypatch.setattr(queue_table, "FEW_ATTRIBUTE_BYTES", 200)
    lengths = [100] * 8 + [1_000] * 2
    reports = [event("queue_state", n, f"q{n}", **_tags(length, delay_s=n)) for n, length in enumerate(lengths)]
    again = [event("queue_state", 20 + n, f"q{n}", **_tags(length, delay_s=n, visible=4)) for n, length in enumerate(lengths)]
    states: list[ShardState] = []
    for visible, merged in zip((3, 4), run_steps([(15, reports), (40, again)], restart=True, states=states), strict=True):
        assert {summary.attribute("visible") for summary in merged.queues.values()} == {visible}
        kept = {name.queue: set(summary.attributes) for name, summary in merged.queues.items()}
        assert all("tags" in kept[f"q{n}"] for n in range(8))
        assert [kept[f"q{n}"] for n in (8, 9)] == [{"visible", "in_flight", "delay_s"}] * 2
    assert sum(map(len, states[0].queues.attribute_texts().texts)) <= 2_000


def test_the_longest_reports_on_consumers_are_forgotten_where_all_are_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_events, "MOST_CONSUMER_STATE_BYTES", 1_000)
    about: dict[str, Any] = {"connected": True, "prefetch": 1, "dispatched": 0}
    long = [event("consumer_state", n, consumer=f"long-{n}", attributes={**about, "client_id": "x" * 600}) for n in range(5)]
    short = [event("consumer_state", 20 + n, consumer=f"c{n}", attributes={**about, "client_id": "x"}) for n in range(5)]
    first, last = run_steps([(10, long), (40, short)], restart=True)
    (before,), (after,) = first.queues.values(), last.queues.values()
    assert set(before.consumer_states) == {"long-4"}
    assert set(after.consumer_states) == {f"c{n}" for n in range(5)}


def test_of_very_many_losses_reasons_that_differ_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender may name the message in each. The reason that all have in common is kept, and each counts as reported."""
    monkeypatch.setattr(apply_ends, "MOST_REASONS", 4)
    sent = [event("sent", n, message_id=f"m{n}") for n in range(8)]
    reasons = ["too old", "a", "b", "c", "too old", "d", "too old", ""]
    dropped = [event("dropped", 100 + n, message_id=f"m{n}", reason=reason) for n, reason in enumerate(reasons)]
    merged = run_steps([(10, sent), (104, dropped[:4]), (200, dropped[4:])], restart=True)[-1]
    (summary,) = merged.queues.values()
    assert [loss.reason for loss in summary.losses] == ["too old", "a", "b", "c", "too old", "", "too old", ""]
    assert summary.total("dropped") == 8
