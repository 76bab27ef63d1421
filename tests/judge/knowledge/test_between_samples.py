"""Queues that swing between two samples: a count is compared with what was tracked at its own time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streaming.judge.snapshot import QueueView
from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import SETTINGS, in_steps, judged

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]

STEP_S = 10
POLL_S = 30
MINUTES = 12


def bursts(every_ms: int, size: int, worked_ms: int, *, polled_ms: int, seen: int = 1) -> Events:
    """Messages that arrive together and are worked on one after the other, and exact counts.

    `polled_ms`: when the first count is made. `seen`: one message of so many is reported.
    """
    out: Events = []
    lives: list[tuple[int, int, int]] = []
    for burst in range(500, MINUTES * 60_000, every_ms):
        for n in range(size):
            lives.append((burst + n, burst + n * worked_ms // 2 + 10, burst + (n + 1) * worked_ms + 20))
    for n, (sent, received, deleted) in enumerate(lives):
        if n % seen == 0:
            about = {"message_id": f"m{n}"}
            out.append(ev("sent", sent / 1000, **about))
            out.append(ev("received", received / 1000, receive_count=1, consumer="w", sent_at=T0 + sent, **about))
            out.append(ev("deleted", deleted / 1000, consumer="w", **about))
    for at in range(polled_ms, MINUTES * 60_000, POLL_S * 1000):
        there = [(sent, received) for sent, received, deleted in lives if sent <= at < deleted]
        in_flight = sum(received <= at for _, received in there)
        counts = {"visible": len(there) - in_flight, "in_flight": in_flight, "delayed": 0, "visibility_timeout_s": 30}
        out.append(ev("queue_state", at / 1000, attributes=counts))
    return sorted(out, key=lambda e: e["at"])


def views(events: Events, *, shards: int = 1, restart: bool = False) -> list[QueueView]:
    """The queue at every step that knows it."""
    steps = in_steps(events, STEP_S, MINUTES * 60)
    return [s.queues[0] for s in judged(steps, SETTINGS, shards=shards, restart=restart).snapshots if s.queues]


@pytest.mark.parametrize("polled_s", [3, 6])
def test_counts_of_bursts_between_samples_contradict_nothing(polled_s: int) -> None:
    """Every sample is of the end of a burst, every count of its beginning or its middle."""
    seen = views(bursts(10_000, 14, 800, polled_ms=polled_s * 1000))
    assert {view.basis for view in seen} == {"messages"}
    assert {scope for view in seen if view.tracked for scope in view.oldest_ms}


@pytest.mark.parametrize("seen", [2, 4])
@pytest.mark.parametrize("polled_s", [3, 6])
def test_bursts_of_which_a_part_is_reported_are_recognised(seen: int, polled_s: int) -> None:
    """By the fifth count, although no sample is of the time of a count."""
    bases = [view.basis for view in views(bursts(10_000, 24, 300, polled_ms=polled_s * 1000, seen=seen))]
    assert set(bases[16:]) == {"partial"}


@example(every_ms=29_750, size=15, worked_ms=1_584, polled_ms=22, restart=False)
@example(every_ms=29_900, size=18, worked_ms=1_200, polled_ms=22, restart=False)
@settings(deadline=None, max_examples=12)
@given(
    every_ms=st.integers(2_000, 30_000),
    size=st.integers(1, 30),
    worked_ms=st.integers(50, 2_000),
    polled_ms=st.integers(0, POLL_S * 1000 - 1),
    restart=st.booleans(),
)
def test_complete_telemetry_is_not_called_partial(
    every_ms: int, size: int, worked_ms: int, polled_ms: int, restart: bool
) -> None:
    """With exact and prompt counts, whatever the rhythm of the traffic, of the counts and of the steps.

    Within the first five minutes, a burst between two samples may look as if consumers that nobody sees had received some of it.
    """
    seen = views(bursts(every_ms, size, worked_ms, polled_ms=polled_ms), shards=1 + restart, restart=restart)
    early = 6 * 60 // STEP_S
    assert {view.basis for view in seen[early:]} == {"messages"}
    assert sum(view.basis != "messages" for view in seen[:early]) <= 60 // STEP_S
