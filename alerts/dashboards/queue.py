"""The dashboard of one queue: ages, counts, rates, suspects."""

from __future__ import annotations

from alerts.dashboards.promql import (
    BY_QUEUE,
    NAME,
    limit_line,
    of_queue,
    per_queue,
    rate_per_queue,
    recorded_per_queue,
    signal_lines,
    signals,
    status_number,
    status_states,
)
from alerts.dashboards.spec import Board, Context, Line, Panel, Query, Row
from alerts.objectives import BUDGET_LEFT, BURN, FAST, SLOW
from streaming.judge.findings.signals import SignalName

QUEUE_SIGNALS: tuple[SignalName, ...] = (
    *("QueueStalled", "QueueFailing", "QueueLagging", "QueueSilent", "WindowTooShort"),
    *("PoisonMessage", "MessageDropped", "QueuePurged", "QueueMisconfigured"),
)


def queue(context: Context) -> Board:
    """Return the dashboard of one queue."""
    return Board(
        "queue",
        "queuewatch / Queue",
        "One queue: the ages of its messages by four definitions, the messages coming in and going out, the failures.",
        (
            Row("State", _state()),
            Row("Ages", _ages(context)),
            Row("Flow", _flow()),
            Row("Failures", _failures(context)),
            Row("Objectives", _objectives()),
        ),
        ("job", "instance", "system", "scope_id", "queue"),
        one_queue=True,
    )


def _state() -> tuple[Panel, ...]:
    return (
        Panel(
            "state-timeline",
            "Status",
            "The queue's status, judged without thresholds.",
            queries=(Query(status_number(), NAME),),
            height=6,
            states=status_states(),
            lines=(Line("QueueStale", 5),),
        ),
        Panel(
            "timeseries",
            "Signals of the queue",
            "Findings that are firing: the exact series these alerts compare with zero.",
            queries=(signals(*QUEUE_SIGNALS),),
            height=6,
            lines=signal_lines(*QUEUE_SIGNALS),
        ),
    )


def _ages(context: Context) -> tuple[Panel, ...]:
    return (
        Panel(
            "timeseries",
            "Age of the oldest message",
            "The age by four definitions. all: since the send. visible: of messages a consumer could receive now. cloudwatch: "
            "what ApproximateAgeOfOldestMessage would show. healthy: without poison suspects.",
            "s",
            (Query(per_queue("queuewatch_oldest_message_age_seconds", also="scope"), "{{scope}}"),),
            lines=(limit_line("MessageTooOld", context),),
        ),
        Panel(
            "bargauge",
            "Ages of the unsettled messages",
            "Number of messages up to each age in seconds (cumulative), as of the last batch.",
            queries=(Query(f"sum by (le) ({per_queue('queuewatch_message_age_seconds_bucket', also='le')})", "{{le}} s", True),),
        ),
    )


def _flow() -> tuple[Panel, ...]:
    counters = ("sent", "received", "deleted", "dead_lettered", "redriven", "expired", "dropped")
    return (
        Panel(
            "timeseries",
            "Messages by state",
            "Visible: a consumer could receive it. In flight: a consumer holds it. Delayed: not yet due.",
            queries=(Query(per_queue("queuewatch_queue_messages", also="state"), "{{state}}"),),
            width=8,
            stacked=True,
        ),
        Panel(
            "timeseries",
            "Events per second",
            "Rates of every kind of event. If received is far above deleted, messages come back.",
            "mps",
            tuple(Query(rate_per_queue(f"queuewatch_messages_{c}_total"), c.replace("_", " ")) for c in counters),
            width=8,
        ),
        Panel(
            "timeseries",
            "Time to drain",
            "Seconds until the backlog is gone at the current rate; no line unless it shrinks.",
            "s",
            (Query(f"{per_queue('queuewatch_time_to_drain_seconds')}", NAME),),
            width=8,
        ),
    )


def _objectives() -> tuple[Panel, ...]:
    def p99(what: str) -> Query:
        return Query(f"histogram_quantile(0.99, {rate_per_queue(f'queuewatch_{what}_seconds_bucket', also='le')})", what)

    return (
        Panel(
            "timeseries",
            "Error budget left",
            "Of what an objective of alerts.objectives allows in 28 days: 1 is untouched, at 0 it is spent.",
            "percentunit",
            (Query(recorded_per_queue(f"{BUDGET_LEFT}28d", "objective"), "{{objective}}"),),
            width=8,
        ),
        Panel(
            "timeseries",
            "Burn rate",
            "How many times faster than allowed the budget is used. The lines are where the alerts begin.",
            queries=tuple(
                Query(recorded_per_queue(f"{BURN}{w}", "objective"), f"{{{{objective}}}} {w}") for w in ("1h", "6h", "1d")
            ),
            width=8,
            lines=(Line("ErrorBudgetBurning", FAST[0].factor), Line("ErrorBudgetBurningSlowly", SLOW[0].factor)),
        ),
        Panel(
            "timeseries",
            "How long messages take, 99th percentile",
            "Of messages deleted. wait: sent to first received. processing: last received to deleted. sojourn: sent to deleted.",
            "s",
            tuple(p99(what) for what in ("wait", "processing", "sojourn")),
            width=8,
        ),
    )


def _failures(context: Context) -> tuple[Panel, ...]:
    return (
        Panel(
            "timeseries",
            "Highest receive count",
            "The highest receive count of an unsettled message. A message is a suspect at or above the line, or from the "
            "queue's max_receive_count where that is lower.",
            queries=(Query(per_queue("queuewatch_receive_count_max"), NAME),),
            width=8,
            lines=(Line("PoisonMessage", context.thresholds.poison_receives),),
        ),
        Panel(
            "timeseries",
            "Poison suspects",
            "Unsettled messages that were delivered so often that they are suspects.",
            queries=(Query(per_queue("queuewatch_poison_messages"), NAME),),
            width=8,
            lines=(Line("PoisonMessage", 1),),
        ),
        Panel(
            "timeseries",
            "Lost and reconciled",
            "Messages lost to retention or exhausted retries, and messages removed from tracking without a reported end, "
            "in each interval.",
            queries=tuple(
                Query(
                    f"sum by ({BY_QUEUE}) (increase({of_queue(f'queuewatch_messages_{total}_total')}[$__rate_interval]))",
                    total,
                )
                for total in ("expired", "dropped", "reconciled")
            ),
            width=8,
            lines=(Line("MessageDropped", 1),),
        ),
    )
