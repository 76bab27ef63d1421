"""Messages that are frozen change nothing that is said, and cost nothing until they are asked for."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.core.reporting.merge import Merged
from streaming.core.settings import QueueName, Settings
from streaming.core.state import frozen, sweep
from streaming.core.state.queues import T_DELETED
from streaming.core.state.state import ShardState
from tests.core.driving import T0, event, run_steps
from tests.core.test_against_reference import EXAMPLES

LATENESS_MS = 30_000
STEP_MS = 4_000
NEVER_FROZEN = 1 << 40


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers are merged two by two, and names let go of at once."""
    monkeypatch.setattr(frozen, "MERGED_LAYERS", 2)
    monkeypatch.setattr(sweep, "SWEPT_NAMES", 1)


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Messages that are deleted, redelivered, deleted again, moved, told of late; a queue that turns out to be a dead-letter
    queue in the middle of it."""
    events = []
    for n in range(draw(st.integers(1, 12))):
        queue = draw(st.sampled_from(["orders", "payments.fifo", "dead"]))
        about: dict[str, Any] = {"message_id": draw(st.sampled_from([f"00000000-0000-4000-8000-{n:012d}", f"id-{n}"]))}
        if queue == "payments.fifo":
            about |= {"group": f"g{draw(st.integers(0, 20))}", "sequence": str(n)}
        at = draw(st.integers(0, 90_000))
        for count in range(1, draw(st.integers(1, 3)) + 1):
            who = {"consumer": f"w{draw(st.integers(0, 9))}"} if draw(st.booleans()) else {}
            batch = {"batch_id": f"b{draw(st.integers(0, 3))}"} if draw(st.booleans()) else {}
            events.append(event("received", at, queue, receive_count=count, **who, **batch, **about))
            at += draw(st.integers(1, 20_000))
            events.append(event(draw(st.sampled_from(["deleted", "deleted", "released"])), at, queue, **about))
            at += draw(st.integers(1, 20_000))
        last = draw(st.sampled_from(["", "", "dead_lettered", "sent"]))
        if last == "dead_lettered" and queue == "orders":
            events.append(event("dead_lettered", at, "orders", to_queue="dead", **about))
        elif last == "sent":
            events.append(event("sent", at - draw(st.integers(0, 60_000)), queue, **about))
    policy = {"kind": "standard", "max_receive_count": 4, "dead_letter_queue": "dead"}
    for n in range(draw(st.integers(0, 2))):
        events.append(event("batch", draw(st.integers(0, 120_000)), batch_id=f"b{n}", attributes={"failed": True}))
    events.append(event("queue_state", draw(st.integers(0, 120_000)), "orders", attributes=policy))
    return events


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_what_is_said_is_the_same_frozen_or_not(data: st.DataObject) -> None:
    """Also of events within the lateness, or later, of names that were let go, and after a restart."""
    events = data.draw(histories())
    delays = data.draw(st.lists(st.sampled_from([0, 0, 0, 5_000, 20_000, 60_000]), min_size=len(events), max_size=len(events)))
    told = sorted(zip(events, delays, strict=True), key=lambda one: one[0]["at"] + one[1])
    arrivals = [(e["at"] - T0 + delay, e) for e, delay in told]
    ends = range(STEP_MS, 40 * STEP_MS, STEP_MS)
    steps = [(end, [e for at, e in arrivals if end - STEP_MS <= at < end]) for end in ends]
    shards, restart = data.draw(st.sampled_from([1, 3])), data.draw(st.booleans())

    def run(fewest_frozen: int) -> list[Merged]:
        chosen = Settings(lateness_ms=LATENESS_MS)
        reports = run_steps(steps, chosen, shards=shards, restart=restart, fewest_frozen=fewest_frozen)
        return [replace(merged, rows=0) for merged in reports]

    for frozen_ones, rows in zip(run(1), run(NEVER_FROZEN), strict=True):
        assert frozen_ones.queues.keys() == rows.queues.keys()
        for name, facts in frozen_ones.queues.items():
            assert asdict(facts) == asdict(rows.queues[name])
        assert frozen_ones == rows


def _lives(n: int, *, at_ms: int = 0, prefix: int = 0) -> list[dict[str, Any]]:
    ids = [f"{prefix:08d}-0000-4000-8000-{i:012d}" for i in range(n)]
    return [event("received", at_ms, message_id=i, receive_count=1, consumer="w1") for i in ids] + [
        event("deleted", at_ms + 100, message_id=i) for i in ids
    ]


def _state(*steps: tuple[int, list[dict[str, Any]]], lateness_ms: int = 600_000) -> ShardState:
    kept: list[ShardState] = []
    run_steps(steps, Settings(lateness_ms=lateness_ms), states=kept, fewest_frozen=10)
    return kept[0]


def test_deleted_messages_leave_the_rows() -> None:
    """That is what makes a step cost what is live, not what was."""
    state = _state((1_000, _lives(100)), (2_000, []))
    assert len(state.rows) == 0
    assert state.messages == 100
    assert state.queues[0].totals[T_DELETED] == 100


def test_an_event_of_a_frozen_message_brings_it_back_and_counts_once() -> None:
    """A repeated event is a duplicate as ever; a new delivery is one of a message that lives again."""
    again = [event("deleted", 100, message_id=f"00000000-0000-4000-8000-{i:012d}") for i in range(3)]
    lives = [event("received", 5_000, message_id="00000000-0000-4000-8000-000000000007", receive_count=2)]
    state = _state((1_000, _lives(100)), (2_000, again), (6_000, lives))
    assert state.events_total == Counter(accepted=201, duplicate=3)
    assert int((state.rows["ended"] == 0).sum()) == 1
    assert int(state.rows["receive_count"].max()) == 2


def test_layers_vanish_once_they_are_older_than_the_lateness() -> None:
    """Without being unpacked."""
    state = _state((1_000, _lives(100)), (100_000, _lives(50, at_ms=99_000, prefix=1)), lateness_ms=60_000)
    assert state.messages == 50


def test_neighbours_become_one_layer() -> None:
    """Every step looks into each of them."""
    steps = [(1_000 * n, _lives(20, at_ms=1_000 * n - 500, prefix=n)) for n in range(1, 9)]
    state = _state(*steps)
    assert len(state.frozen) == 1
    assert state.messages == 160


def test_what_is_told_of_a_name_does_not_depend_on_whether_a_row_has_it() -> None:
    """A consumer's last acknowledgement is known for a day; a group that was empty for the lateness starts anew."""
    early = [
        event("received", 0, consumer="w1", message_id="m1", receive_count=1),
        event("deleted", 500, message_id="m1"),
        event("sent", 0, "payments.fifo", message_id="p1", group="g", sequence="1"),
        event("deleted", 500, "payments.fifo", message_id="p1", group="g", sequence="1"),
    ]
    # Rows that are forgotten are only let go once they are many, so that here the early ones stay unless they are frozen.
    others = [event("sent", 40_000, message_id=f"other-{n}") for n in range(20)]
    back = [event("sent", 60_000, "payments.fifo", message_id="p2", group="g", sequence="2")]
    steps = [(1_000, early), (2_000, []), (41_000, others), (42_000, []), (61_000, back)]
    for fewest_frozen in (1, NEVER_FROZEN):
        told = run_steps(steps, Settings(lateness_ms=LATENESS_MS), fewest_frozen=fewest_frozen)[-1].queues
        assert told[QueueName("aws_sqs", "", "orders")].consumer_acks == {"w1": T0 + 500}
        ordered = told[QueueName("aws_sqs", "", "payments.fifo")].ordered_facts
        assert ordered is not None
        assert [(group.name, group.last_settled_at) for group in ordered.oldest] == [("g", 0)]
