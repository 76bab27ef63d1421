"""Queues are judged when their next evaluation is due: what is published is the same as if all were judged in every step."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from streaming.core.settings import Settings
from streaming.core.thresholds import Thresholds
from streaming.judge.findings.signals import SignalKey
from streaming.judge.judge import judge
from streaming.judge.memory.evaluation_schedule import EvaluationSchedule
from streaming.judge.memory.memory import JudgeMemory
from tests.core.driving import event, run_steps
from tests.judge.driving import in_steps
from tests.judge.random_traffic import RandomQueue

pytestmark = pytest.mark.simulation

QUEUES, EVERY_S, UNTIL_S = 12, 15, 2_700
SHORT_UNTIL_S = 1_200
Changes = dict[tuple[SignalKey, str, str], list[int]]
"""When signals began and ended, in epoch milliseconds, by what changed."""
SEEDS = max(1, int(os.environ.get("QUEUEWATCH_EXAMPLES", "60")) // 15)
"""`QUEUEWATCH_EXAMPLES=1500` tries a hundred, a few seconds each."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_as_if_every_queue_were_judged_in_every_step(seed: int) -> None:
    """Signals, their evidence and everything else that is published about a queue."""
    r = random.Random(seed)
    settings = Settings(now_is_event_time=True, defaults=random_limits(r))
    events: list[dict[str, Any]] = [event("heartbeat", 1000 * at, consumer="collector") for at in range(0, UNTIL_S, 30)]
    for i in range(QUEUES):
        events += RandomQueue(r, f"queue-{i}").events(UNTIL_S)
    assert_published_alike(in_steps(sorted(events, key=lambda e: e["at"]), EVERY_S, UNTIL_S), settings)


def test_a_consumer_that_holds_as_many_messages_again_is_judged_by_the_broker_s_strategies() -> None:
    """Its second report equals the first, and what it held in between was acknowledged: nothing seems to have changed."""

    def of(kind: str, at_s: float, **fields: Any) -> dict[str, Any]:
        return event(kind, round(1000 * at_s), **{"system": "activemq", **fields})

    empty = {"visible": 0, "in_flight": 0, "delayed": 0}
    full = {"prefetch": 10, "connected": True, "dispatched": 10}
    events = [event("heartbeat", 1000 * at, consumer="collector") for at in range(0, 900, 30)]
    events += [of("queue_state", at, attributes=empty) for at in (480, 660, 720, 780)]
    events += [of("consumer_state", at, consumer="worker-1", attributes=full) for at in (780, 840)]
    for n, at in enumerate((757, 770, 775, 780.065, 785.065)):
        events += [of("sent", at, message_id=f"m{n}"), of("deleted", at + 0.3, message_id=f"m{n}", consumer="worker-0")]
    events.append(of("received", 785.165, message_id="m4", receive_count=1, consumer="worker-1"))
    steps = in_steps(sorted(events, key=lambda e: e["at"]), EVERY_S, 900)
    found = assert_published_alike(steps, Settings(now_is_event_time=True))
    assert ("SlowConsumer", "ack", "firing") in found


def test_what_is_learned_about_a_consumer_was_not_known_at_the_checks_before() -> None:
    """When it came is known from its first receive on, so the broker's `ack` strategy had nothing to say of it until then."""
    events = [event("heartbeat", 1000 * at, consumer="collector") for at in range(0, 90, 30)]
    about: dict[str, Any] = {"system": "activemq", "consumer": "worker-1"}
    events.append(event("consumer_state", 0, attributes={"prefetch": 1000, "connected": True, "dispatched": 1}, **about))
    events.append(event("received", 54_780, message_id="m", receive_count=1, **about))
    events.append(event("consumer_state", 60_000, attributes={"prefetch": 1000, "connected": True}, **about))
    steps = in_steps(sorted(events, key=lambda e: e["at"]), EVERY_S, 90)
    found = assert_published_alike(steps, Settings(now_is_event_time=True))
    assert ("SlowConsumer", "ack", "firing") in found


def assert_published_alike(
    steps: Sequence[tuple[int, Sequence[dict[str, Any]]]], settings: Settings
) -> set[tuple[str, str | None, str]]:
    """Judge queues when they are due, and all in every step; return the changes: the signal, its part and its status."""
    scheduled, every = JudgeMemory.empty(), JudgeMemory.empty()
    found: set[tuple[str, str | None, str]] = set()
    for merged in run_steps(steps, settings):
        scheduled, some, changes = judge(scheduled, merged, merged.now, settings)
        views = list(some.queues)
        # Nothing is known of evaluations before, so every queue is due.
        every, all_, all_changes = judge(replace(every, schedule=EvaluationSchedule()), merged, merged.now, settings)
        assert changes == all_changes
        found |= {(c.finding.key.signal, c.finding.key.part, c.status) for c in changes}
        for view, other in zip(views, all_.queues, strict=True):
            assert replace(view, revision=0) == replace(other, revision=0)
    return found


def random_limits(r: random.Random) -> Thresholds:
    """Return the usual limits, or others with windows as long as the judge remembers."""
    if r.random() < 0.2:
        return Thresholds()
    return Thresholds(
        failing_window_s=r.choice((300, 900, 1_200, 1_800)),
        failing_ratio=r.choice((0.02, 0.1, 0.5)),
        failing_min_deliveries=r.choice((3, 20)),
        short_window_s=r.choice((300, 900, 1_500, 2_000)),
        short_window_min_deliveries=r.choice((1, 5)),
        retry_storm_window_s=r.choice((300, 900, 1_500)),
        retry_storm_ratio=r.choice((0.05, 0.2, 0.5)),
        retry_storm_min_deliveries=r.choice((2, 10)),
        fifo_limit_s=r.choice((300, 900, 1_200)),
        fifo_call_limit=1,
        fifo_limit_ratio=r.choice((0.01, 0.02, 0.1)),
        silent_messages=r.choice((3, 20)),
        stalled_s=r.choice((60, 300, 1_200)),
        coverage_s=r.choice((100, 600)),
    )


@pytest.mark.parametrize("seed", range(SEEDS // 2))
def test_in_short_steps_nothing_is_found_later_than_in_ten_seconds(seed: int) -> None:
    """What only slides out of a window, or is compared with a count, is looked at every five to ten seconds."""
    r = random.Random(seed)
    settings = Settings(now_is_event_time=True, defaults=random_limits(r))
    events: list[dict[str, Any]] = [event("heartbeat", 1000 * at, consumer="collector") for at in range(0, SHORT_UNTIL_S, 30)]
    for i in range(QUEUES // 2):
        events += RandomQueue(r, f"queue-{i}").events(SHORT_UNTIL_S)
    scheduled, every = JudgeMemory.empty(), JudgeMemory.empty()
    some: Changes = {}
    all_: Changes = {}
    for merged in run_steps(in_steps(sorted(events, key=lambda e: e["at"]), 2, SHORT_UNTIL_S), settings):
        scheduled, _, changes = judge(scheduled, merged, merged.now, settings)
        every, _, all_changes = judge(replace(every, schedule=EvaluationSchedule()), merged, merged.now, settings)
        for found, new in ((some, changes), (all_, all_changes)):
            for change in new:
                found.setdefault((change.finding.key, change.status, change.finding.severity), []).append(change.at_ms)
    assert some.keys() == all_.keys()
    for about, times in all_.items():
        assert len(some[about]) == len(times), about
        assert all(0 <= late - at <= 10_000 for late, at in zip(some[about], times, strict=True)), about
