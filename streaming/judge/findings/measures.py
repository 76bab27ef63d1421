"""The distance of a queue from a signal: the value a rule compares and its limit, each defined once.

Rules fire by these measures, and `explain` uses the same ones to show how near a quiet signal is: recomputed from what is
published where possible, else as the rule yielded it: see `Near`. The limits are those of the queue's own pattern. Times are
epoch milliseconds.
"""

from __future__ import annotations

import math

from streaming.core.settings import Settings
from streaming.core.state.limits import LIMITS, limits_of
from streaming.core.state.queues import Described, group_stuck_ms, poison_receives, retention_ms, visibility_ms
from streaming.core.thresholds import Thresholds
from streaming.judge.findings.measured import Measured, farthest_from_limit

COUNT_AGE_MS = 30_000
"""A broker's count is half a minute to a minute old when it arrives."""

HYSTERESIS = 0.8
"""Hysteresis: a signal about a share ends below this part of its limit, so that a half-broken queue does not flap."""
COUNT_HYSTERESIS = 0.5
"""Hysteresis of the least number of deliveries: with little traffic they are near the limit all the time."""

_HELD = LIMITS.index("held_ms")


def receives(count: int, queue: Described, settings: Settings) -> Measured:
    """PoisonMessage: deliveries of an unsettled message."""
    return Measured(count, poison_receives(queue, settings), "count")


def hold(since: int, now: int, queue: Described, settings: Settings) -> Measured:
    """MessageHeldTooLong: time in flight without a break."""
    return Measured(now - since, limits_of(queue, settings)[_HELD], "milliseconds", at_limit=False)


def slow_hold(since: int, now: int, median_hold_ms: int | None, min_hold_ms: int, median_factor: float) -> Measured:
    """SlowConsumer: hold of a consumer's oldest message, against this queue's median hold."""
    limit_ms = max(min_hold_ms, median_factor * (median_hold_ms or 0))
    return Measured(now - since, limit_ms, "milliseconds", at_limit=False)


def stall(since: int, now: int, limits: Thresholds, *, by_counts: bool) -> Measured:
    """QueueStalled: time with a visible backlog and no settlement."""
    return Measured(now - since, stall_limit_ms(limits, by_counts=by_counts), "milliseconds")


def stall_limit_ms(limits: Thresholds, *, by_counts: bool) -> float:
    """Return how long a stall lasts until QueueStalled fires; where the counts show it, they are themselves old."""
    return max(limits.stalled_s * 1000 - (COUNT_AGE_MS if by_counts else 0), 0)


def standstill(since: int, now: int, queue: Described, settings: Settings) -> Measured:
    """GroupStuck: time without a settlement in a group with messages behind its head."""
    return Measured(now - since, group_stuck_ms(settings.thresholds(queue.name), visibility_ms(queue, settings)), "milliseconds")


def expiry(expires_at: int, now: int, queue: Described, settings: Settings) -> Measured:
    """DeadLetterExpiring: time left until the first dead letter is lost."""
    limits = settings.thresholds(queue.name)
    kept_ms = retention_ms(queue, settings)
    limit_ms = int(min(limits.dead_letter_expiring_s * 1000, limits.dead_letter_expiring_ratio * kept_ms))
    return Measured(expires_at - now, limit_ms, "milliseconds", falling=True, healthy=kept_ms)


def lag(since: int, now: int, limits: Thresholds) -> Measured:
    """QueueLagging: age of the oldest visible message."""
    return Measured(now - since, limits.lag_limit_s * 1000, "milliseconds")


def failing(ended: int, failed_ratio: float, limit_ratio: float, limits: Thresholds, *, hysteresis: float = 1) -> Measured:
    """QueueFailing: share of ended deliveries without a settlement, and how many ended.

    `hysteresis`: the part of the least number of deliveries that is enough while the signal fires.
    """
    fewest = limits.failing_min_deliveries * hysteresis
    return farthest_from_limit(Measured(failed_ratio, limit_ratio, "ratio"), Measured(ended, fewest, "count"))


def outlived(
    outlived: int, deliveries: int, limits: Thresholds, *, hysteresis: float = 1, count_hysteresis: float = 1
) -> Measured:
    """WindowTooShort: share of the deliveries that outlived their visibility window, and how many did.

    `hysteresis`, `count_hysteresis`: the parts of the least share and number that are enough while the signal fires.
    """
    ratio = outlived / deliveries if deliveries else 0.0
    return farthest_from_limit(
        Measured(ratio, limits.short_window_ratio * hysteresis, "ratio"),
        Measured(outlived, limits.short_window_min_deliveries * count_hysteresis, "count"),
    )


def retries(retried: int, deliveries: int, limits: Thresholds, *, hysteresis: float = 1) -> Measured:
    """BatchRetryStorm: share of the deliveries that are redeliveries from failed batches, and how many deliveries there were.

    `hysteresis`: the part of the least share that is enough while the signal fires.
    """
    ratio = retried / deliveries if deliveries else 0.0
    return farthest_from_limit(
        Measured(ratio, limits.retry_storm_ratio * hysteresis, "ratio"),
        Measured(deliveries, limits.retry_storm_min_deliveries, "count"),
    )


def silence(since: int, now: int, due: float, limits: Thresholds) -> Measured:
    """QueueSilent: time without an arrival, against the time in which the minimum number of messages is due (`due` by now)."""
    return Measured(now - since, limits.silent_messages * (now - since) / due if due > 0 else math.inf, "milliseconds")


def collapse(since: int, now: int, limits: Thresholds) -> Measured:
    """ConcurrencyCollapsed: time with hardly a group in flight while several have a backlog."""
    return Measured(now - since, limits.collapsed_s * 1000, "milliseconds")


def coverage(ratio: float, limits: Thresholds) -> Measured:
    """TelemetryPartial: tracked messages as a share of the broker's count, against the nearer of the two limits."""
    low, high = limits.coverage_low_ratio, limits.coverage_high_ratio
    if ratio < (low + high) / 2:
        return Measured(ratio, low, "ratio", falling=True, healthy=1)
    return Measured(ratio, high, "ratio", at_limit=False, healthy=1)
