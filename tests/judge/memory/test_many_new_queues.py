"""Of very many queues that are due only for a refresh, a part is judged in each step; what happens to a queue does not wait."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from streaming.judge.memory import evaluation_schedule
from tests.core.driving import T0, event, run_steps
from tests.judge.driving import SETTINGS, in_steps, judged, judged_reports

pytestmark = pytest.mark.simulation

QUEUES = [f"q{n:02d}" for n in range(12)]
AT_ONCE = 3
MINUTE_MS = 60_000
UNTIL_S = 15 * 60


def counted(queue: str, at_ms: int, visible: int = 3) -> dict[str, Any]:
    """A count of the broker."""
    return event("queue_state", at_ms, queue, attributes={"visible": visible, "in_flight": 0, "delayed": 0})


def work(queue: str, at_ms: int, number: int) -> list[dict[str, Any]]:
    """One message is processed and another sent."""
    about = {"message_id": f"{queue}-{number}"}
    received = event("received", at_ms, queue, receive_count=1, consumer="w", **about)
    sent = event("sent", at_ms + 200, queue, message_id=f"{queue}-{number + 3}")
    return [received, event("deleted", at_ms + 100, queue, **about), sent]


def load() -> list[dict[str, Any]]:
    """Return the events of queues that hold three messages each: counted every minute, and touched now and then."""
    events = [event("sent", 10 * n, queue, message_id=f"{queue}-{n}") for queue in QUEUES for n in range(3)]
    for minute in range(UNTIL_S // 60):
        events += [counted(queue, minute * MINUTE_MS + 1_000) for queue in QUEUES]
        events += [one for n, queue in enumerate(QUEUES) for one in work(queue, minute * MINUTE_MS + 20_000 + 300 * n, minute)]
    return sorted(events, key=lambda e: e["at"])


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few queues are refreshed in one step."""
    monkeypatch.setattr(evaluation_schedule, "REFRESHED_AT_ONCE", AT_ONCE)


@pytest.mark.usefixtures("few_at_once")
def test_new_counts_are_compared_some_queues_at_a_time(evaluated: list[tuple[int, str]]) -> None:
    """In the second after they arrived, only so many are judged; a few steps later, all of them."""
    judged(in_steps(load(), 1, 3 * 60))
    counted_at = [2 * MINUTE_MS + 1_000 * n for n in range(1, 19)]
    per_step = Counter(at for at, _ in evaluated if at in counted_at)
    assert max(per_step.values()) == AT_ONCE
    assert {queue for at, queue in evaluated if at in counted_at} == set(QUEUES)


@pytest.mark.usefixtures("few_at_once")
def test_a_queue_with_an_event_or_another_count_is_judged_at_once(evaluated: list[tuple[int, str]]) -> None:
    """While others wait for their turn."""
    before = [e for e in load() if e["at"] <= T0 + 2 * MINUTE_MS + 1_000]
    sent, more = event("sent", 2 * MINUTE_MS + 2_500, "q11", message_id="new"), counted("q10", 2 * MINUTE_MS + 2_600, visible=4)
    judged(in_steps([*before, sent, more], 1, 2 * 60 + 3))
    now = [queue for at, queue in evaluated if at == 2 * MINUTE_MS + 3_000]
    assert {"q10", "q11"} <= set(now)
    assert len(now) <= AT_ONCE + 2


def test_after_a_while_everything_is_known_that_would_be_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts that waited are compared like the others: basis, depth, and exact ages are the same at the end."""
    tracked = run_steps(in_steps(load(), 2, UNTIL_S), SETTINGS)
    without = judged_reports(tracked)
    monkeypatch.setattr(evaluation_schedule, "REFRESHED_AT_ONCE", AT_ONCE)
    waiting = judged_reports(tracked)
    assert list(waiting.snapshots[-1].queues) == list(without.snapshots[-1].queues)
    assert {view.basis for view in waiting.snapshots[-1].queues} == {"messages"}
    for view in waiting.snapshots[-1].queues:
        memory = waiting.memory.queues[view.name]
        assert memory.evidence.is_sure(T0 + UNTIL_S * 1_000), "its counts have agreed for five minutes"


@pytest.mark.parametrize("sends_reported", [False, True], ids=["counts alone", "counts and sends"])
def test_of_queues_known_in_part_signals_come_as_soon(sends_reported: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead consumers that report nothing: stalls, and the bounds of ages, are found in the same steps as without waiting."""
    events = [
        counted(queue, minute * MINUTE_MS + 1_000, visible=min(10 * minute, 30)) for minute in range(14) for queue in QUEUES
    ]
    if sends_reported:
        events += [event("sent", 6_000 * n, queue, message_id=f"{queue}-{n}") for n in range(80) for queue in QUEUES]
    tracked = run_steps(in_steps(sorted(events, key=lambda e: e["at"]), 3, 14 * 60), SETTINGS)
    without = judged_reports(tracked)
    monkeypatch.setattr(evaluation_schedule, "REFRESHED_AT_ONCE", AT_ONCE)
    waiting = judged_reports(tracked)
    assert len(without.firing("QueueStalled")) == len(QUEUES)
    assert waiting.changes_seen() == without.changes_seen()
    # Coverage is of the count that was compared last.
    views, expected = (
        [[replace(view, coverage_ratio=None) for view in s.queues] for s in run.snapshots] for run in (waiting, without)
    )
    assert views == expected
