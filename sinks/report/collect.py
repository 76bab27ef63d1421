"""Collects what a replay publishes, for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streaming.core.settings import QueueName
from streaming.judge.findings.signals import SEVERITY_RANK, Finding, SignalChange, SignalKey
from streaming.judge.snapshot import QueueView, Snapshot

MANY_QUEUES = 100
"""With more queues than this, only the shown steps are kept, to limit the size of the report."""

AGES = ("all", "visible", "cloudwatch")


@dataclass
class Span:
    """A signal from start to end in epoch milliseconds; `to_ms` is None if it still fires at the end of the recording."""

    finding: Finding
    """The latest state of the finding."""
    from_ms: int
    to_ms: int | None = None

    @property
    def key(self) -> SignalKey:
        return self.finding.key


@dataclass
class QueueSeries:
    """Values of one queue by epoch millisecond; unknown values are missing."""

    ages: dict[str, dict[int, float]] = field(default_factory=dict)
    messages: dict[str, dict[int, float]] = field(default_factory=dict)
    bounds: set[str] = field(default_factory=set)
    """Scopes for which at some time only a lower bound was known."""
    is_dead_letter_queue: bool = False


@dataclass
class Collected:
    """Everything the report shows of a replay, except the events of single messages."""

    times: list[int] = field(default_factory=list)
    queues: dict[QueueName, QueueSeries] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    _open: dict[SignalKey, Span] = field(default_factory=dict)

    def on_signal(self, change: SignalChange) -> None:
        """Record a signal that began to fire, changed, or was resolved."""
        key = change.finding.key
        span = self._open.get(key)
        if change.status == "resolved":
            if span is not None:
                del self._open[key]
                span.to_ms = change.at_ms
            return
        if span is None:
            span = self._open[key] = Span(change.finding, change.at_ms)
            self.spans.append(span)
        span.finding = change.finding

    def on_snapshot(self, at_ms: int, snapshot: Snapshot, *, shown: bool) -> None:
        """Record the snapshot of one step."""
        if len(snapshot.queues) > MANY_QUEUES and not shown:
            return
        self.times.append(at_ms)
        for queue in snapshot.queues:
            self._keep(at_ms, queue)

    def _keep(self, at_ms: int, queue: QueueView) -> None:
        series = self.queues.setdefault(queue.name, QueueSeries())
        series.is_dead_letter_queue = queue.is_dead_letter_queue
        for scope, since_ms in queue.oldest_ms.items():
            if scope in AGES:
                series.ages.setdefault(scope, {})[at_ms] = max(0, at_ms - since_ms) / 1000
                if scope not in queue.exact_ages:
                    series.bounds.add(scope)
        counts: Mapping[str, int | None] = {"visible": queue.visible, "in_flight": queue.in_flight, "delayed": queue.delayed}
        for state, count in counts.items():
            if count is not None:
                series.messages.setdefault(state, {})[at_ms] = count

    def worst_first(self) -> Sequence[QueueName]:
        """Return queues by their worst signal and its time, then by name."""
        worst: dict[QueueName, tuple[int, int]] = {}
        for span in self.spans:
            rank = (severity_rank(span.finding), span.from_ms)
            name = span.key.queue_name
            worst[name] = min(rank, worst.get(name, rank))
        return sorted(self.queues, key=lambda name: (*worst.get(name, (9, 0)), tuple(name)))


def severity_rank(finding: Finding) -> int:
    """Return 0 for signals that page and more for lower severities; signals that another one explains come last."""
    rank = max(SEVERITY_RANK.values()) - SEVERITY_RANK[finding.severity]
    return rank if finding.announced else rank + len(SEVERITY_RANK)
