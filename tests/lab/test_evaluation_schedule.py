"""Judging only the queues that are due gives the same result as judging every queue in every step."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.matrix import Cell
from lab.scenarios.matrix import SCENARIOS
from lab.slow_trigger import with_trigger_interval
from lab.telemetry import seen
from sources.wire import decode_records, encode_ndjson
from streaming.core.reporting.merge import Merged
from streaming.core.settings import Settings
from streaming.core.thresholds import Thresholds
from streaming.judge.findings.signals import SignalChange
from streaming.judge.judge import judge
from streaming.judge.memory.evaluation_schedule import EvaluationSchedule
from streaming.judge.memory.memory import JudgeMemory
from streaming.judge.snapshot import QueueView, Snapshot
from streaming.replay.recording import read_recording, steps
from tests.core.driving import T0, event, run_steps
from tests.judge.driving import in_steps

pytestmark = pytest.mark.simulation

SETTINGS = Settings(now_is_event_time=True)
CELLS = (
    Cell("healthy_busy", "standard", 3, "full", "exact"),
    Cell("consumers_dead", "standard", 4, "full", "exact"),
    Cell("poison", "fifo", 5, "full", "exact"),
    Cell("dead_letters", "standard", 6, "consumers", "exact"),
    Cell("burst", "standard", 7, "producers", "exact"),
    Cell("one_consumer_dead", "standard", 8, "sample50", "late"),
    Cell("batch_consumer", "standard", 9, "attributes", "late"),
    Cell("healthy_idle", "fifo", 10, "consumers", "exact"),
)


def tracked(cell: Cell, folder: Path, trigger_ms: int) -> list[Merged]:
    """Return the tracking's result at each step of a simulated run."""
    recording = SCENARIOS[cell.scenario](cell.kind, cell.seed)
    path = folder / "recording.ndjson"
    path.write_bytes(encode_ndjson(seen(recording, cell.instrumentation)))
    made = steps(read_recording([path], decode_records, SETTINGS), 60_000, recording.ends_at)
    return [merged for _, merged in with_trigger_interval(trigger_ms)(made, SETTINGS)]


def said(
    taken: Sequence[Merged], settings: Settings, *, all_queues: bool
) -> tuple[list[list[QueueView]], list[SignalChange], list[Snapshot]]:
    """Return the published views of each step, every change, and the snapshots."""
    memory, snapshots, views, changes = JudgeMemory.empty(), [], [], []
    for merged in taken:
        if all_queues:
            memory = replace(memory, schedule=EvaluationSchedule())
        memory, snapshot, changed = judge(memory, merged, merged.now, settings)
        snapshots.append(snapshot)
        views.append(list(snapshot.queues))
        changes += changed
    return views, changes, snapshots


SHORT_STEPS = (
    (Cell("one_consumer_dead", "standard", 123_887, "attributes", "noisy"), 2_000),
    (Cell("healthy_idle", "standard", 11, "sample50", "late"), 2_000),
)
"""With steps shorter than the time between two samples."""


@pytest.mark.parametrize(
    ("cell", "trigger_ms"),
    [*((cell, 10_000) for cell in CELLS), *SHORT_STEPS],
    ids=lambda value: f"{value.scenario}-{value.basis}" if isinstance(value, Cell) else str(value),
)
def test_judging_due_queues_gives_the_same_result_as_judging_all(cell: Cell, trigger_ms: int, tmp_path: Path) -> None:
    """Everything published is compared at every step: signals, statuses, depths, ages, bases."""
    same_either_way(tracked(cell, tmp_path, trigger_ms))


def same_either_way(taken: Sequence[Merged], settings: Settings = SETTINGS) -> list[SignalChange]:
    """Compare everything published at each step, and return the changes."""
    some, changes, snapshots = said(taken, settings, all_queues=False)
    all_, all_changes, all_snapshots = said(taken, settings, all_queues=True)
    for step, one, other in zip(taken, some, all_, strict=True):
        assert one == other, step.now
    assert changes == all_changes
    assert [s.folded for s in snapshots] == [s.folded for s in all_snapshots]
    return changes


