"""A redrive that failed or stalled, in what its collector reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streaming.judge.findings.signals import SignalName
from tests.core.driving import T0, event
from tests.judge.driving import Judged, judged

MINUTE, HOUR = 60_000, 3_600_000


def report(at: int, **task: Any) -> dict[str, Any]:
    """The state of a dead-letter queue with its latest move task."""
    counts = {"visible": 10, "in_flight": 0, "delayed": 0}
    return event("queue_state", at, "dlq", attributes=counts | {"redrive_task": {"to_move": 10} | task})


def seen(found: Judged, signal: SignalName) -> list[tuple[int, str]]:
    return [(at, status) for at, name, status, _ in found.changes_seen() if name == signal]


@pytest.mark.parametrize("second_at", [3 * HOUR, 30 * HOUR], ids=["while the first is shown", "after the first was shown"])
def test_a_second_failed_redrive_is_announced(second_at: int) -> None:
    """Nobody may have seen it run. The evidence is of the second, and it is shown for a day of its own."""
    steps = []
    for at in range(0, second_at + 26 * HOUR, HOUR // 2):
        n = int(at >= second_at)
        task = {"moved": 0, "started_at": T0 + n * (second_at - MINUTE), "failure_reason": f"Reason{n}"}
        steps.append((at + 1_000, [report(at, status="FAILED", **task)]))
    changes = judged(steps).changes
    fired = [c for c in changes if c.finding.key.signal == "RedriveFailed" and c.status == "firing"]
    assert [(c.at_ms - T0, c.finding.since_ms - T0) for c in fired] == [(1_000, 0), (second_at + 1_000, second_at)]
    assert [c.finding.evidence["reason"] for c in fired] == ["Reason0", "Reason1"]
    ended = [c.at_ms - T0 for c in changes if c.finding.key.signal == "RedriveFailed" and c.status == "resolved"]
    assert ended == [min(second_at, 24 * HOUR) + 1_000, second_at + 24 * HOUR + 1_000]


def test_a_failed_redrive_without_a_start_is_announced_once() -> None:
    """Whether it is another one is not known."""
    steps = [(at + 1_000, [report(at, status="FAILED", moved=0)]) for at in range(0, 6 * HOUR, HOUR)]
    assert seen(judged(steps), "RedriveFailed") == [(1_000, "firing")]


@pytest.mark.parametrize(("moved", "words"), [(0, "after 0 messages:"), (1, "after 1 message:"), (2, "after 2 messages:")])
@pytest.mark.parametrize(("status", "signal"), [("FAILED", "RedriveFailed"), ("RUNNING", "RedriveStalled")])
def test_the_sentence_names_how_many_messages_were_moved(status: str, signal: SignalName, moved: int, words: str) -> None:
    """In the singular where it is one."""
    steps = [(at + 1_000, [report(at, status=status, moved=moved, started_at=T0)]) for at in range(0, 20 * MINUTE, MINUTE)]
    (fired,) = [c.finding for c in judged(steps).changes if c.finding.key.signal == signal]
    assert words in fired.evidence["summary"]


@pytest.mark.parametrize(("status", "signal"), [("FAILED", "RedriveFailed"), ("RUNNING", "RedriveStalled")])
def test_what_a_report_does_not_know_of_a_task_is_no_evidence(status: str, signal: SignalName) -> None:
    """It may say so by `null`: evidence is numbers and words."""
    unknown = dict.fromkeys(("to_move", "to_queue", "task_id"))
    steps = [(at + 1_000, [report(at, status=status, moved=3, started_at=T0, **unknown)]) for at in range(0, 20 * MINUTE, MINUTE)]
    (fired,) = [c.finding for c in judged(steps).changes if c.finding.key.signal == signal]
    assert unknown.keys().isdisjoint(fired.evidence)
    assert (fired.evidence["moved"], fired.evidence["started_at"]) == (3, T0)


def running(reports: list[tuple[int, int]], until: int = 60 * MINUTE) -> list[tuple[int, str]]:
    """Return how RedriveStalled changed, judged every 10 s, by reports of (when, messages moved by then)."""
    due = {at: [report(at, status="RUNNING", moved=moved, started_at=T0)] for at, moved in reports}
    return seen(judged([(at, due.get(at, [])) for at in range(0, until, 10_000)]), "RedriveStalled")


@pytest.mark.parametrize(
    ("polls", "lines"),
    [
        (range(0, 50 * MINUTE, MINUTE), [(10 * MINUTE, "firing"), (59 * MINUTE, "resolved")]),
        (range(10_000, 50 * MINUTE, 5 * MINUTE), [(10 * MINUTE + 10_000, "firing"), (55 * MINUTE + 10_000, "resolved")]),
        (range(0, 60 * MINUTE, 10 * MINUTE), [(10 * MINUTE, "firing")]),
        (range(0, 8 * MINUTE, MINUTE), [(10 * MINUTE, "firing"), (17 * MINUTE, "resolved")]),
        (range(0, 4 * MINUTE, MINUTE), []),
        ([0], []),
    ],
    ids=[
        "every minute",
        "every five minutes",
        "every ten minutes",
        "for eight minutes",
        "for four minutes",
        "one",
    ],
)
def test_only_reports_show_that_a_redrive_stalled(polls: Sequence[int], lines: list[tuple[int, str]]) -> None:
    """It moves nothing from the first report on. When the collector is gone, nobody knows whether it goes on."""
    assert running([(at, 5) for at in polls]) == lines


def test_a_redrive_that_moved_in_its_last_report_did_not_stall() -> None:
    """It moved at each poll, and then its collector died."""
    assert running([(at, at // MINUTE) for at in range(0, 5 * MINUTE, MINUTE)]) == []
