"""The dashboard of all queues: firing signals, queues, severities."""

from __future__ import annotations

from alerts.dashboards.promql import (
    BY_QUEUE,
    NAME,
    largest,
    limit_line,
    of_queue,
    per_queue,
    rate_per_queue,
    signals,
    status_number,
    status_states,
    where,
)
from alerts.dashboards.spec import Board, Column, Context, Line, Panel, PanelUnit, Query, Row
from streaming.judge.findings.signals import SIGNAL_NAMES


def overview(context: Context) -> Board:
    """Return the dashboard of all queues."""
    return Board(
        "overview",
        "queuewatch / Overview",
        "Every queue with its status, firing signals and waiting times. Click a queue to open its dashboard.",
        (
            Row("Now", _now(context)),
            Row("Queues", (_table(), _status())),
            Row("Over time", _over_time(context)),
        ),
        ("job", "instance", "system", "scope_id", "queue"),
    )


def _now(context: Context) -> tuple[Panel, ...]:
    def firing(severity: str) -> Query:
        chosen = of_queue("queuewatch_signals", where("severity", severity))
        return Query(f"sum(max by ({BY_QUEUE}, signal) ({chosen})) or vector(0)", instant=True)

    visible = of_queue("queuewatch_oldest_message_age_seconds", where("scope", "visible"))
    return (
        Panel(
            "stat",
            "Critical signals",
            "Critical findings that are firing now, about the selected queues or about no queue. Each pages somebody.",
            queries=(firing("critical"),),
            width=4,
            height=4,
            mark=(1, "critical"),
        ),
        Panel(
            "stat",
            "Warnings",
            "Warnings that are firing now, about the selected queues or about no queue: a silent collector, a wrong clock.",
            queries=(firing("warning"),),
            width=4,
            height=4,
            mark=(1, "warning"),
        ),
        Panel(
            "stat",
            "Queues watched",
            "Queues with a status. A queue without telemetry disappears.",
            queries=(Query(f"count(max by ({BY_QUEUE}) ({of_queue('queuewatch_queue_status')})) or vector(0)", instant=True),),
            width=4,
            height=4,
        ),
        Panel(
            "stat",
            "Longest wait now",
            "The longest time a message of any queue has waited while a consumer could have received it.",
            "s",
            (Query(f"max({visible})", instant=True),),
            width=4,
            height=4,
            lines=(limit_line("MessageTooOld", context),),
        ),
        Panel(
            "stat",
            "Poison suspects",
            "Unsettled messages that were delivered so often that they are suspects.",
            queries=(Query(f"sum({per_queue('queuewatch_poison_messages')})", instant=True),),
            width=4,
            height=4,
            lines=(Line("PoisonMessage", 1),),
        ),
        Panel(
            "stat",
            "Least coverage",
            "The lowest ratio of tracked messages to the broker's count of any queue.",
            "percentunit",
            (Query(f"min({of_queue('queuewatch_telemetry_coverage_ratio')})", instant=True),),
            width=4,
            height=4,
            lines=(limit_line("CoverageLow", context, below=True),),
        ),
    )


def _table() -> Panel:
    def column(heading: str, expr: str, unit: PanelUnit = "short") -> Column:
        return Column(Query(expr, instant=True), heading, unit)

    of_queues = per_queue("queuewatch_signals", 'queue!=""', "signal, severity")
    return Panel(
        "table",
        "One row per queue",
        "The current state of every queue. Ages are in seconds; unknown values are empty. Click a name to open its dashboard.",
        width=24,
        height=12,
        columns=(
            column("Status", f"{per_queue('queuewatch_queue_status', also='status')} == 1"),
            column("Signals", f"sum by ({BY_QUEUE}) ({of_queues})"),
            column("Visible", per_queue("queuewatch_queue_messages", 'state="visible"')),
            column("In flight", per_queue("queuewatch_queue_messages", 'state="in_flight"')),
            column("Delayed", per_queue("queuewatch_queue_messages", 'state="delayed"')),
            column("Oldest visible", per_queue("queuewatch_oldest_message_age_seconds", 'scope="visible"'), "s"),
            column("Oldest", per_queue("queuewatch_oldest_message_age_seconds", 'scope="all"'), "s"),
            column("Receives, most", per_queue("queuewatch_receive_count_max")),
            column("Poison", per_queue("queuewatch_poison_messages")),
            column("Stuck groups", per_queue("queuewatch_stuck_groups")),
            column("Time to drain", per_queue("queuewatch_time_to_drain_seconds"), "s"),
        ),
    )


def _status() -> Panel:
    return Panel(
        "state-timeline",
        "Status over time",
        "The status of each queue, judged without thresholds: ok, lagging, failing, stalled, stopped, stale, unknown.",
        queries=(Query(status_number(), NAME),),
        width=24,
        height=8,
        states=status_states(),
        lines=(),
    )


def _over_time(context: Context) -> tuple[Panel, ...]:
    return (
        Panel(
            "timeseries",
            "Signals firing",
            "Findings that are firing, by signal and queue: the exact series the alerts compare with zero.",
            queries=(signals(*SIGNAL_NAMES),),
            mark=(1, "warning"),
        ),
        Panel(
            "timeseries",
            "Oldest visible message",
            "The ten queues whose messages wait longest while a consumer could receive them.",
            "s",
            (Query(largest(per_queue("queuewatch_oldest_message_age_seconds", 'scope="visible"')), NAME),),
            lines=(limit_line("MessageTooOld", context),),
        ),
        Panel(
            "timeseries",
            "Visible messages",
            "The ten largest backlogs of messages that a consumer could receive now.",
            queries=(Query(largest(per_queue("queuewatch_queue_messages", 'state="visible"')), NAME),),
        ),
        Panel(
            "timeseries",
            "Sent and deleted",
            "Messages entering and leaving all selected queues, per second. If deleted stays below sent, a backlog grows.",
            "mps",
            (
                Query(f"sum({rate_per_queue('queuewatch_messages_sent_total')})", "sent"),
                Query(f"sum({rate_per_queue('queuewatch_messages_deleted_total')})", "deleted"),
            ),
        ),
    )
