"""One of ten messages is not reported: no single count shows it, but hardly any is below what is tracked."""

from __future__ import annotations

import random
from typing import Any

import pytest

from streaming.judge.knowledge.compare import MEMORY_OF_SIGNS, _compare_signs
from streaming.judge.knowledge.evidence import FEWEST_ABOVE, Evidence
from tests.contract.replaying import ev
from tests.judge.driving import in_steps, judged

END_S, POLL_S, FIRST_POLL_S = 1_500, 30, 150


def bases(seen: int, *, noise: float = 0.0, lag_s: int = 0) -> list[str]:
    """Return the basis at every step, with `seen` of ten messages reported; about ten of them are in the queue."""
    dice = random.Random(5)
    events: list[dict[str, Any]] = []
    spans: list[tuple[float, float, float]] = []
    at = 0.0
    while at < END_S:
        at += dice.expovariate(1.0)
        i, got = len(spans), at + dice.uniform(1, 8)
        gone = got + dice.uniform(1, 10)
        spans.append((at, got, gone))
        if i * 7 % 10 < seen:
            about = {"message_id": f"m{i}"}
            events.append(ev("sent", at, **about))
            events.append(ev("received", got, **about, receive_count=1, consumer="w"))
            events.append(ev("deleted", gone, **about, consumer="w"))
    for poll in range(FIRST_POLL_S, END_S, POLL_S):
        then = poll - lag_s
        waiting, held = sum(a <= then < b for a, b, _ in spans), sum(b <= then < c for _, b, c in spans)
        off = 1 + dice.uniform(-noise, noise)
        counts = {"visible": round(waiting * off), "in_flight": round(held * off), "delayed": 0, "visibility_timeout_s": 60}
        events.append(ev("queue_state", poll, attributes=counts))
    events = [event for event in events if event["at"] <= events[0]["at"] + END_S * 1000]
    found = judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, END_S)).snapshots
    return [snapshot.queues[0].basis for snapshot in found if snapshot.queues]


@pytest.mark.simulation
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_tenth_that_is_missing_is_noticed(noise: float) -> None:
    assert bases(9, noise=noise)[-1] == "partial"


@pytest.mark.simulation
@pytest.mark.parametrize(("noise", "lag_s"), [(0.0, 0), (0.05, 0), (0.0, 60), (0.05, 60)])
def test_complete_telemetry_is_complete_whatever_the_counts(noise: float, lag_s: int) -> None:
    """Inexact and late counts are above what is tracked as often as below it."""
    assert set(bases(10, noise=noise, lag_s=lag_s)[6:]) == {"messages"}


def test_counts_above_prove_nothing_beside_counts_below() -> None:
    evidence = Evidence()
    for _ in range(100):
        _compare_signs(evidence, 10, [9, 8])
    assert evidence.some_are_missing()
    assert evidence.above == pytest.approx(1 / (1 - MEMORY_OF_SIGNS), rel=0.01)
    for _ in range(3):
        _compare_signs(evidence, 7, [9, 8])
    assert evidence.above > FEWEST_ABOVE
    assert not evidence.some_are_missing()
    assert not Evidence(above=FEWEST_ABOVE / 2).some_are_missing()
