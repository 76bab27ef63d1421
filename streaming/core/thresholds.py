"""Every threshold of every signal, with its unit in its name and its default. One frozen value per queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits that apply to one queue. `streaming.config` resolves them by queue pattern.

    Durations are seconds (`_s`), shares are 0..1 (`_ratio`), the rest are counts.
    """

    # PoisonMessage: receive_count >= min(poison_receives, max(2, max_receive_count)).
    poison_receives: int = 3

    # MessageHeldTooLong: in flight longer than max(held_visibility_factor x visibility timeout, held_min_s).
    held_visibility_factor: float = 5.0
    held_min_s: float = 900.0

    # DeadLetterArrived: resolved after this long without a new arrival.
    dead_letter_quiet_s: float = 300.0

    # DeadLetterExpiring: less than min(dead_letter_expiring_s, dead_letter_expiring_ratio x retention) left.
    dead_letter_expiring_s: float = 86_400.0
    dead_letter_expiring_ratio: float = 0.25

    # GroupStuck: nothing settled for max(group_stuck_visibility_factor x visibility timeout, group_stuck_min_s).
    group_stuck_visibility_factor: float = 2.0
    group_stuck_min_s: float = 60.0

    # LookAheadSaturated: how many messages from the front a FIFO queue scans for an available group.
    look_ahead: int = 120_000

    # ConcurrencyCollapsed: <= collapsed_groups_in_flight for collapsed_s while >= collapsed_groups_backlog wait.
    collapsed_groups_in_flight: int = 1
    collapsed_groups_backlog: int = 5
    collapsed_s: float = 300.0

    # QueueStalled: visible backlog and nothing settled for this long.
    stalled_s: float = 300.0

    # QueueFailing: share of the deliveries that ended in failing_window_s (failing_min_deliveries or more) without a settlement.
    failing_ratio: float = 0.5
    failing_window_s: float = 300.0
    failing_min_deliveries: int = 20

    # QueueLagging: lagging for lagging_for_s, and the oldest visible message passes lag_limit_s within lag_forecast_s,
    # or within lag_forecast_lost_s where consumers fell silent that nobody replaced.
    lag_limit_s: float = 900.0
    lag_forecast_s: float = 1_800.0
    lag_forecast_lost_s: float = 7_200.0
    lagging_for_s: float = 120.0

    # WindowTooShort: share of the deliveries in short_window_s that outlived their visibility window, and their minimum number.
    short_window_ratio: float = 0.02
    short_window_s: float = 900.0
    short_window_min_deliveries: int = 5

    # QueueSilent: this many messages were due by the queue's own rates and none came. silent_pages 1: it pages.
    silent_messages: int = 20
    silent_pages: int = 0

    # QueueMisconfigured (fifo_throughput): fifo_limit_ratio of fifo_call_limit calls a second, each with fifo_messages_per_call
    # messages, for fifo_limit_s, on a FIFO queue that is not in high-throughput mode.
    fifo_limit_ratio: float = 0.9
    fifo_limit_s: float = 300.0
    fifo_call_limit: int = 300
    fifo_messages_per_call: int = 1

    # RedriveStalled: a move task that moved nothing for this long.
    redrive_stalled_s: float = 600.0

    # SlowConsumer (hold): oldest held longer than max(slow_hold_min_s, slow_hold_factor x the queue's median hold).
    slow_hold_min_s: float = 30.0
    slow_hold_factor: float = 10.0

    # BatchRetryStorm: share of deliveries in the window that are redeliveries from failed batches.
    retry_storm_ratio: float = 0.5
    retry_storm_window_s: float = 300.0
    retry_storm_min_deliveries: int = 10

    # MessageDropped, QueuePurged: resolved after this long without another loss or purge.
    dropped_quiet_s: float = 300.0

    # NoisyGroup: more than noisy_group_ratio of what is in flight and at least noisy_group_in_flight messages.
    noisy_group_ratio: float = 0.1
    noisy_group_in_flight: int = 30
    noisy_group_quiet_s: float = 300.0

    # TelemetryStale: a collector silent for this long.
    telemetry_stale_s: float = 120.0

    # TelemetryPartial: tracked / broker's count is outside the band for this long.
    coverage_low_ratio: float = 0.9
    coverage_high_ratio: float = 1.1
    coverage_s: float = 600.0

    # Not a signal. Tracked messages are reconciled away when the broker's counts have been zero this long; when three counts
    # over this long show nothing visible (standard queues); or when a later message of their SQS FIFO group was received this
    # long after they were last heard of.
    reconcile_after_s: float = 300.0


LARGEST: Final = 1_000_000_000
"""The largest count, and the longest duration in seconds: thirty years. Times in milliseconds do not overflow with it."""
LARGEST_FACTOR: Final = 1_000_000
"""The largest factor, by which a visibility timeout of thirty years can still be multiplied."""
SMALLEST_SHARE: Final = 0.001

_LEAST: Final[Mapping[str, float]] = MappingProxyType(
    dict.fromkeys(("failing_ratio", "fifo_limit_ratio", "retry_storm_ratio"), SMALLEST_SHARE)
    | dict.fromkeys(
        (
            "poison_receives",
            "dead_letter_quiet_s",
            "look_ahead",
            "collapsed_groups_backlog",
            "stalled_s",
            "failing_min_deliveries",
            "short_window_min_deliveries",
            "silent_messages",
            "fifo_call_limit",
            "fifo_messages_per_call",
            "retry_storm_min_deliveries",
            "dropped_quiet_s",
            "noisy_group_in_flight",
            "noisy_group_quiet_s",
            "telemetry_stale_s",
            "coverage_high_ratio",
            "reconcile_after_s",
        ),
        1,
    )
)
"""With less, a rule divides by zero, holds for every queue, message or collector, or its signal ends at once and is never seen.
The others may be 0. Complete tracking has a coverage of 1."""

_LONGEST_WINDOW_S: Final = 7 * 86_400
"""The judge's samples go back two weeks, and the oldest are hours apart."""
_MOST: Final[Mapping[str, float]] = MappingProxyType(
    {"silent_pages": 1, "coverage_high_ratio": LARGEST_FACTOR}
    | dict.fromkeys(("failing_window_s", "short_window_s", "fifo_limit_s", "retry_storm_window_s"), _LONGEST_WINDOW_S)
)


class Accepted(NamedTuple):
    """The smallest and the largest value of a threshold that a configuration may set."""

    least: float
    most: float
    off_when_large: bool
    """Whether the rule never fires with the largest value, where that with 0 cannot be meant."""

    def includes(self, value: float) -> bool:
        """Whether a value may be set; infinity and what is not a number may not."""
        return self.least <= value <= self.most


def accepted(name: str) -> Accepted:
    """Return which values a threshold may have. Shares are at most 1."""
    by_unit = 1 if name.endswith("_ratio") else LARGEST_FACTOR if name.endswith("_factor") else LARGEST
    least, most = _LEAST.get(name, 0), _MOST.get(name, by_unit)
    # The receives that make a poison suspect are limited by the queue's own maximum. A signal with a long quiet time never ends.
    stays_on = name == "poison_receives" or name.endswith("_quiet_s")
    return Accepted(least, most, off_when_large=least >= 1 and most == LARGEST and not stays_on)
