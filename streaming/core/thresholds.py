"""Every threshold of every signal, with its unit in its name and its default. One frozen value per queue."""

from __future__ import annotations

from dataclasses import dataclass


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

    # Not a signal: the broker's counts have been empty, or several without visible messages, this long, or a later message of an
    # SQS FIFO group was received this long after => messages that are still tracked, or seem to wait, are reconciled away.
    reconcile_after_s: float = 300.0
