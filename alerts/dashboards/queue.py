"""One queue: ages, counts, rates, suspects."""

from __future__ import annotations

from alerts.dashboards.promql import (
    BY_QUEUE,
    NAME,
    limit_line,
    of_queue,
    per_queue,
    rate_per_queue,
    signal_lines,
    signals,
    status_number,
    status_states,
)
from alerts.dashboards.spec import Board, Context, Line, Panel, Query, Row
from streaming.judge.signals import SignalName

QUEUE_SIGNALS: tuple[SignalName, ...] = (
    *("QueueStalled", "QueueFailing", "QueueLagging", "QueueSilent", "WindowTooShort"),
    *("PoisonMessage", "MessageDropped", "QueueMisconfigured"),
)


def queue(context: Context) -> Board:
    """The board of one queue."""
    return Board(
        "queue",
        "queuewatch / Queue",
        ("One queue: how old its messages are in each sense of the word, what comes in and goes out, who fails."),
        (
            Row("State", _state()),
            Row("Ages", _ages(context)),
            Row("Flow", _flow()),
            Row("Failures", _failures(context)),
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
            "Four answers to one question. all: since it was sent. visible: of those a consumer could take "
            "now. cloudwatch: "
            "what ApproximateAgeOfOldestMessage would show. healthy: without poison suspects.",
            "s",
            (Query(per_queue("queuewatch_oldest_message_age_seconds", also="scope"), "{{scope}}"),),
            lines=(limit_line("MessageTooOld", context),),
        ),
        Panel(
            "bargauge",
            "Ages of the unsettled messages",
            "How many messages are at most so many seconds old, cumulated, as of the last batch.",
            queries=(
                Query((f"sum by (le) ({per_queue('queuewatch_message_age_seconds_bucket', also='le')})"), "{{le}} s", True),
            ),
        ),
    )


def _flow() -> tuple[Panel, ...]:
    counters = ("sent", "received", "deleted", "dead_lettered", "redriven", "expired", "dropped")
    return (
        Panel(
            "timeseries",
            "Messages by state",
            "Visible: a consumer could take it. In flight: somebody has it. Delayed: not yet due.",
            queries=(Query(per_queue("queuewatch_queue_messages", also="state"), "{{state}}"),),
            width=8,
            stacked=True,
        ),
        Panel(
            "timeseries",
            "What happens, per second",
            "Rates of every kind of event. Received far above deleted: messages come back.",
            "mps",
            tuple(Query(rate_per_queue(f"queuewatch_messages_{c}_total"), c.replace("_", " ")) for c in counters),
            width=8,
        ),
        Panel(
            "timeseries",
            "Time to drain",
            "Seconds until the backlog is gone at the present rate; there is no line unless it shrinks.",
            "s",
            (Query(f"{per_queue('queuewatch_time_to_drain_seconds')}", NAME),),
            width=8,
        ),
    )


def _failures(context: Context) -> tuple[Panel, ...]:
    return (
        Panel(
            "timeseries",
            "Highest receive count",
            "How often the most delivered unsettled message has been delivered. A message is a suspect "
            "from the line on, or "
            "from the queue's max_receive_count where that is lower.",
            queries=(Query(per_queue("queuewatch_receive_count_max"), NAME),),
            width=8,
            lines=(Line("PoisonMessage", context.thresholds.poison_receives),),
        ),
        Panel(
            "timeseries",
            "Poison suspects",
            "Unsettled messages delivered so often that they are suspects.",
            queries=(Query(per_queue("queuewatch_poison_messages"), NAME),),
            width=8,
            lines=(Line("PoisonMessage", 1),),
        ),
        Panel(
            "timeseries",
            "Lost and given up",
            "Messages lost to retention or to exhausted retries, and messages given up because the broker "
            "said empty, in "
            "each interval.",
            queries=tuple(
                Query(
                    (f"sum by ({BY_QUEUE}) (increase({of_queue(f'queuewatch_messages_{total}_total')}[$__rate_interval]))"),
                    total,
                )
                for total in ("expired", "dropped", "reconciled")
            ),
            width=8,
            lines=(Line("MessageDropped", 1),),
        ),
    )
