"""Counts alone, of a backlog that stands still: a single one far below it may be wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import in_steps, judged

DEAD_S, UNTIL_S = 300, 1_500


def stall(visible: dict[int, int], in_flight: dict[int, int]) -> list[tuple[int, str]]:
    """Return when QueueStalled changes (seconds). Consumers die; some counts after that differ from the growing backlog."""
    counts: list[dict[str, Any]] = []
    for at in range(0, UNTIL_S, 30):
        usual = {"visible": 5 + max(at - DEAD_S, 0) // 2, "in_flight": 0 if at >= DEAD_S else 3, "delayed": 0}
        changed = {"visible": visible.get(at, usual["visible"]), "in_flight": in_flight.get(at, usual["in_flight"])}
        counts.append(ev("queue_state", at, attributes=usual | changed))
    found = judged(in_steps(counts, 10, UNTIL_S))
    for finding in found.snapshots[910 // 10].firing:
        assert "with 0 messages" not in finding.evidence["summary"]
    return [(at // 1000, status) for at, signal, status, _ in found.changes_seen() if signal == "QueueStalled"]


@pytest.mark.parametrize("wrong", [0, 100])
def test_one_wrong_count_does_not_end_a_stall(wrong: int) -> None:
    """The next count shows the backlog again."""
    assert [status for _, status in stall({900: wrong}, {})] == ["firing"]


def test_two_counts_do() -> None:
    """Consumers came back, worked off the backlog between two polls, and keep up."""
    assert stall(dict.fromkeys(range(900, UNTIL_S, 30), 0), {})[1:] == [(930, "resolved")]


def test_a_count_with_messages_in_flight_is_believed() -> None:
    """It shows the consumers."""
    assert stall({900: 50}, {900: 3})[1] == (900, "resolved")


def test_the_evidence_is_that_of_the_count_before_a_wrong_one() -> None:
    """Delayed messages wait for no consumer."""
    usual = {"visible": 5, "in_flight": 0, "delayed": 95}
    counts = [ev("queue_state", at, attributes=usual if at != 900 else dict.fromkeys(usual, 0)) for at in range(0, 960, 30)]
    found = judged(in_steps(counts, 10, 960)).snapshots
    evidence = {(s.at_ms - T0) // 1000: one.evidence for s in found for one in s.firing}
    assert [evidence[at]["visible"] for at in (890, 900, 910, 930)] == [5, 5, 5, 5]
    assert "with 5 messages visible" in evidence[900]["summary"]
