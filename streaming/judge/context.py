"""One queue as a rule sees it: the merged summary, the judge's memory, the limits that apply, and the time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from streaming.core.reporting.merge import Merged
from streaming.core.reporting.report import Arrival, QueueAttributes, QueueSummary
from streaming.core.reporting.views import MessageView
from streaming.core.settings import QueueName, Settings
from streaming.core.state.duration_buckets import median_ms, quantile_ms
from streaming.core.state.queues import (
    END_TOTALS,
    NEVER,
    Reported,
    dead_letter_queue,
    known_visibility_s,
    max_receive_count,
    poison_receives,
    retention_ms,
    visibility_ms,
)
from streaming.core.thresholds import Thresholds
from streaming.judge.broker_counts import COUNTS_FRESH_MS
from streaming.judge.findings.signals import Finding, Severity, SignalKey, SignalName
from streaming.judge.findings.words import duration_ms
from streaming.judge.history.history import DENSE_MS, History
from streaming.judge.history.window import Window
from streaming.judge.knowledge.basis import Basis
from streaming.judge.knowledge.dead_letter_sources import DeadLetterSources
from streaming.judge.knowledge.queue import NOTHING_KNOWN, Knowledge
from streaming.judge.memory.queue_memory import QueueMemory
from streaming.judge.snapshot import QueueStatus

HOUR_MS, DAY_MS = 3_600_000, 86_400_000

FEWEST_HOLDS = 10
"""With fewer finished messages, it is not known how long one may usually be held."""


@dataclass
class Context:
    """Built once per queue and evaluation. Times are epoch milliseconds."""

    summary: QueueSummary
    memory: QueueMemory
    """As the evaluation before left it, with the latest counts and holding times applied. Rules only read it."""
    merged: Merged
    now: int
    settings: Settings
    firing: Mapping[SignalKey, Finding]
    """Signals of this queue that fired after the last evaluation."""
    recent: Window
    """The last eleven minutes, including the present."""
    history: History
    arrivals: tuple[Arrival, ...] = ()
    """Dead letters that arrived in this queue recently."""
    knowledge: Knowledge = NOTHING_KNOWN
    """What is known about the queue, and how reliably."""
    sources: DeadLetterSources | None = None
    """Where dead letters come from."""
    computed: dict[Any, Any] = field(default_factory=dict)
    """What was already computed for this evaluation: see `conditions.once`."""
    flow_status: QueueStatus | None = None
    """The status by recent flow, where it was computed for all queues or already for this one."""
    processed: dict[int, int] | None = None
    """Bucket of processing times -> messages so far, if there are more of them than the judge's memory has."""

    name: QueueName = field(init=False)
    thresholds: Thresholds = field(init=False)
    visibility_ms: int | None = field(init=False)
    """The queue's visibility timeout, None where only an acknowledgement ends a delivery."""
    visibility_is_known: bool = field(init=False)
    """Whether that is reported or configured, not assumed."""
    max_receive_count: int | None = field(init=False)
    dead_letter_queue: str | None = field(init=False)
    ordered: bool = field(init=False)
    paused: bool = field(init=False)
    tracked: int = field(init=False)
    """The number of unsettled messages tracked individually."""
    broker_counts: dict[str, int] = field(init=False)
    """The broker's own counts by state, if fresh."""
    dead_letter_attributes: QueueAttributes | None = field(init=False)
    """The broker's report on the queue's dead-letter queue; None where it has none, or none that is known."""

    def __post_init__(self) -> None:
        # What is read of every queue. On Python 3.11 a cached property takes a lock, which takes longer than most of these.
        summary, settings, numbers = self.summary, self.settings, self.summary.numbers
        self.name = summary.name
        self.thresholds = settings.thresholds(summary.name)
        window_ms = visibility_ms(summary, settings)
        self.visibility_ms = None if window_ms >= NEVER else window_ms
        self.visibility_is_known = known_visibility_s(summary, settings) is not None
        self.max_receive_count = max_receive_count(summary, settings)
        self.dead_letter_queue = dead_letter_queue(summary, settings)
        self.ordered = summary.ordered or settings.keeps_order(summary.name, summary.attribute("ordered"))
        self.paused = summary.attribute("paused") is True
        self.tracked = numbers["visible"] + numbers["in_flight"] + numbers["delayed"]
        self.broker_counts = _fresh_counts(summary.attributes, self.now)
        self.dead_letter_attributes = self._attributes_of(self.dead_letter_queue)

    @property
    def tracked_near_count(self) -> int:
        """The number of messages tracked now or at the time of the latest count, whichever is nearer to it.

        Since the last poll a backlog may have grown; where sends are reported late, less was known at its time. A count without
        the messages in flight may be any number from that of the visible messages to that of all.
        """
        counted, uncounted = sum(self.broker_counts.values()), self._in_flight_is_uncounted
        visible_then, all_then = self._tracked_at_count(in_flight_is_uncounted=uncounted)
        now, then = (self.summary.numbers["visible"], visible_then) if uncounted else (self.tracked, all_then)
        return min(max(counted, min(now, then)), max(self.tracked, all_then))

    @property
    def _in_flight_is_uncounted(self) -> bool:
        """Whether the latest count came without the messages in flight."""
        visible, in_flight = (self.summary.attributes.get(state) for state in ("visible", "in_flight"))
        return visible is not None and (in_flight is None or in_flight.at < visible.at)

    def _tracked_at_count(self, *, in_flight_is_uncounted: bool) -> tuple[int, int]:
        """Return the numbers of visible messages, and of all, tracked at the time of the latest count."""
        visible_now = self.summary.numbers["visible"]
        if in_flight_is_uncounted:
            at = self.summary.attributes["visible"].at
        elif self.summary.depths:
            at = self.summary.depths[-1].at
        else:
            return visible_now, self.tracked
        then = self.memory.evidence.tracked_at(at)
        if then is not None:
            return then[0], sum(then)
        # The queue was not judged when this count came, because it was equal to the one before and nothing had changed.
        before = self.recent.last_before(at)
        if before < 0:
            return visible_now, self.tracked
        return self.recent.value("tracked_visible", before), self.recent.value("unsettled", before)

    @cached_property
    def coverage_ratio(self) -> float | None:
        """Tracked messages as a share of the broker's count; None where there is nothing to compare."""
        if "visible" not in self.broker_counts:
            return None
        counted, tracked = sum(self.broker_counts.values()), self.tracked_near_count
        # A count of zero while some are tracked is treated as a count of one.
        return 1.0 if counted == tracked == 0 else tracked / max(counted, 1)

    @cached_property
    def retention_ms(self) -> int:
        return retention_ms(self.summary, self.settings)

    @cached_property
    def poison_receives(self) -> int:
        return poison_receives(self.summary, self.settings)

    def _attributes_of(self, sibling: str | None) -> QueueAttributes | None:
        place = self.merged.queues.place(self.name.sibling(sibling)) if sibling else None
        return self.merged.queues.attributes(place) if place is not None else None

    @property
    def is_dead_letter_queue(self) -> bool:
        return self.summary.dead_letter

    @cached_property
    def past(self) -> Window:
        """All samples including the present: ten seconds apart at first, further apart with age."""
        return self.history.window(self.name)

    def samples_of(self, span_ms: int) -> Window:
        """Return the samples of the last `span_ms` and the last one before them, if there is one: at least those of `recent`."""
        if span_ms <= DENSE_MS:
            return self.recent
        before = self.past.last_before(self.now - span_ms)
        return self.past.since(self.past.times[before]) if before >= 0 else self.past

    @property
    def visibility_window(self) -> str:
        """Return the visibility window of the queue in words, with its length if that is not only assumed."""
        length = f" of {duration_ms(self.visibility_ms)}" if self.visibility_is_known and self.visibility_ms is not None else ""
        return f"visibility window{length}"

    @property
    def basis(self) -> Basis:
        """The queue's basis of knowledge."""
        return self.knowledge.reason.basis

    @property
    def judged_by_counts(self) -> bool:
        """Whether the broker's counts show what consumers do, because not all messages or not all receives are reported."""
        return self.basis != "messages" or (not self.knowledge.in_flight_is_known and "visible" in self.summary.attributes)

    @cached_property
    def settled_total(self) -> int:
        return sum(self.summary.total(name) for name in END_TOTALS)

    @cached_property
    def median_hold_ms(self) -> int | None:
        """The median time this queue's messages are held before deletion; recent ones weigh more."""
        return median_ms(self.memory.hold_weights)

    @cached_property
    def long_hold_ms(self) -> int | None:
        """The 99th percentile of the times that this queue's messages are held; None while too few were finished to tell."""
        if self.summary.total("processed") < FEWEST_HOLDS:
            return None
        return quantile_ms(self.memory.hold_weights, 0.99)

    def messages(self, kind: str) -> list[MessageView]:
        """Return the messages listed under a kind, worst first."""
        listed = self.summary.messages
        # Most kinds are not there, and a lookup that fails takes ten times as long.
        return [one.view for one in listed[kind]] if kind in listed else []

    def firing_here(self, signal: SignalName) -> list[Finding]:
        """Return the findings of one signal about this queue that fired after the last evaluation."""
        return [f for k, f in self.firing.items() if k.signal == signal] if self.firing else []

    def key(self, signal: SignalName, **about: str | None) -> SignalKey:
        """Return the key of a signal about this queue, or about one of its messages, groups or consumers."""
        system, scope, queue = self.name
        return SignalKey(signal, system, scope, queue, **about)

    def finding(
        self,
        signal: SignalName,
        severity: Severity,
        since: int,
        evidence: dict[str, Any],
        *,
        blamed: Iterable[str | None] = (),
        **about: str | None,
    ) -> Finding:
        """Create a finding about this queue; `evidence` must hold a `summary`. `blamed`: consumers, as far as known."""
        evidence = {**evidence, "basis": self.basis}
        names = tuple(filter(None, blamed))
        return Finding(self.key(signal, **about), severity, min(since, self.now), evidence, blamed=names)


def _fresh_counts(attributes: Mapping[str, Reported], now: int) -> dict[str, int]:
    counts = {}
    for state in ("visible", "in_flight", "delayed"):
        if state in attributes:
            at, value = attributes[state]
            if now - at <= COUNTS_FRESH_MS and isinstance(value, int) and value is not True and value is not False:
                counts[state] = value
    return counts
