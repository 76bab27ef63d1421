"""A job that is behind its source, because it was stopped or is slow, judges at the time up to which it has read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from streaming.core.clock import time_of_step
from streaming.core.settings import Settings
from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import Judged, Step, judged

pytestmark = pytest.mark.simulation

ENDS_S = 3_000
STOPPED_S = (1_000, 2_200)
Read = tuple[float, float]
"""Seconds after T0: the clock's reading, and up to when events have been read."""


def telemetry(kind: str, *, consumers_until_s: float = ENDS_S) -> list[dict[str, Any]]:
    """Complete telemetry of a queue with a message a second, each of which is received after one second and takes three."""
    events: list[dict[str, Any]] = []
    for n in range(ENDS_S):
        about = {"message_id": f"m{n}", "group": f"g{n % 5}", "kind": "fifo"} if kind == "fifo" else {"message_id": f"m{n}"}
        events.append(ev("sent", n, **about))
        if n + 4 < consumers_until_s:
            events.append(ev("received", n + 1, receive_count=1, consumer="w", invisible_until=T0 + 1_000 * (n + 31), **about))
            events.append(ev("deleted", n + 4, consumer="w", **about))
    for at_s in range(30, ENDS_S, 30):
        waiting = at_s - consumers_until_s if at_s > consumers_until_s else 0
        counts = {"visible": int(waiting) + 1, "in_flight": 0 if waiting else 3, "delayed": 0, "visibility_timeout_s": 30}
        events.append(ev("queue_state", at_s + 0.5, attributes=counts, collector="c"))
    return sorted(events, key=lambda event: int(event["at"]))


def started_late() -> Iterator[Read]:
    """The job starts 40 minutes after the first event, and reads 20 times as fast as time passes."""
    for i in range(60):
        yield 2_400 + 5 * i, min(100 * (i + 1), 2_400 + 5 * i)


def stopped() -> Iterator[Read]:
    """The job is stopped for 20 minutes."""
    yield from ((at_s, at_s) for at_s in range(10, STOPPED_S[0], 10))
    for i in range(100):
        at_s = STOPPED_S[1] + 5 * i
        yield at_s, min(STOPPED_S[0] + 100 * (i + 1), at_s)


def slow() -> Iterator[Read]:
    """The job falls behind, by up to three minutes, and catches up."""
    for at_s in range(10, ENDS_S, 10):
        yield at_s, at_s - min(max(0, at_s - 900) / 5, max(0, 2_400 - at_s) / 3, 180)


def judged_while(reads: Iterator[Read], events: list[dict[str, Any]]) -> Judged:
    """Judge as a live job does."""
    steps: list[Step] = []
    done, before = 0, -T0
    for clock_s, up_to_s in reads:
        end = next((i for i in range(done, len(events)) if events[i]["at"] - T0 > 1_000 * up_to_s), len(events))
        newest = max((event["at"] - T0 for event in events[done:end]), default=None)
        before = time_of_step(int(1_000 * clock_s), newest, before)
        steps.append((before, events[done:end]))
        done = end
    return judged(steps, Settings())


SCHEDULES = pytest.mark.parametrize("reads", [started_late, stopped, slow])


@SCHEDULES
@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_nothing_is_wrong_with_a_healthy_queue(reads: Any, kind: str) -> None:
    """What has not been read yet is no evidence: no signal fires, and the telemetry counts as complete all the time."""
    result = judged_while(reads(), telemetry(kind))
    assert result.changes_seen() == []
    assert {queue.basis for snapshot in result.snapshots for queue in snapshot.queues} == {"messages"}


@SCHEDULES
def test_what_is_wrong_is_reported_while_catching_up(reads: Any) -> None:
    """Consumers died while the job was behind. The stall began then, not when the job read of it."""
    result = judged_while(reads(), telemetry("standard", consumers_until_s=1_500))
    (stalled,) = result.firing("QueueStalled")
    assert abs(stalled.since_ms - T0 - 1_500_000) <= 10_000
