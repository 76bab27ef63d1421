"""Judging only the queues that are due gives the same result as judging every queue in every step."""

from __future__ import annotations

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
from streaming.judge.evaluation_schedule import EvaluationSchedule
from streaming.judge.judge import judge
from streaming.judge.memory import JudgeMemory
from streaming.judge.signals import SignalChange
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
    made = steps(read_recording([path], decode_records, SETTINGS.lateness_ms), 60_000, recording.ends_at)
    return [merged for _, merged in with_trigger_interval(trigger_ms)(made, SETTINGS)]


def said(taken: Sequence[Merged], *, all_queues: bool) -> tuple[list[list[QueueView]], list[SignalChange], list[Snapshot]]:
    """Return the published views of each step, every change, and the snapshots."""
    memory, snapshots, views, changes = JudgeMemory.empty(), [], [], []
    for merged in taken:
        if all_queues:
            memory = replace(memory, schedule=EvaluationSchedule())
        memory, snapshot, changed = judge(memory, merged, merged.now, SETTINGS)
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


def same_either_way(taken: Sequence[Merged]) -> list[SignalChange]:
    """Compare everything published at each step, and return the changes."""
    some, changes, snapshots = said(taken, all_queues=False)
    all_, all_changes, all_snapshots = said(taken, all_queues=True)
    for step, one, other in zip(taken, some, all_, strict=True):
        assert one == other, step.now
    assert changes == all_changes
    assert [s.folded for s in snapshots] == [s.folded for s in all_snapshots]
    return changes


def processed(name: str, at_ms: int, work_ms: int) -> list[dict[str, Any]]:
    """Return a message that is received at once and deleted after some work."""
    received = event("received", at_ms + 100, message_id=name, receive_count=1)
    return [event("sent", at_ms, message_id=name), received, event("deleted", at_ms + 100 + work_ms, message_id=name)]


def test_a_share_rises_by_time_alone_as_older_deliveries_leave_a_long_window() -> None:
    """Six of 460 deliveries outlive their window, then nothing comes: without the first 400 they are a tenth."""
    counts = {"visible": 0, "in_flight": 0, "delayed": 0, "visibility_timeout_s": 30}
    events = [event("queue_state", 1_000 * s, attributes=counts) for s in range(0, 241, 30)]
    for n in range(400):
        events += processed(f"early{n}", 200 * n, 1_000)
    for n in range(60):
        events += processed(f"late{n}", 120_000 + 500 * n, 1_000 if n % 10 else 45_000)
    changes = same_either_way(run_steps(in_steps(events, 30, 1_200), SETTINGS))
    seen = [((c.at_ms - T0) // 1_000, c.status) for c in changes if c.finding.key.signal == "WindowTooShort"]
    assert seen == [(960, "firing"), (1_110, "resolved")]
