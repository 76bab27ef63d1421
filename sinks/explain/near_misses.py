"""How near the quiet signals of a queue, message, group or consumer are to firing, the nearest first.

Values and limits are the judge's own (`streaming.judge.measures`). Of a number at or beyond its limit nothing is said: the rule
has further conditions (something must hold for a while, or somebody must be at work), and they do not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sinks.explain.words import count, duration
from streaming.core.settings import QueueName, Settings
from streaming.judge import measures
from streaming.judge.knowledge.needs import supported
from streaming.judge.measures import Measured
from streaming.judge.signals import SignalName
from streaming.judge.snapshot import ConsumerView, GroupView, MessageView, QueueView

Unit = Literal["seconds", "count", "ratio"]


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A signal that does not fire: the number as it is, and the limit it would have to reach."""

    signal: SignalName
    value: float
    limit: float
    unit: Unit
    nearness: float
    """From 0 to 1: how much of the way to the limit is gone."""
    sentence: str


@dataclass(frozen=True, slots=True)
class Quiet:
    """What may be asked about one queue of a snapshot, with the settings the judge uses."""

    queue: QueueView
    settings: Settings
    now_ms: int

    def of_queue(self, firing: frozenset[SignalName] = frozenset()) -> tuple[NearMiss, ...]:
        """The queue's near misses; a signal that fires, or whose numbers are not known, is left out."""
        return self._chosen((*self._poison(), *self._held(), *self._stalled(), *self._lagging(), *self._standing(),
                             *self._expiring(), *self._covered()), firing)  # fmt: skip

    def of_message(self, message: MessageView, firing: frozenset[SignalName]) -> tuple[NearMiss, ...]:
        """One message's."""
        since = message.last_received_at_ms if message.state == "in_flight" else None
        words = f"it was received {count(message.receive_count, 'time')}"
        return self._chosen((*self._receives(message.receive_count, words), *self._hold(since, "it is held for")), firing)

    def of_group(self, group: GroupView, firing: frozenset[SignalName]) -> tuple[NearMiss, ...]:
        """One ordering group's."""
        return self._chosen(self._stands(group, "it"), firing)

    def of_consumer(self, consumer: ConsumerView, firing: frozenset[SignalName]) -> tuple[NearMiss, ...]:
        """One consumer's."""
        return self._chosen(self._hold(consumer.oldest_held_since_ms, "its longest hold is"), firing)

    def _chosen(self, found: Iterable[NearMiss], firing: frozenset[SignalName]) -> tuple[NearMiss, ...]:
        near = [miss for miss in found if miss.signal not in firing and supported(miss.signal, self.queue.basis) is not None]
        return tuple(sorted(near, key=lambda miss: -miss.nearness))

    def _poison(self) -> Iterator[NearMiss]:
        highest = self.queue.receive_count_max
        if highest is not None:
            yield from self._receives(highest, f"the highest receive count is {highest:,}")

    def _receives(self, receives: int, words: str) -> Iterator[NearMiss]:
        # A dead letter's receive count goes on from the queue it came from.
        if not self.queue.is_dead_letter_queue:
            m = measures.receives(receives, _Told(self.queue), self.settings)
            yield from _miss("PoisonMessage", m, f"{words}; it fires at {m.limit:,}")

    def _held(self) -> Iterator[NearMiss]:
        since = [c.oldest_held_since_ms for c in self.queue.consumers if c.oldest_held_since_ms is not None]
        return self._hold(min(since, default=None), "the longest hold is")

    def _hold(self, since: int | None, words: str) -> Iterator[NearMiss]:
        if since is not None:
            m = measures.hold(since, self.now_ms, _Told(self.queue), self.settings)
            yield from _miss("MessageHeldTooLong", m, f"{words} {_s(m.value)}; it fires after {_s(m.limit)} without a break")

    def _stalled(self) -> Iterator[NearMiss]:
        q = self.queue
        if q.visible and q.last_settled_at_ms is not None and self._is_worked_on():
            m = measures.stall(q.last_settled_at_ms, self.now_ms, q.basis, self.settings.thresholds(q.name))
            words = f"{count(q.visible, 'message')} visible, the last was finished {_s(m.value)} ago"
            yield from _miss("QueueStalled", m, f"{words}; it fires after {_s(m.limit)} without one")

    def _lagging(self) -> Iterator[NearMiss]:
        q = self.queue
        if "visible" in q.oldest_ms and self._is_worked_on():
            limits = self.settings.thresholds(q.name)
            m = measures.lag(q.oldest_ms["visible"], self.now_ms, limits)
            least = "" if "visible" in q.exact_ages else "at least "
            words = f"the oldest visible message is {least}{_s(m.value)} old"
            when = f"it fires when it will grow to {_s(m.limit)} within {duration(limits.lag_forecast_s)}"
            yield from _miss("QueueLagging", m, f"{words}; {when}")

    def _is_worked_on(self) -> bool:
        return not self.queue.is_dead_letter_queue and self.queue.broker.get("paused") is not True

    def _standing(self) -> Iterator[NearMiss]:
        misses = [miss for group in self.queue.top_groups for miss in self._stands(group, f"group {group.group}")]
        if misses:
            yield max(misses, key=lambda miss: miss.nearness)

    def _stands(self, group: GroupView, who: str) -> Iterator[NearMiss]:
        if self.queue.ordered and group.unsettled > 1 and not self.queue.is_dead_letter_queue:
            since = max(group.oldest_sent_at_ms, group.last_settled_at_ms or 0)
            m = measures.stand(since, self.now_ms, _Told(self.queue), self.settings)
            words = f"{who} has finished nothing for {_s(m.value)} while messages wait behind its head"
            yield from _miss("GroupStuck", m, f"{words}; it fires after {_s(m.limit)}")

    def _expiring(self) -> Iterator[NearMiss]:
        q = self.queue
        if q.is_dead_letter_queue and q.dead_letter_expires_at_ms is not None:
            m = measures.expiry(q.dead_letter_expires_at_ms, self.now_ms, _Told(q), self.settings)
            words = f"the first dead letter is lost in {_s(m.value)}"
            yield from _miss("DeadLetterExpiring", m, f"{words}; it fires below {_s(m.limit)}")

    def _covered(self) -> Iterator[NearMiss]:
        if self.queue.coverage_ratio is not None:
            limits = self.settings.thresholds(self.queue.name)
            m = measures.coverage(self.queue.coverage_ratio, limits)
            words = f"{m.value:.1%} of the broker's own count is tracked"
            side = "below" if m.falling else "above"
            yield from _miss("TelemetryPartial", m, f"{words}; it fires {side} {m.limit:.0%} for {duration(limits.coverage_s)}")


@dataclass(frozen=True, slots=True)
class _Told:
    """What was told of the queue, as the judge's limits ask for it."""

    queue: QueueView

    @property
    def name(self) -> QueueName:
        return self.queue.name

    def attribute(self, name: str) -> Any:
        return self.queue.broker.get(name)

    def number(self, name: str) -> float | None:
        value = self.queue.broker.get(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _miss(signal: SignalName, m: Measured, sentence: str) -> Iterator[NearMiss]:
    if not m.reached:
        unit: Unit = "seconds" if m.unit == "milliseconds" else m.unit
        per = 1000 if m.unit == "milliseconds" else 1
        yield NearMiss(signal, max(m.value, 0) / per, m.limit / per, unit, m.nearness, f"{sentence}.")


def _s(milliseconds: float) -> str:
    return duration(max(milliseconds, 0) / 1000)
