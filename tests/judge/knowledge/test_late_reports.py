"""Complete client reports that arrive seconds after the broker's count of the same time are not taken for partial ones."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import Step, judged

pytestmark = pytest.mark.simulation

UNTIL_S = 480
STEP_S = 5
POLL_S = 30
Message = tuple[float, float, float]
"""Sent, received and deleted, in seconds."""


def growing() -> list[Message]:
    """Two messages per second arrive, 1.2 are finished."""
    return [(i / 2, i / 1.2, i / 1.2 + 2) for i in range(2 * UNTIL_S)]


def filled_at_each_poll() -> list[Message]:
    """A job sends 60 messages per second before each poll, and they are finished before the next one."""
    return [(at + 0.01 * n, at + 5 + 0.2 * n, at + 6 + 0.2 * n) for at in range(POLL_S - 1, UNTIL_S, POLL_S) for n in range(60)]


def steady() -> list[Message]:
    """A message per second, each gone after twelve seconds."""
    return [(float(i), i + 10.0, i + 12.0) for i in range(UNTIL_S)]


def reported(messages: list[Message], late_s: float, *, every: int = 1, sends: bool = True) -> list[Step]:
    """Return steps with what had arrived by each: reports `late_s` late, counts at once; one of `every` messages."""
    came: list[tuple[float, dict[str, Any]]] = []
    for i, (sent, received, deleted) in enumerate(messages):
        if i % every:
            continue
        about = {"message_id": f"m{i}"}
        if sends:
            came.append((sent + late_s, ev("sent", sent, **about)))
        got = ev("received", received, receive_count=1, consumer="w", sent_at=T0 + round(sent * 1000), **about)
        came += [(received + late_s, got), (deleted + late_s, ev("deleted", deleted, **about))]
    for at in range(0, UNTIL_S + 1, POLL_S):
        in_flight = sum(received <= at < deleted for _, received, deleted in messages)
        unsettled = sum(sent <= at < deleted for sent, _, deleted in messages)
        counts = {"visible": unsettled - in_flight, "in_flight": in_flight, "delayed": 0, "visibility_timeout_s": 60}
        came.append((at, ev("queue_state", at, attributes=counts)))
    came.sort(key=lambda c: c[0])
    return [(t * 1000, [e for at, e in came if t - STEP_S < at <= t]) for t in range(0, UNTIL_S + 1, STEP_S)]


def bases(steps: list[Step]) -> list[str]:
    """Return the bases of knowledge from the first minute on, in order of publication."""
    snapshots = judged(steps).snapshots
    return [basis for basis, _ in groupby(s.queues[0].basis for s in snapshots if s.at_ms >= T0 + 60_000)]


@pytest.mark.parametrize("late_s", [0, 5, 8])
@pytest.mark.parametrize("shape", [growing, filled_at_each_poll, steady])
def test_complete_telemetry_that_is_late_is_complete(shape: Any, late_s: float) -> None:
    """The broker's counts match what is tracked a few seconds later, from the first counts on."""
    assert bases(reported(shape(), late_s)) == ["messages"]


@pytest.mark.parametrize("late_s", [0, 8])
@pytest.mark.parametrize("shape", [growing, filled_at_each_poll, steady])
def test_half_of_the_messages_stays_half_of_them(shape: Any, late_s: float) -> None:
    """However late they arrive, every other message is not all messages."""
    assert bases(reported(shape(), late_s, every=2))[-1] == "partial"


def test_what_came_late_is_not_counted_twice() -> None:
    """In the first minutes the published depth is the broker's count, until reports of its time have arrived."""
    snapshots = judged(reported(filled_at_each_poll(), 8)).snapshots
    depths = [sum(n or 0 for n in (s.queues[0].visible, s.queues[0].in_flight)) for s in snapshots if s.queues]
    assert max(depths) <= 60
