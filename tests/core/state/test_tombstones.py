"""Frozen messages change nothing in the report, and cost nothing until they are looked up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.core.maintenance import compact
from streaming.core.reporting.merge import Merged
from streaming.core.reporting.report import ConsumerResults
from streaming.core.settings import QueueName, Settings
from streaming.core.state import tombstones
from streaming.core.state.queues import T_DELETED, T_RETRIED
from streaming.core.state.state import SILENT_MEMORY_MS, ShardState
from tests.core.driving import T0, event, run_steps
from tests.core.test_against_reference import EXAMPLES

LATENESS_MS = 30_000
STEP_MS = 4_000
NEVER_COMPACTED = 1 << 40


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge segments two by two however long they last, and drop names at once."""
    monkeypatch.setattr(tombstones, "MERGED_SEGMENTS", 2)
    monkeypatch.setattr(tombstones, "MERGED_SPANS", 1)
    monkeypatch.setattr(compact, "SWEPT_NAMES", 1)


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Messages that are deleted, redelivered, deleted again, moved, and reported late.

    One queue turns out to be a dead-letter queue half-way through.
    """
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


@pytest.mark.simulation
@pytest.mark.timeout(900)  # a machine several times slower than usual
@settings(
    max_examples=max(EXAMPLES // 2, 10),  # each takes half a second
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_what_is_said_is_the_same_compacted_or_not(data: st.DataObject) -> None:
    """This includes events within the lateness or later, dropped names, and restarts."""
    events = data.draw(histories())
    delays = data.draw(st.lists(st.sampled_from([0, 0, 0, 5_000, 20_000, 60_000]), min_size=len(events), max_size=len(events)))
    reported = sorted(zip(events, delays, strict=True), key=lambda one: one[0]["at"] + one[1])
    arrivals = [(e["at"] - T0 + delay, e) for e, delay in reported]
    ends = range(STEP_MS, 40 * STEP_MS, STEP_MS)
    steps = [(end, [e for at, e in arrivals if end - STEP_MS <= at < end]) for end in ends]
    shards, restart = data.draw(st.sampled_from([1, 3])), data.draw(st.booleans())

    def run(fewest_tombstones: int) -> list[Merged]:
        chosen = Settings(lateness_ms=LATENESS_MS)
        reports = run_steps(steps, chosen, shards=shards, restart=restart, fewest_tombstones=fewest_tombstones)
        return [replace(merged, rows=0) for merged in reports]

    for compacted, rows in zip(run(1), run(NEVER_COMPACTED), strict=True):
        assert dict(compacted.queues) == dict(rows.queues)
        assert compacted == rows


def test_a_loss_is_counted_no_longer_than_its_row_is_sure_to_be_kept() -> None:
    """In the report only: with compacted messages beside it, this row is compacted some steps later."""

    def about(n: int) -> str:
        return f"00000000-0000-4000-8000-{n:012d}"

    came = [
        (722, event("deleted", 722, "orders", message_id=about(7))),
        (7_510, event("released", 7_510, "dead", message_id="id-5")),
        (9_115, event("released", 9_115, "payments.fifo", message_id="id-3", group="g5", sequence="3")),
        (12_929, event("received", 7_929, "orders", receive_count=3, consumer="w4", message_id=about(1))),
        (19_100, event("deleted", 14_100, "dead", message_id="id-4")),
        (28_246, event("dead_lettered", 8_246, "orders", to_queue="dead", message_id=about(1))),
        (39_711, event("received", 19_711, "dead", receive_count=3, consumer="w5", message_id="id-10")),
        (41_671, event("received", 41_671, "payments.fifo", receive_count=2, consumer="w2", message_id=about(9), group="g5")),
        (43_585, event("deleted", 38_585, "orders", message_id=about(0))),
    ]
    ends = range(STEP_MS, 13 * STEP_MS, STEP_MS)
    steps = [(end, [e for at, e in came if end - STEP_MS <= at < end]) for end in ends]
    for fewest_tombstones in (1, NEVER_COMPACTED):
        reports = run_steps(steps, Settings(lateness_ms=LATENESS_MS), fewest_tombstones=fewest_tombstones)
        orders = [merged.queues.get(QueueName("aws_sqs", "", "orders")) for merged in reports]
        counted = [queue.numbers["lost_at_receives"] if queue else 0 for queue in orders]
        assert counted == [3 if 28_246 < end < 8_246 + LATENESS_MS else 0 for end in ends]


def test_an_arrival_that_left_again_is_listed_no_longer_than_its_row_is_sure_to_be_kept() -> None:
    """It is noticed late: only then is the queue known to be a dead-letter queue."""
    about = {"message_id": "00000000-0000-4000-8000-000000000003"}
    came = [
        event("received", 1_000, "dead", receive_count=1, **about),
        event("deleted", 2_000, "dead", **about),
        event("queue_state", 20_000, "orders", attributes={"max_receive_count": 4, "dead_letter_queue": "dead"}),
    ]
    ends = range(STEP_MS, 15 * STEP_MS, STEP_MS)
    steps = [
        (end, [*(e for e in came if end - STEP_MS <= e["at"] - T0 < end), *_lives(2, at_ms=end - 200, prefix=end)])
        for end in ends
    ]
    for fewest_tombstones in (1, NEVER_COMPACTED):
        reports = run_steps(steps, Settings(lateness_ms=LATENESS_MS), fewest_tombstones=fewest_tombstones)
        listed = [len(merged.arrivals) for merged in reports]
        assert listed == [20_000 < end <= 2_000 + LATENESS_MS for end in ends]


def test_a_failed_batch_reported_after_the_lateness_counts_no_retries() -> None:
    """The row of such a message may be gone, depending on how many others there are: so it counts as gone."""
    about = {"message_id": "id-1"}
    came = [
        event("received", 0, receive_count=1, batch_id="b0", **about),
        event("released", 100, **about),
        event("received", 200, receive_count=2, **about),
        event("deleted", 300, **about),
    ]
    failed = event("batch", 44_500, batch_id="b0", attributes={"failed": True})
    steps = [(1_000, came), (40_000, _lives(20, at_ms=39_000)), (44_000, []), (45_000, [failed])]
    for fewest_tombstones in (1, NEVER_COMPACTED):
        merged = run_steps(steps, Settings(lateness_ms=LATENESS_MS), fewest_tombstones=fewest_tombstones)[-1]
        assert merged.queues[QueueName("aws_sqs", "", "orders")].totals[T_RETRIED] == 0


@pytest.mark.parametrize("shards", [1, 3])
def test_how_a_consumer_s_deliveries_ended_is_known_for_a_day(shards: int) -> None:
    """Also those of one that only failed, and whether its messages are compacted, forgotten or neither."""
    about = {"message_id": "00000000-0000-4000-8000-000000000001"}
    came = [
        event("received", 0, "orders", consumer="w0", receive_count=1, **about),
        event("released", 100, "orders", **about),
        event("received", 200, "orders", consumer="w0", receive_count=2, **about),
        event("released", 300, "orders", **about),
        event("received", 400, "orders", consumer="w2", receive_count=3, **about),
        event("deleted", 500, "orders", **about),
    ]
    others = [event("sent", 100_000, "orders", message_id=f"other-{n}") for n in range(20)]
    day_ms = SILENT_MEMORY_MS
    later = [(at, [event("sent", at, "orders", message_id=f"{at}")]) for at in (110_000, day_ms, day_ms + 1_000)]
    steps = [(1_000, came), (100_000, others), *later]
    known = {"w0": ConsumerResults(finished=0, failed=2), "w2": ConsumerResults(finished=1, failed=0)}
    for fewest_tombstones in (1, NEVER_COMPACTED):
        reports = run_steps(
            steps, Settings(lateness_ms=LATENESS_MS), shards=shards, restart=True, fewest_tombstones=fewest_tombstones
        )
        results = [merged.queues[QueueName("aws_sqs", "", "orders")].consumer_results for merged in reports]
        assert results == [known, known, known, known, {}]


def _lives(n: int, *, at_ms: int = 0, prefix: int = 0) -> list[dict[str, Any]]:
    ids = [f"{prefix:08d}-0000-4000-8000-{i:012d}" for i in range(n)]
    return [event("received", at_ms, message_id=i, receive_count=1, consumer="w1") for i in ids] + [
        event("deleted", at_ms + 100, message_id=i) for i in ids
    ]


def _state(*steps: tuple[int, list[dict[str, Any]]], lateness_ms: int = 600_000) -> ShardState:
    kept: list[ShardState] = []
    run_steps(steps, Settings(lateness_ms=lateness_ms), states=kept, fewest_tombstones=10)
    return kept[0]


def test_deleted_messages_leave_the_rows() -> None:
    """The cost of a step then depends on live messages, not on past ones."""
    state = _state((1_000, _lives(100)), (4_000, []))
    assert len(state.rows) == 0
    assert state.messages == 100
    assert state.queues[0].totals[T_DELETED] == 100


def test_messages_that_ended_a_moment_ago_stay_rows() -> None:
    """A count of that moment may arrive in the next step, and is compared with what was tracked then."""
    ended_at = 100
    assert len(_state((1_000, _lives(100)), (ended_at + tombstones.JUST_ENDED_MS - 1, [])).rows) == 100
    assert len(_state((1_000, _lives(100)), (ended_at + tombstones.JUST_ENDED_MS, [])).rows) == 0


def test_an_event_of_a_compacted_message_brings_it_back_and_counts_once() -> None:
    """A repeated event is still a duplicate; a new delivery brings the message back to life."""
    again = [event("deleted", 100, message_id=f"00000000-0000-4000-8000-{i:012d}") for i in range(3)]
    lives = [event("received", 5_000, message_id="00000000-0000-4000-8000-000000000007", receive_count=2)]
    state = _state((1_000, _lives(100)), (4_000, again), (6_000, lives))
    assert state.events_total == Counter(accepted=201, duplicate=3)
    assert int((state.rows["ended"] == 0).sum()) == 1
    assert int(state.rows["receive_count"].max()) == 2


def test_segments_vanish_once_they_are_older_than_the_lateness() -> None:
    """They are dropped without being unpacked."""
    state = _state((1_000, _lives(100)), (100_000, _lives(50, at_ms=99_000, prefix=1)), lateness_ms=60_000)
    assert state.messages == 50


def test_neighbours_become_one_segment() -> None:
    """Every step searches each segment, so there must be few."""
    steps = [(1_000 * n, _lives(20, at_ms=1_000 * n - 500, prefix=n)) for n in range(1, 9)]
    state = _state(*steps, *((1_000 * n, []) for n in range(9, 12)))
    assert len(state.segments) == 1
    assert state.messages == 160


def test_what_a_name_stands_for_does_not_depend_on_whether_a_row_has_it() -> None:
    """A consumer's last acknowledgement is known for a day; a group that was empty for the lateness starts again."""
    early = [
        event("received", 0, consumer="w1", message_id="m1", receive_count=1),
        event("deleted", 500, message_id="m1"),
        event("sent", 0, "payments.fifo", message_id="p1", group="g", sequence="1"),
        event("deleted", 500, "payments.fifo", message_id="p1", group="g", sequence="1"),
    ]
    # Forgotten rows are only dropped once there are many, so the early ones stay here unless they are compacted.
    others = [event("sent", 40_000, message_id=f"other-{n}") for n in range(20)]
    back = [event("sent", 60_000, "payments.fifo", message_id="p2", group="g", sequence="2")]
    steps = [(1_000, early), (4_000, []), (41_000, others), (42_000, []), (61_000, back)]
    for fewest_tombstones in (1, NEVER_COMPACTED):
        reported = run_steps(steps, Settings(lateness_ms=LATENESS_MS), fewest_tombstones=fewest_tombstones)[-1].queues
        assert reported[QueueName("aws_sqs", "", "orders")].consumer_acks == {"w1": T0 + 500}
        ordered = reported[QueueName("aws_sqs", "", "payments.fifo")].ordered_facts
        assert ordered is not None
        assert [(group.name, group.last_settled_at) for group in ordered.oldest] == [("g", 0)]