def changes_of(
    signal: str, events: list[dict[str, Any]], until_s: int, settings: Settings = SETTINGS, every_s: int = 10
) -> list[tuple[int, str]]:
    """Return when a signal changed, in seconds after T0."""
    events.sort(key=lambda e: int(e["at"]))
    changes = same_either_way(run_steps(in_steps(events, every_s, until_s), settings), settings)
    return [((c.at_ms - T0) // 1_000, c.status) for c in changes if c.finding.key.signal == signal]


def processed(name: str, at_ms: int, work_ms: int, **about: Any) -> list[dict[str, Any]]:
    """Return a message that is received at once and deleted after some work."""
    about["message_id"] = name
    received = event("received", at_ms + 100, receive_count=1, **about)
    return [event("sent", at_ms, **about), received, event("deleted", at_ms + 100 + work_ms, **about)]


def test_a_share_rises_by_time_alone_as_older_deliveries_leave_a_long_window() -> None:
    """Six of 460 deliveries outlive their window, then nothing comes: without the first 400 they are a tenth."""
    counts = {"visible": 0, "in_flight": 0, "delayed": 0, "visibility_timeout_s": 30}
    events = [event("queue_state", 1_000 * s, attributes=counts) for s in range(0, 241, 30)]
    for n in range(400):
        events += processed(f"early{n}", 200 * n, 1_000)
    for n in range(60):
        events += processed(f"late{n}", 120_000 + 500 * n, 1_000 if n % 10 else 45_000)
    assert changes_of("WindowTooShort", events, 1_200) == [(960, "firing"), (1_110, "resolved")]


def test_a_consumer_that_extended_its_window_once_is_slow_from_its_usual_limit_on() -> None:
    """Its work may take 220 s, twice the longest of the others, and no further event comes."""
    events = [event("queue_state", 0, attributes={"visibility_timeout_s": 120})]
    for n in range(40):
        events += processed(f"m{n}", 5_000 * n, 15_000 if n % 10 else 110_000)
    about = {"message_id": "long", "consumer": "w"}
    events += [event("sent", 300_000, message_id="long"), event("received", 300_100, receive_count=1, **about)]
    events.append(event("extended", 301_000, invisible_until=T0 + 4_000_000, **about))
    assert changes_of("SlowConsumer", events, 900) == [(560, "firing")]


def test_the_calls_of_a_fifo_queue_are_near_their_limit_once_its_quiet_beginning_has_left_the_period() -> None:
    """Two calls a second for 250 s: each fifth of 300 s has enough of them some seconds after the last one."""
    events = [event("queue_state", 0, queue="q.fifo", attributes={"kind": "fifo", "throughput_limit": "perQueue"})]
    for n, at_ms in enumerate((*range(0, 90_000, 5_000), *range(90_000, 340_000, 500))):
        events += processed(f"m{n}", at_ms, 100, queue="q.fifo", group=f"g{n % 7}")
    one_a_second = Settings(now_is_event_time=True, defaults=Thresholds(fifo_call_limit=1))
    assert changes_of("QueueMisconfigured", events, 500, one_a_second) == [(360, "firing"), (380, "resolved")]


def test_a_head_that_may_still_be_in_work_is_stuck_once_it_has_taken_twice_the_longest_work() -> None:
    """No visibility timeout is known, and the queue's other groups move only now and then."""
    events = []
    for n in range(12):
        events += processed(f"m{n}", 40_000 * n, 100_000, queue="q.fifo", group=f"g{n}")
    for n in range(8):
        events += processed(f"b{n}", 605_000 + 90_000 * n, 1_000, queue="q.fifo", group="b")
    about = {"queue": "q.fifo", "group": "a"}
    events += [event("sent", 600_000 + 1_000 * n, message_id=f"a{n}", **about) for n in range(4)]
    events.append(event("received", 600_100, message_id="a0", receive_count=1, **about))
    assert changes_of("GroupStuck", events, 1_000) == [(820, "firing")]


def test_a_queue_is_silent_as_soon_as_its_rate_is_higher_by_samples_that_thinned_out() -> None:
    """Its last hour is then measured from an older sample, and the last of ten messages is due half a minute earlier."""
    rng, events, at_ms = random.Random(12), [], 0
    while at_ms < 3_720_000:
        events += processed(f"m{at_ms}", at_ms, 100)
        at_ms += rng.randrange(3_000, 200_000)
    ten_due = Settings(now_is_event_time=True, defaults=Thresholds(silent_messages=10))
    assert changes_of("QueueSilent", events, 4_800, ten_due, every_s=30) == [(4_620, "firing")]


def test_a_group_whose_head_was_passed_over_is_trusted_again_after_a_minute() -> None:
    """Receives are not reported, and later messages of other groups were deleted first; then nothing comes any more."""
    counts = {"kind": "fifo", "visible": 0, "in_flight": 0, "delayed": 0, "visibility_timeout_s": 30}
    events = [event("queue_state", 35_000, queue="q.fifo", attributes=counts)]
    for n in range(30):
        about = {"queue": "q.fifo", "message_id": f"m{n}", "group": f"g{n}"}
        deleted_ms = 130_000 if n == 15 else 4_000 * n + 1_000
        events += [event("sent", 4_000 * n, **about), event("deleted", deleted_ms, **about)]
    taken = run_steps(in_steps(sorted(events, key=lambda e: int(e["at"])), 10, 300), SETTINGS)
    same_either_way(taken)
    views, _, _ = said(taken, SETTINGS, all_queues=False)
    partial = [step.now - T0 for step, (queue,) in zip(taken, views, strict=True) if queue.basis == "partial"]
    assert (partial[0], partial[-1]) == (90_000, 180_000)
