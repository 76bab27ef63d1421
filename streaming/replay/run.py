"""The replay pipeline: read → steps → (engine: track, merge) → judge → lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from streaming.core.events.packet import Packet, pack, unpack
from streaming.core.events.route import route
from streaming.core.reporting.merge import Merged, merge
from streaming.core.settings import Settings
from streaming.core.state.state import ShardState
from streaming.core.track import track
from streaming.judge.findings.signals import SignalChange
from streaming.judge.judge import judge
from streaming.judge.memory.memory import JudgeMemory
from streaming.judge.metrics import Sample, samples
from streaming.judge.snapshot import Snapshot
from streaming.replay.recording import Recording, Step, steps


class Engine(Protocol):
    """Tracks the steps: a call with `(steps, settings)` returns the merged report of each step, in order."""

    def __call__(self, steps: Iterable[Step], settings: Settings) -> Iterator[tuple[Step, Merged]]: ...


def local_engine(steps: Iterable[Step], settings: Settings) -> Iterator[tuple[Step, Merged]]:
    """Track with one shard, in this process."""
    state, nothing = ShardState.empty(), unpack([])
    for step in steps:
        packet = route(step.events, step.invalid, step.quarantine, 1, settings)[0] if _has_input(step) else nothing
        state, report = track(state, packet, step.at, settings)
        yield step, merge([report], settings)


def packets(step: Step, shards: int, settings: Settings) -> list[bytes]:
    """Return one packed packet per shard, for engines that distribute the work."""
    routed: list[Packet] = route(step.events, step.invalid, step.quarantine, shards, settings)
    return [pack(packet) for packet in routed]


def _has_input(step: Step) -> bool:
    return bool(len(step.events) or step.invalid)


def replay(
    recording: Recording,
    settings: Settings,
    *,
    every_ms: int,
    until: int | None,
    engine: Engine,
    on_signal: Callable[[SignalChange], None],
    on_metric: Callable[[int, Sample], None],
    on_step: Callable[[Step, Snapshot], None] | None = None,
) -> None:
    """Judge the whole recording, and pass on each signal change and, at every shown step, every metric, ordered by time.

    `on_step` gets the snapshot of every judging step, shown or not.
    """
    known = replace(settings, now_is_event_time=True, ordered_queues=settings.ordered_queues | recording.ordered_queues)
    memory = JudgeMemory.empty()
    for step, merged in engine(steps(recording, every_ms, until), known):
        memory, snapshot, changes = judge(memory, merged, step.at, known)
        for change in changes:
            on_signal(change)
        if on_step is not None:
            on_step(step, snapshot)
        if step.shown:
            for sample in samples(snapshot, step.at):
                on_metric(step.at, sample)
