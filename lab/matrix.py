"""The matrix: every scenario with every kind of instrumentation, standard and FIFO, with counts of three qualities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from lab import criteria, harness
from lab.scenarios.matrix import SCENARIOS
from lab.telemetry import CHANGEOVERS, COUNTS, INSTRUMENTATIONS, Instrumentation, polled, seen

KINDS = ("standard", "fifo")
TRIGGER_MS = 10_000
CHANGEOVER_SCENARIOS = ("healthy_busy", "healthy_idle", "consumers_dead", "poison")


@dataclass(frozen=True)
class Cell:
    """One run: a scenario of a kind of queue with a seed, and the telemetry that reaches queuewatch."""

    scenario: str
    kind: str
    seed: int
    basis: str
    counts: str

    @property
    def instrumentation(self) -> Instrumentation:
        base = INSTRUMENTATIONS.get(self.basis) or CHANGEOVERS[self.basis]
        return base.with_counts(self.counts)

    @property
    def recording(self) -> tuple[str, str, int]:
        return self.scenario, self.kind, self.seed


@dataclass(frozen=True)
class Selection:
    """The selected part of the matrix; an empty list means all. Scenarios are selected by a part of their name."""

    only: Sequence[str] = ()
    basis: Sequence[str] = ()
    kinds: Sequence[str] = ()
    counts: Sequence[str] = ()
    seeds: Sequence[int] = (1,)

    def cells(self) -> Iterator[Cell]:
        """Yield the selected cells, recording by recording."""
        for scenario in SCENARIOS:
            if self.only and not any(part in scenario for part in self.only):
                continue
            for kind in self.kinds or KINDS:
                for seed in self.seeds:
                    yield from self._of(scenario, kind, seed)

    def _of(self, scenario: str, kind: str, seed: int) -> Iterator[Cell]:
        for basis in (*INSTRUMENTATIONS, *CHANGEOVERS):
            changeover = basis in CHANGEOVERS
            if (self.basis and basis not in self.basis) or (changeover and scenario not in CHANGEOVER_SCENARIOS):
                continue
            for counts in self.counts or (("exact",) if changeover else tuple(COUNTS)):
                yield Cell(scenario, kind, seed, basis, counts)


def run_matrix(selection: Selection, jobs: int) -> Iterator[list[dict[str, Any]]]:
    """Run the selected cells on `jobs` processes; rows come as they finish, in the order of the cells."""
    groups = [list(cells) for _, cells in groupby(selection.cells(), key=lambda c: (c.recording, c.basis in CHANGEOVERS))]
    if jobs == 1:
        yield from map(run_cells, groups)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_cells, groups)


def run_cells(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return the rows of cells that share one recording."""
    scenario, kind, seed = cells[0].recording
    recording = SCENARIOS[scenario](kind, seed)
    rows = []
    for cell in cells:
        events = seen(recording, cell.instrumentation)
        outcome = harness.run(events, trigger_ms=TRIGGER_MS, until=recording.ends_at)
        polls = {queue: polled(events, queue) for queue in recording.settings}
        verdict = criteria.judge(recording, cell.instrumentation, outcome, polls)
        about = {"scenario": scenario, "kind": kind, "basis": cell.basis, "counts": cell.counts, "seed": seed}
        rows.append({**about, **verdict.as_json(), "signals": _signals(outcome), "bases": _bases(outcome, recording.settings)})
    return rows


def _signals(outcome: harness.Outcome) -> dict[str, int]:
    """Count how often each signal began to fire."""
    names = sorted(f"{s['signal']}:{s['severity']}" for s in outcome.fired())
    return {name: len(list(same)) for name, same in groupby(names)}


def _bases(outcome: harness.Outcome, queues: Any) -> list[str]:
    """Return the bases of knowledge of the first queue, in order of publication."""
    main = max(queues, key=lambda q: len(outcome.chosen("queue_status", q)) and "dlq" not in q)
    return [basis for basis, _ in groupby(outcome.chosen("telemetry_basis", main).values())]
