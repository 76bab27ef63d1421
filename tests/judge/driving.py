"""The judge fed with wire events, step by step, without the replay around it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from streaming.core.reporting.merge import Merged
from streaming.core.settings import Settings
from streaming.judge.findings.signals import Finding, SignalChange, SignalName
from streaming.judge.judge import judge
from streaming.judge.memory.evaluation_schedule import EvaluationSchedule
from streaming.judge.memory.memory import JudgeMemory
from streaming.judge.snapshot import Snapshot
from tests.core.driving import T0, run_steps

SETTINGS = Settings(now_is_event_time=True)

Step = tuple[int, Sequence[dict[str, Any]]]
"""Now in milliseconds after T0, and what was reported by then."""


class Judged:
    """What the judge said at each step."""

    def __init__(self, snapshots: Sequence[Snapshot], changes: Sequence[SignalChange], memory: JudgeMemory) -> None:
        self.snapshots, self.changes, self.memory = list(snapshots), list(changes), memory

    def firing(self, signal: SignalName) -> list[Finding]:
        """What of one signal fires at the end."""
        return [f for f in self.snapshots[-1].firing if f.key.signal == signal]

    def changes_seen(self) -> list[tuple[int, str, str, str]]:
        """Every change: milliseconds after T0, signal, status, what tells its key from others."""
        return [(c.at_ms - T0, c.finding.key.signal, c.status, str(c.finding.key)) for c in self.changes]


def judged(steps: Sequence[Step], settings: Settings | None = None, *, shards: int = 1, restart: bool = False) -> Judged:
    """Track and judge every step. `restart`: states and the judge's memory go through their bytes between any two."""
    settings = settings or SETTINGS
    return judged_reports(run_steps(steps, settings, shards=shards, restart=restart), settings, restart=restart)


def judged_reports(
    reports: Iterable[Merged], settings: Settings = SETTINGS, *, restart: bool = False, every_queue: bool = False
) -> Judged:
    """Judge what was tracked at each step. What is judged in two ways needs to be tracked only once.

    `restart`: the judge's memory goes through its bytes between any two steps. `every_queue`: all are judged in every step.
    """
    memory, snapshots, changes = JudgeMemory.empty(), [], []
    for merged in reports:
        if restart:
            memory = JudgeMemory.from_bytes(memory.to_bytes())
        if every_queue:
            # Nothing is known of evaluations before, so every queue is due.
            memory = replace(memory, schedule=EvaluationSchedule())
        memory, snapshot, new = judge(memory, merged, merged.now, settings)
        snapshots.append(snapshot)
        changes += new
    return Judged(snapshots, changes, memory)


def in_steps(events: Sequence[dict[str, Any]], every_s: int, until_s: int) -> list[Step]:
    """The events by the time of the evaluation that takes them in."""
    every_ms = every_s * 1000
    due: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        due[-(-(event["at"] - T0) // every_ms) * every_ms].append(event)
    return [(t, due.get(t, [])) for t in range(0, until_s * 1000 + 1, every_ms)]


def in_steps_closely_from(
    events: Sequence[dict[str, Any]], closely_from_s: int, every_s: tuple[int, int], until_s: int
) -> list[Step]:
    """The same in long steps until `closely_from_s`, a multiple of both lengths, and in short ones from then on."""
    long_s, short_s = every_s
    closely = [step for step in in_steps(events, short_s, until_s) if step[0] > closely_from_s * 1000]
    return [*in_steps(events, long_s, closely_from_s), *closely]
