"""Compute how far a queue meets its objectives, from the service's own counters.

These are totals since counting began. A budget of 28 days needs the past values of the same counters, which Prometheus has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from alerts.objectives import LOST, Objective
from streaming.judge.snapshot import DURATION_BUCKETS_S, QueueView

_IN_TIME: Final = {bound: number + 1 for number, bound in enumerate(DURATION_BUCKETS_S)}
"""The number of histogram buckets that are in time, by the objective's bound."""


@dataclass(frozen=True, slots=True)
class ObjectiveResult:
    """One objective of one queue since counting began."""

    name: str
    objective: Objective
    ended: int
    """Messages settled or lost."""
    missed: int
    """How many of them were late, dead-lettered, expired or dropped."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; ratios are None before any message has ended."""
        ended, allowed = self.ended, (1 - self.objective.ratio) * self.ended
        return {
            "objective": self.name,
            "of": self.objective.of,
            "within_s": self.objective.within_s,
            "ratio": self.objective.ratio,
            "ended": ended,
            "missed": self.missed,
            "in_time_ratio": 1 - self.missed / ended if ended else None,
            "budget_used_ratio": round(self.missed / allowed, 6) if ended else None,
        }


def objective_results(objectives: Mapping[str, Objective], queue: QueueView) -> Iterator[ObjectiveResult]:
    """Yield the objectives of this queue, counted like the recording rules count them."""
    for name, objective in objectives.items():
        if re.fullmatch(objective.queues, queue.queue):
            took = queue.durations.get(objective.of)
            counts = took.counts if took else ()
            ended = sum(counts) + sum(queue.totals.get(lost, 0) for lost in LOST)
            yield ObjectiveResult(name, objective, ended, ended - sum(counts[: _IN_TIME[objective.within_s]]))
