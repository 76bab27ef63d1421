"""How far a queue or message is from firing: number against limit, for the signals a snapshot can tell.

The judge decides; this only puts its numbers side by side. Where they would have to fire and the judge has
its reasons (a count that goes on in a dead-letter queue, a condition that must hold for a while), nothing
is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sinks.words import count, duration
from streaming.core.thresholds import Thresholds
from streaming.judge.signals import SignalName
from streaming.judge.snapshot import MessageView, QueueView

Unit = Literal["seconds", "count", "ratio"]


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A signal that does not fire: the number as it is, and the limit it would have to reach."""

    signal: SignalName
    value: float
    limit: float
    unit: Unit
    sentence: str


def queue_near_misses(queue: QueueView, limits: Thresholds, now_ms: int) -> tuple[NearMiss, ...]:
    """For a queue; a signal whose numbers are not known is left out."""
    return tuple(_queue(queue, limits, now_ms))


def message_near_misses(queue: QueueView, message: MessageView, limits: Thresholds, now_ms: int) -> tuple[NearMiss, ...]:
    """For one message."""
    return tuple(_message(queue, message, limits, now_ms))


def _queue(queue: QueueView, limits: Thresholds, now_ms: int) -> Iterator[NearMiss]:
    poison, highest = poison_limit(queue, limits), queue.receive_count_max
    if highest is not None and highest < poison:
        sentence = f"the highest receive count is {highest:,}; it fires at {poison:,}."
        yield NearMiss("PoisonMessage", highest, poison, "count", sentence)
    held_since = [c.oldest_held_since_ms for c in queue.consumers if c.oldest_held_since_ms is not None]
    held_limit_s = _held_limit_s(queue, limits)
    if held_since:
        yield _held(_age_s(now_ms, min(held_since)), held_limit_s)
    if queue.visible is not None:
        yield _stalled(queue, limits, now_ms)
    if queue.ordered and queue.groups and not queue.stuck_groups:
        yield NearMiss(
            "GroupStuck",
            0,
            1,
            "count",
            f"none stands still of {count(queue.groups.get('backlog', 0), 'group')} with a backlog.",
        )
    if queue.is_dead_letter_queue and queue.dead_letter_expires_at_ms is not None:
        yield _expiring(queue, limits, now_ms)
    if queue.coverage_ratio is not None:
        low, high = limits.coverage_low_ratio, limits.coverage_high_ratio
        yield NearMiss(
            "TelemetryPartial",
            queue.coverage_ratio,
            low,
            "ratio",
            f"{queue.coverage_ratio:.1%} of the broker's own count is tracked; it fires below {low:.0%} "
            f"or above {high:.0%} for {duration(limits.coverage_s)}.",
        )


def _message(queue: QueueView, message: MessageView, limits: Thresholds, now_ms: int) -> Iterator[NearMiss]:
    poison = poison_limit(queue, limits)
    if message.receive_count < poison:
        sentence = f"it was received {count(message.receive_count, 'time')}; it fires at {poison:,}."
        yield NearMiss("PoisonMessage", message.receive_count, poison, "count", sentence)
    limit_s = _held_limit_s(queue, limits)
    if message.state == "in_flight" and message.last_received_at_ms is not None:
        yield _held(_age_s(now_ms, message.last_received_at_ms), limit_s)


def _held(held_s: float, limit_s: float) -> NearMiss:
    sentence = f"the longest hold is {duration(held_s)}; it fires after {duration(limit_s)} without a break."
    return NearMiss("MessageHeldTooLong", held_s, limit_s, "seconds", sentence)


def _stalled(queue: QueueView, limits: Thresholds, now_ms: int) -> NearMiss:
    quiet_s = 0.0 if queue.last_settled_at_ms is None else _age_s(now_ms, queue.last_settled_at_ms)
    if not queue.visible:
        sentence = "nothing waits to be received."
    elif queue.last_settled_at_ms is None:
        sentence = f"{count(queue.visible, 'message')} visible; none was seen finished yet."
    else:
        sentence = (
            f"{count(queue.visible, 'message')} visible, the last was finished {duration(quiet_s)} ago; "
            f"it fires after {duration(limits.stalled_s)} without one."
        )
    return NearMiss("QueueStalled", quiet_s if queue.visible else 0.0, limits.stalled_s, "seconds", sentence)


def _expiring(queue: QueueView, limits: Thresholds, now_ms: int) -> NearMiss:
    left_s = max(0, (queue.dead_letter_expires_at_ms or now_ms) - now_ms) / 1000
    retention_s = queue.broker.get("retention_s")
    limit_s = limits.dead_letter_expiring_s
    if isinstance(retention_s, int | float):
        limit_s = min(limit_s, limits.dead_letter_expiring_ratio * retention_s)
    sentence = f"the first dead letter is lost in {duration(left_s)}; it fires below {duration(limit_s)}."
    return NearMiss("DeadLetterExpiring", left_s, limit_s, "seconds", sentence)


def poison_limit(queue: QueueView, limits: Thresholds) -> int:
    """From how many receives on a message is a suspect."""
    most = queue.broker.get("max_receive_count")
    return min(limits.poison_receives, max(2, most)) if isinstance(most, int) else limits.poison_receives


def _held_limit_s(queue: QueueView, limits: Thresholds) -> float:
    visibility_s = queue.broker.get("visibility_timeout_s")
    if not isinstance(visibility_s, int | float):
        return limits.held_min_s
    return max(limits.held_min_s, limits.held_visibility_factor * visibility_s)


def _age_s(now_ms: int, since_ms: int) -> float:
    return max(0, now_ms - since_ms) / 1000
