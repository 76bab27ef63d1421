"""The dashboard of consumers: messages held, for how long, and deliveries in vain."""

from __future__ import annotations

from alerts.dashboards.promql import BY_QUEUE, NAME, largest, of_queue, per_queue, rate_per_queue, signal_lines, signals
from alerts.dashboards.spec import Board, Context, Line, Panel, Query, Row
from alerts.units import duration, spoken_duration


def consumers(context: Context) -> Board:
    """Return the dashboard of consumers."""
    return Board(
        "consumers",
        "queuewatch / Consumers",
        "Which consumers hold messages, for how long, and how many deliveries are in vain.",
        (
            Row("Holding", _holding(context)),
            Row("Deliveries", _deliveries(context)),
        ),
        ("job", "instance", "system", "scope_id", "queue"),
    )


def _holding(context: Context) -> tuple[Panel, ...]:
    limits = context.thresholds
    return (
        Panel(
            "timeseries",
            "How long consumers have held their oldest message",
            "The longest holds by consumer name, the rest as other. The lower line is the shortest hold that counts "
            "as slow (it is also compared with the queue's median); the upper line is the shortest that counts as "
            "held too long.",
            "s",
            (
                Query(
                    largest(per_queue("queuewatch_consumer_oldest_held_seconds", also="consumer"), 20),
                    "{{queue}} {{consumer}}",
                ),
            ),
            24,
            lines=(
                Line("SlowConsumer", limits.slow_hold_min_s),
                Line("MessageHeldTooLong", limits.held_min_s),
            ),
        ),
        Panel(
            "timeseries",
            "Signals of consumers",
            "Findings that are firing: the exact series these alerts compare with zero.",
            queries=(signals("SlowConsumer", "MessageHeldTooLong", "BatchRetryStorm"),),
            lines=signal_lines("SlowConsumer", "MessageHeldTooLong", "BatchRetryStorm"),
        ),
        Panel(
            "timeseries",
            "Messages in flight",
            "Messages that a consumer holds and has not settled.",
            queries=(Query(per_queue("queuewatch_queue_messages", 'state="in_flight"'), NAME),),
        ),
    )


def _deliveries(context: Context) -> tuple[Panel, ...]:
    limits = context.thresholds
    window = duration(limits.retry_storm_window_s)
    received = rate_per_queue("queuewatch_messages_received_total")
    deleted = rate_per_queue("queuewatch_messages_deleted_total")
    return (
        Panel(
            "timeseries",
            "Deliveries that settled nothing",
            "The share of deliveries that did not end in an acknowledgement in the same interval. A storm is judged "
            "on redeliveries out of failed batches only, so it can be lower than this.",
            "percentunit",
            (Query(f"clamp_min(1 - {deleted} / ({received} > 0), 0)", NAME),),
            width=8,
            lines=(Line("BatchRetryStorm", limits.retry_storm_ratio),),
        ),
        Panel(
            "timeseries",
            "Received",
            "Deliveries per second, redeliveries included.",
            "mps",
            (Query(received, NAME),),
            width=8,
        ),
        Panel(
            "timeseries",
            "Deleted",
            "Acknowledgements per second. If they stay at zero while there is a backlog, the queue is stalled.",
            "mps",
            (Query(deleted, NAME),),
            width=8,
        ),
        Panel(
            "timeseries",
            f"Deliveries in {spoken_duration(limits.retry_storm_window_s)}",
            "Number of deliveries in the time that retry storms are judged on. A storm is reported only at or above the line.",
            queries=(
                Query(
                    f"sum by ({BY_QUEUE}) (increase({of_queue('queuewatch_messages_received_total')}[{window}]))",
                    NAME,
                ),
            ),
            width=24,
            height=6,
            lines=(Line("BatchRetryStorm", limits.retry_storm_min_deliveries),),
        ),
    )
