"""What was tracked at the time of a count, or just before, is what a step that ended then would have reported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.core.reporting.at_counts import LATEST_COUNTS
from streaming.core.reporting.merge import Merged
from streaming.core.settings import QueueName
from streaming.core.state.counts import MOST_COUNTS
from streaming.core.state.tombstones import FEWEST_TOMBSTONES
from tests.core.driving import T0, event, run_steps
from tests.core.test_against_reference import EXAMPLES

STEP_MS = 4_000
MOST_LATE_MS = 2_000
QUEUES = ("orders", "dead", "payments.fifo")
WINDOW_MS = 5_000


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, dict[str, Any]]]:
    """Messages that are delayed, redelivered, extended, released, moved and deleted, and counts of their queues.

    With each event: when it arrives.
    """
    events: list[dict[str, Any]] = []
    ms = st.integers(1, 9_000)
    for n in range(draw(st.integers(1, 10))):
        queue = draw(st.sampled_from(["orders", "payments.fifo"]))
        about: dict[str, Any] = {"message_id": f"m{n}"} | ({"group": f"g{n % 2}"} if queue != "orders" else {})
        at = draw(st.integers(0, 30_000))
        delay = {"visible_at": T0 + at + draw(ms)} if draw(st.booleans()) else {}
        events.append(event("sent", at, queue, **about, **delay))
        for count in range(1, draw(st.integers(0, 3)) + 1):
            at += draw(ms)
            events.append(event("received", at, queue, receive_count=count, **about))
            for _ in range(draw(st.integers(0, 1))):
                at += draw(ms)
                events.append(event("extended", at, queue, invisible_until=T0 + at + draw(ms), **about))
            at += draw(ms)
            if draw(st.booleans()):
                events.append(event("released", at, queue, visible_at=T0 + at + draw(st.integers(0, 5_000)), **about))
        at += draw(ms)
        last = draw(st.sampled_from(["", "deleted", "deleted", "dead_lettered"]))
        if last:
            events.append(event(last, at, queue, **about, **({"to_queue": "dead"} if last == "dead_lettered" else {})))
    for queue in QUEUES:
        # The timeout may change once, which later receives follow: an earlier one remains what it was at a count.
        changes_at, changed_s = draw(st.integers(0, 60_000)), draw(st.sampled_from([1, 9]))
        # Some counts in the very millisecond of another event.
        of_events = st.sampled_from([e["at"] - T0 for e in events]).filter(lambda at: at > 0)
        for at in draw(st.lists(st.one_of(st.integers(500, 50_000), of_events), max_size=4, unique=True)):
            timeout_s = WINDOW_MS // 1000 if at < changes_at else changed_s
            counts = {"visible": 5, "in_flight": 1, "delayed": 0, "visibility_timeout_s": timeout_s}
            events.append(event("queue_state", at, queue, attributes=counts))
    # The visibility timeout is known from the beginning: what is in flight does not depend on when it becomes known.
    events += [event("queue_state", 0, queue, attributes={"visibility_timeout_s": WINDOW_MS // 1000}) for queue in QUEUES]
    return [(e["at"] - T0 + draw(st.integers(0, MOST_LATE_MS)) * (e["at"] > T0), e) for e in events]


def arriving(history: list[tuple[int, dict[str, Any]]]) -> list[tuple[int, list[dict[str, Any]]]]:
    """The events by the step in which they arrive."""
    times = range(STEP_MS, 64_001, STEP_MS)
    return [(t, [e for at, e in history if t - STEP_MS < at <= t or (at == 0 and t == STEP_MS)]) for t in times]


def numbers(merged: Merged, queue: str) -> tuple[int, ...]:
    """The tracked messages of a queue: visible, in flight, delayed."""
    summary = merged.queues.get(QueueName("aws_sqs", "", queue))
    return (0, 0, 0) if summary is None else tuple(summary.numbers[state] for state in ("visible", "in_flight", "delayed"))


@pytest.mark.slow
@settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(histories(), st.integers(1, 3), st.booleans())
def test_the_latest_report_about_a_count_is_exact(
    history: list[tuple[int, dict[str, Any]]], shards: int, compacted: bool
) -> None:
    """Even if events arrive up to two seconds late, with any number of shards, and if deleted messages are compacted at once."""
    reported: dict[tuple[str, int], tuple[int, ...]] = {}
    fewest = 1 if compacted else FEWEST_TOMBSTONES
    for merged in run_steps(arriving(history), shards=shards, restart=compacted, fewest_tombstones=fewest):
        for name, summary in merged.queues.items():
            reported |= {(name.queue, at): tracked for at, tracked in summary.tracked_at_counts.items()}
    counted = {(e["queue"], e["at"]) for _, e in history if e["type"] == "queue_state" and "visible" in e["attributes"]}
    assert reported.keys() == counted
    for (queue, at), tracked in reported.items():
        for until, found in ((at, tracked[:3]), (at - 1, tracked[3:])):
            known = sorted((e for _, e in history if e["at"] <= until), key=lambda e: e["at"])
            assert found == numbers(run_steps([(until - T0, known)])[0], queue), (queue, until - T0)


def test_a_count_that_arrives_long_after_its_time_is_not_compared_exactly() -> None:
    """Messages that ended since may have been compacted."""
    count = event("queue_state", 1_000, attributes={"visible": 1, "in_flight": 0})
    sent = event("sent", 500, message_id="m")
    at_once, later = run_steps([(2_000, [sent, count])]), run_steps([(2_000, [sent]), (6_000, []), (10_000, [count])])
    summaries = [next(iter(merged[-1].queues.values())) for merged in (at_once, later)]
    assert [summary.tracked_at_counts for summary in summaries] == [{T0 + 1_000: (1, 0, 0) * 2}, {}]


def test_of_very_many_counts_the_latest_are_exact() -> None:
    """Each changed row is looked at for each of them: a sender could report any number."""
    many = 3 * LATEST_COUNTS
    events = [event("sent", 1_000 * n, message_id=f"m{n}") for n in range(many)]
    counts = [event("queue_state", 1_000 * n + 500, attributes={"visible": n + 1, "in_flight": 0}) for n in range(many)]
    (merged,) = run_steps([(1_000 * many, [*events, *counts])])
    (summary,) = merged.queues.values()
    expected = {T0 + 1_000 * n + 500: n + 1 for n in range(many - LATEST_COUNTS, many)}
    assert {at: tracked.visible for at, tracked in summary.tracked_at_counts.items()} == expected
    assert len(summary.depths) == many


def test_counts_cost_what_their_number_does() -> None:
    """Ten thousand counts of a queue whose message has used up its receives, in one step: the time is the runner's limit."""
    limits = {"max_receive_count": 1, "dead_letter_queue": "d", "visibility_timeout_s": 1}
    events = [event("sent", 0, message_id="m"), event("received", 1, message_id="m", receive_count=1)]
    events += [event("queue_state", 10 + n, attributes=limits | {"visible": n % 3, "in_flight": 1}) for n in range(10_000)]
    (merged,) = run_steps([(30_000, events)])
    (summary,) = [one for name, one in merged.queues.items() if name.queue == "orders"]
    assert len(summary.depths) == MOST_COUNTS
