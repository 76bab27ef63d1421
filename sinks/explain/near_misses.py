"""How near the signals of a queue, message, group or consumer that do not fire are to firing, the nearest first.

Values and limits come from the judge (`streaming.judge.findings.measures`). A value at or beyond its limit is left out: the rule
has further conditions (something must last for a while, or consumers must be active) that do not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sinks.explain.formatting import count, duration, duration_ms, share
from streaming.core.settings import QueueName, Settings
from streaming.core.thresholds import Thresholds
from streaming.judge.findings import measures
from streaming.judge.findings.measured import Measured
from streaming.judge.findings.signals import SignalName
from streaming.judge.knowledge.signal_requirements import supported
from streaming.judge.snapshot import ConsumerView, GroupView, MessageView, QueueView

Unit = Literal["seconds", "count", "ratio"]


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A signal that does not fire: its current value, and the limit."""

    signal: SignalName
    value: float
    limit: float
    unit: Unit
    nearness: float
    """How close the value is to the limit, from 0 to 1."""
    sentence: str


@dataclass(frozen=True, slots=True)
class NearMisses:
    """Computes the near misses of one queue of a snapshot, with the judge's settings."""

    queue: QueueView
    settings: Settings
    now_ms: int

    def of_queue(self, firing: frozenset[SignalName] = frozenset()) -> tuple[NearMiss, ...]:
        """Return the queue's near misses, without signals that fire or whose values are unknown."""
        return self._chosen((*self._poison(), *self._held(), *self._lagging(), *self._standing(),
                             *self._expiring(), *self._covered(), *self._left()), firing)  # fmt: skip

    def of_message(self, message: MessageView, firing: frozenset[SignalName]) -> tuple[NearMiss, ...]:
        """Return the near misses of one message."""
        words = f"it was received {count(message.receive_count, 'time')}"
        return self._chosen(
            (*self._receives(message.receive_count, words), *self._hold(message.held_since_ms, "it has been held for")), firing
        )

    def of_group(self, group: GroupView, firing: frozenset[SignalName]) -> tuple[NearMiss, ...]:
        """Return the near misses of one ordering group."""
        return self._chosen(self._stands(group, "it"), firing)

    def of_consumer(self, consumer: ConsumerView, firing: frozenset[SignalName]) -> tuple[NearMiss, ...]:
        """Return the near misses of one consumer."""
        since = consumer.oldest_held_since_ms
        return self._chosen((*self._hold(since, "its longest hold is"), *self._slow(since)), firing)

    def _chosen(self, found: Iterable[NearMiss], firing: frozenset[SignalName]) -> tuple[NearMiss, ...]:
        near = [miss for miss in found if miss.signal not in firing and supported(miss.signal, self.queue.basis) is not None]
        return tuple(sorted(near, key=lambda miss: -miss.nearness))

    def _poison(self) -> Iterator[NearMiss]:
        highest = self.queue.receive_count_max
        if highest is not None:
            yield from self._receives(highest, f"the highest receive count is {highest:,}")

    def _receives(self, receives: int, words: str) -> Iterator[NearMiss]:
        # The receive count of a dead letter continues from its source queue.
        if not self.queue.is_dead_letter_queue:
            m = measures.receives(receives, _QueueAttributes(self.queue), self.settings)
            yield from _miss("PoisonMessage", m, f"{words}; it fires at {m.limit:,}")

    def _held(self) -> Iterator[NearMiss]:
        since = [c.oldest_held_since_ms for c in self.queue.consumers if c.oldest_held_since_ms is not None]
        return self._hold(min(since, default=None), "the longest hold is")

    def _hold(self, since: int | None, words: str) -> Iterator[NearMiss]:
        if since is not None:
            m = measures.hold(since, self.now_ms, _QueueAttributes(self.queue), self.settings)
            held = f"{words} {duration_ms(m.value)}; it fires after {duration_ms(m.limit)} without a break"
            yield from _miss("MessageHeldTooLong", m, held)

    def _lagging(self) -> Iterator[NearMiss]:
        q = self.queue
        if "visible" in q.oldest_ms and not q.is_dead_letter_queue and q.broker.get("paused") is not True:
            limits = self.settings.thresholds(q.name)
            m = measures.lag(q.oldest_ms["visible"], self.now_ms, limits)
            least = "" if "visible" in q.exact_ages else "at least "
            words = f"the oldest visible message is {least}{duration_ms(m.value)} old"
            when = f"it fires when it is forecast to reach {duration_ms(m.limit)} within {duration(limits.lag_forecast_s)}"
            if limits.lag_forecast_lost_s > limits.lag_forecast_s:
                when += f" ({duration(limits.lag_forecast_lost_s)} where consumers fell silent)"
            yield from _miss("QueueLagging", m, f"{words}; {when}")

    def _standing(self) -> Iterator[NearMiss]:
        misses = [miss for group in self.queue.top_groups for miss in self._stands(group, f"group {group.group}")]
        if misses:
            yield max(misses, key=lambda miss: miss.nearness)

    def _stands(self, group: GroupView, who: str) -> Iterator[NearMiss]:
        since = group.standing_since_ms
        if self.queue.ordered and since is not None and not self.queue.is_dead_letter_queue:
            m = measures.standstill(since, self.now_ms, _QueueAttributes(self.queue), self.settings)
            words = f"{who} has finished nothing for {duration_ms(m.value)} while messages wait behind its head"
            yield from _miss("GroupStuck", m, f"{words}; it fires after {duration_ms(m.limit)}")

    def _expiring(self) -> Iterator[NearMiss]:
        q = self.queue
        if q.is_dead_letter_queue and q.dead_letter_expires_at_ms is not None:
            m = measures.expiry(q.dead_letter_expires_at_ms, self.now_ms, _QueueAttributes(q), self.settings)
            words = f"the next dead letter expires in {duration_ms(m.value)}"
            yield from _miss("DeadLetterExpiring", m, f"{words}; it fires below {duration_ms(m.limit)}")

    def _slow(self, since: int | None) -> Iterator[NearMiss]:
        m = self.queue.near.get("SlowConsumer")
        if since is not None and m is not None:
            held = duration_ms(self.now_ms - since)
            words = f"it has held its oldest message for {held}; it fires after {duration_ms(m.limit)}"
            yield from _miss("SlowConsumer", m._replace(value=self.now_ms - since), words)

    def _left(self) -> Iterator[NearMiss]:
        """Yield the near misses that only the judge could measure, because their rules use more than is published."""
        q, limits = self.queue, self.settings.thresholds(self.queue.name)
        for signal, m in q.near.items():
            if m.unit == "milliseconds":
                m = m._replace(value=m.value + self.now_ms - q.near_at_ms)
            yield from _miss(signal, m, _LEFT[signal](m, limits))

    def _covered(self) -> Iterator[NearMiss]:
        if self.queue.coverage_ratio is not None:
            limits = self.settings.thresholds(self.queue.name)
            m = measures.coverage(self.queue.coverage_ratio, limits)
            words = f"the tracked messages are {m.value:.1%} of the broker's own count"
            limit = f"{'below' if m.falling else 'above'} {share(m.limit)}"
            yield from _miss("TelemetryPartial", m, f"{words}; it fires after {duration(limits.coverage_s)} {limit}")


