"""One queue as a rule sees it: the merged facts, what is remembered, the limits that apply, and the time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streaming.core.reporting.merge import Merged
from streaming.core.reporting.report import Arrival, QueueFacts
from streaming.core.reporting.views import MessageView
from streaming.core.settings import QueueName, Settings
from streaming.core.state.queues import (
    NEVER,
    dead_letter_queue,
    hold_quantile_ms,
    max_receive_count,
    poison_receives,
    retention_ms,
    visibility_ms,
)
from streaming.core.thresholds import Thresholds
from streaming.judge.history import History, Window
from streaming.judge.knowledge.basis import Basis
from streaming.judge.knowledge.queue import NOTHING_KNOWN, Knowledge
from streaming.judge.memory import QueueMemory
from streaming.judge.signals import Finding, Severity, SignalKey, SignalName
from streaming.judge.snapshot import QueueStatus

BROKER_COUNTS_FRESH_MS = 600_000
"""Counts the broker gave longer ago than this say nothing about now."""

HOLD_HALF_LIFE_MS = 3_600_000
SETTLED_TOTALS = ("deleted", "dead_lettered", "redriven", "expired", "dropped", "reconciled")


@dataclass
class Context:
    """Built once per queue and evaluation. Times are epoch milliseconds."""

    facts: QueueFacts
    memory: QueueMemory
    merged: Merged
    now: int
    settings: Settings
    firing: dict[SignalKey, Finding]
    """What of this queue fired after the last evaluation."""
    recent: Window
    """The last eleven minutes, the present included."""
    history: History
    arrivals: tuple[Arrival, ...] = ()
    """Dead letters that came into this queue lately."""
    knowledge: Knowledge = NOTHING_KNOWN
    """What may be said of the queue, and how sure it is."""
    flow_status: QueueStatus | None = None
    """The status by what came and went lately, once somebody asked."""

    @cached_property
    def name(self) -> QueueName:
        return self.facts.name

    @cached_property
    def thresholds(self) -> Thresholds:
        return self.settings.thresholds(self.facts.name)

    @cached_property
    def visibility_ms(self) -> int | None:
        """The queue's visibility timeout, None where only an acknowledgement ends a delivery."""
        found = visibility_ms(self.facts, self.settings)
        return None if found >= NEVER else found

    @cached_property
    def retention_ms(self) -> int:
        return retention_ms(self.facts, self.settings)

    @cached_property
    def max_receive_count(self) -> int | None:
        return max_receive_count(self.facts, self.settings)

    @cached_property
    def poison_receives(self) -> int:
        return poison_receives(self.facts, self.settings)

    @cached_property
    def dead_letter_queue(self) -> str | None:
        return dead_letter_queue(self.facts, self.settings)

    @cached_property
    def ordered(self) -> bool:
        return self.facts.ordered or self.settings.is_ordered(self.facts.name)

    @property
    def is_dead_letter_queue(self) -> bool:
        return self.facts.dead_letter

    @cached_property
    def past(self) -> Window:
        """Everything remembered, the present included: ten seconds apart at first, ever farther behind."""
        return self.history.window(self.name)

    @property
    def basis(self) -> Basis:
        """Which kind of knowledge there is of the queue."""
        return self.knowledge.reason.basis

    @cached_property
    def tracked(self) -> int:
        """Unsettled messages known one by one."""
        numbers = self.facts.numbers
        return numbers["visible"] + numbers["in_flight"] + numbers["delayed"]

    @cached_property
    def broker_counts(self) -> dict[str, int]:
        """The broker's own counts by state, those that are fresh."""
        counts = {}
        for state in ("visible", "in_flight", "delayed"):
            told = self.facts.attributes.get(state)
            if told is None or self.now - told[0] > BROKER_COUNTS_FRESH_MS:
                continue
            if isinstance(told[1], int) and not isinstance(told[1], bool):
                counts[state] = told[1]
        return counts

    @cached_property
    def coverage_ratio(self) -> float | None:
        """Tracked messages as a share of the broker's count (of one where it counts none and some are tracked); None where
        there is nothing to compare."""
        if "visible" not in self.broker_counts:
            return None
        counted = sum(self.broker_counts.values())
        return 1.0 if counted == self.tracked == 0 else self.tracked / max(counted, 1)

    @cached_property
    def settled_total(self) -> int:
        return sum(self.facts.total(name) for name in SETTLED_TOTALS)

    @cached_property
    def median_hold_ms(self) -> int | None:
        """How long this queue's messages are usually held before they are deleted; recent ones weigh more."""
        return hold_quantile_ms(self.memory.holds, 0.5)

    @cached_property
    def paused(self) -> bool:
        return self.facts.attribute("paused") is True

    def messages(self, kind: str) -> list[MessageView]:
        """The messages listed under a kind, the worst first."""
        return [listed.view for listed in self.facts.messages.get(kind, [])]

    def firing_here(self, signal: SignalName) -> list[Finding]:
        """Findings of one signal about this queue that fired after the last evaluation."""
        return [f for k, f in self.firing.items() if k.signal == signal]

    def key(self, signal: SignalName, **about: str | None) -> SignalKey:
        """The key of a signal about this queue, or about a message, group or consumer of it."""
        system, scope, queue = self.name
        return SignalKey(signal, system, scope, queue, **about)

    def finding(
        self, signal: SignalName, severity: Severity, since: int, evidence: dict[str, Any], **about: str | None
    ) -> Finding:
        """A finding about this queue; `evidence` must hold a `summary`."""
        evidence = {**evidence, "basis": self.basis}
        return Finding(self.key(signal, **about), severity, min(since, self.now), evidence)

    def remember_holds(self) -> None:
        """Take newly counted holding times into the decaying picture of what is usual."""
        memory = self.memory
        elapsed = max(0, self.now - memory.holds_at) if memory.holds_at else 0
        if self.facts.holds == memory.holds_counted:
            return
        fade = 0.5 ** (elapsed / HOLD_HALF_LIFE_MS)
        faded = {bucket: weight * fade for bucket, weight in memory.holds.items() if weight * fade > 0.01}
        for bucket, count in self.facts.holds.items():
            new = count - memory.holds_counted.get(bucket, 0)
            if new > 0:
                faded[bucket] = faded.get(bucket, 0.0) + new
        memory.holds, memory.holds_counted, memory.holds_at = faded, dict(self.facts.holds), self.now


def seconds(milliseconds: float) -> float:
    """For evidence: seconds with at most one decimal."""
    return round(milliseconds / 1000, 1)


def duration(milliseconds: float) -> str:
    """For a sentence: `45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    s = int(max(0, milliseconds) // 1000)
    if s < 120:
        return f"{s} s"
    minutes, hours, days = s // 60, s // 3600, s // 86_400
    if minutes < 120:
        return f"{minutes} min"
    if hours < 48:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{days} d {hours % 24} h" if hours % 24 else f"{days} d"


def plural(count: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
