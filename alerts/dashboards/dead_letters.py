"""The dashboard of dead letters: arrivals, time left, redrives."""

from __future__ import annotations

from alerts.dashboards.promql import BY_QUEUE, NAME, of_queue, per_queue, signal_lines, signals, where
from alerts.dashboards.spec import Board, Context, Line, Panel, Query, Row
from alerts.units import shown
from streaming.judge.findings.signals import SignalName

DEAD_LETTER_SIGNALS: tuple[SignalName, ...] = ("DeadLetterArrived", "DeadLetterExpiring", "RedriveFailed", "RedriveStalled")


def dead_letters(context: Context) -> Board:
    """Return the dashboard of dead-letter queues."""
    return Board(
        "dead-letters",
        "queuewatch / Dead letters",
        "Dead-lettered messages by source queue, and how long the dead-letter queues still keep them.",
        (
            Row("Time left", _time_left(context)),
            Row("Arrivals", _arrivals()),
        ),
        ("job", "instance", "system", "scope_id", "queue"),
    )


def _time_left(context: Context) -> tuple[Panel, ...]:
    expiry = per_queue("queuewatch_dead_letter_expiry_seconds").replace("max by", "min by", 1)
    share = shown("dead_letter_expiring_ratio", context.thresholds.dead_letter_expiring_ratio)
    return (
        Panel(
            "timeseries",
            "Until the first dead letter is deleted",
            "Seconds until retention deletes the oldest message of each dead-letter queue, counted as the broker "
            f"does. Somebody is paged below the line or below {share} of the retention, whichever is less.",
            "s",
            (Query(expiry, NAME),),
            lines=(Line("DeadLetterExpiring", context.thresholds.dead_letter_expiring_s, below=True),),
        ),
        Panel(
            "timeseries",
            "Signals of dead letters",
            "Findings that are firing: the exact series these alerts compare with zero.",
            queries=(signals(*DEAD_LETTER_SIGNALS),),
            lines=signal_lines(*DEAD_LETTER_SIGNALS),
        ),
    )


def _arrivals() -> tuple[Panel, ...]:
    waiting = per_queue("queuewatch_queue_messages", 'state="visible"')
    dead = of_queue("queuewatch_queue_info", where("is_dead_letter_queue", "true"))
    return (
        Panel(
            "timeseries",
            "Dead-lettered, by source queue",
            "Messages moved from each queue to its dead-letter queue, in each interval. Counted individually, so a "
            "dead-letter queue that is drained at once hides nothing.",
            queries=(Query(_moved("dead_lettered"), NAME),),
            lines=(Line("DeadLetterArrived", 1),),
        ),
        Panel(
            "timeseries",
            "Redriven, by dead-letter queue",
            "Messages moved back to another queue, in each interval.",
            queries=(Query(_moved("redriven"), NAME),),
        ),
        Panel(
            "timeseries",
            "Waiting in dead-letter queues",
            "Visible messages of each dead-letter queue.",
            queries=(Query(f"{waiting} and on ({BY_QUEUE}) {dead}", NAME),),
        ),
        Panel(
            "timeseries",
            "Lost to retention or without a dead-letter queue",
            "Expired and dropped messages, in each interval.",
            queries=(
                Query(_moved("expired"), f"expired {NAME}"),
                Query(_moved("dropped"), f"dropped {NAME}"),
            ),
            lines=(Line("MessageDropped", 1),),
        ),
    )


def _moved(total: str) -> str:
    return f"sum by ({BY_QUEUE}) (increase({of_queue(f'queuewatch_messages_{total}_total')}[$__rate_interval]))"