@dataclass(frozen=True, slots=True)
class _QueueAttributes:
    """The reported attributes of the queue, in the form that the judge's limits need."""

    queue: QueueView

    @property
    def name(self) -> QueueName:
        return self.queue.name

    def attribute(self, name: str) -> Any:
        return self.queue.broker.get(name)

    def number(self, name: str) -> float | None:
        value = self.queue.broker.get(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _deliveries(m: Measured) -> str:
    return count(m.value, "delivery", "deliveries")


def _stalled(m: Measured, _: Thresholds) -> str:
    return f"messages wait and none has been finished for {duration_ms(m.value)}; it fires after {duration_ms(m.limit)}"


def _failing(m: Measured, limits: Thresholds) -> str:
    lately, limit = f"in the last {duration(limits.failing_window_s)}", share(limits.failing_ratio)
    if m.unit == "count":
        return f"{_deliveries(m)} ended {lately}; it fires from {m.limit:,} on, if {limit} end without a settlement"
    return f"{m.value:.1%} of the deliveries that ended {lately} ended without a settlement; it fires at {limit}"


def _outlived(m: Measured, limits: Thresholds) -> str:
    what, lately = "outlived their visibility window", f"in the last {duration(limits.short_window_s)}"
    if m.unit == "count":
        ratio = share(limits.short_window_ratio)
        return f"{_deliveries(m)} {what} {lately}; it fires at {m.limit:,}, if they are {ratio} of all or more"
    return f"{m.value:.1%} of the deliveries {what} {lately}; it fires at {share(m.limit)}"


def _retried(m: Measured, limits: Thresholds) -> str:
    lately = f"in the last {duration(limits.retry_storm_window_s)}"
    ratio = share(limits.retry_storm_ratio)
    if m.unit == "count":
        return f"{_deliveries(m)} {lately}; it fires from {m.limit:,} on, if {ratio} are redeliveries from failed batches"
    return f"{m.value:.1%} of the deliveries {lately} were redeliveries from failed batches; it fires at {ratio}"


def _held_longest(m: Measured, _: Thresholds) -> str:
    return f"a consumer has held its oldest message for {duration_ms(m.value)}; it fires after {duration_ms(m.limit)}"


def _silent(m: Measured, limits: Thresholds) -> str:
    due = f"when {limits.silent_messages:,} messages were due by its own rate"
    return f"no message has arrived for {duration_ms(m.value)}; it fires after {duration_ms(m.limit)}, {due}"


def _collapsed(m: Measured, limits: Thresholds) -> str:
    in_flight, backlog = limits.collapsed_groups_in_flight, limits.collapsed_groups_backlog
    what = f"{count(in_flight, 'group')} or fewer in flight while {backlog:,} or more have messages waiting"
    return f"{what}, for {duration_ms(m.value)}; it fires after {duration_ms(m.limit)}"


_LEFT: Mapping[SignalName, Callable[[Measured, Thresholds], str]] = {
    "QueueStalled": _stalled,
    "QueueFailing": _failing,
    "WindowTooShort": _outlived,
    "BatchRetryStorm": _retried,
    "SlowConsumer": _held_longest,
    "QueueSilent": _silent,
    "ConcurrencyCollapsed": _collapsed,
}


def _miss(signal: SignalName, m: Measured, sentence: str) -> Iterator[NearMiss]:
    if not m.reached:
        unit: Unit = "seconds" if m.unit == "milliseconds" else m.unit
        per = 1000 if m.unit == "milliseconds" else 1
        yield NearMiss(
            signal=signal,
            value=max(m.value, 0) / per,
            limit=m.limit / per,
            unit=unit,
            nearness=m.nearness,
            sentence=f"{sentence}.",
        )
