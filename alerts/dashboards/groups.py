"""The dashboard of ordering groups: stuck, hidden and active groups."""

from __future__ import annotations

from alerts.dashboards.promql import NAME, largest, per_queue, signal_lines, signals
from alerts.dashboards.spec import Board, Context, Line, Panel, Query, Row


def groups(context: Context) -> Board:
    """Return the dashboard of ordering groups."""
    return Board(
        "groups",
        "queuewatch / FIFO groups",
        (
            "Ordering groups: stuck heads, hidden groups, lost concurrency. The oldest groups are shown by name, the rest is "
            "other."
        ),
        (
            Row("Groups now", _groups_now(context)),
            Row("Concurrency", _concurrency(context)),
        ),
        ("job", "instance", "system", "scope_id", "queue"),
    )


def _groups_now(context: Context) -> tuple[Panel, ...]:
    limits = context.thresholds
    return (
        Panel(
            "timeseries",
            "Signals of groups",
            "Findings that are firing: the exact series these alerts compare with zero.",
            queries=(signals("GroupStuck", "LookAheadSaturated", "ConcurrencyCollapsed", "NoisyGroup"),),
            lines=signal_lines("GroupStuck", "LookAheadSaturated", "ConcurrencyCollapsed", "NoisyGroup"),
        ),
        Panel(
            "timeseries",
            "Stuck groups",
            "Groups that are blocked by their head.",
            queries=(Query(per_queue("queuewatch_stuck_groups"), NAME),),
            lines=(Line("GroupStuck", 1),),
        ),
        Panel(
            "timeseries",
            "Oldest message per group",
            "Age of the oldest unsettled message of each group: the oldest groups by name, the rest as other. The "
            "line is the shortest time after which a group that settles nothing counts as stuck.",
            "s",
            (
                Query(
                    largest(per_queue("queuewatch_group_oldest_message_age_seconds", also="group"), 20),
                    "{{queue}} {{group}}",
                ),
            ),
            24,
            lines=(Line("GroupStuck", limits.group_stuck_min_s),),
        ),
    )


def _concurrency(context: Context) -> tuple[Panel, ...]:
    limits = context.thresholds
    few = limits.collapsed_groups_in_flight
    return (
        Panel(
            "timeseries",
            "Groups with a backlog",
            "At or above the line, concurrency counts as collapsed if hardly any group is in flight.",
            queries=(Query(per_queue("queuewatch_groups", 'state="backlog"'), NAME),),
            width=8,
            lines=(Line("ConcurrencyCollapsed", limits.collapsed_groups_backlog),),
        ),
        Panel(
            "timeseries",
            "Groups in flight",
            f"Groups that are being processed. With {few} or fewer (below the line) while many wait, concurrency has collapsed.",
            queries=(Query(per_queue("queuewatch_groups", 'state="in_flight"'), NAME),),
            width=8,
            lines=(Line("ConcurrencyCollapsed", few + 1, below=True),),
        ),
        Panel(
            "timeseries",
            "Blocked and hidden groups",
            "Blocked: something of the group is in flight or stuck. Hidden: behind the look-ahead, so SQS cannot see them.",
            queries=(
                Query(
                    per_queue("queuewatch_groups", 'state=~"blocked|hidden"', "state"),
                    f"{{{{state}}}} {NAME}",
                ),
            ),
            width=8,
            lines=(Line("LookAheadSaturated", 1),),
        ),
        Panel(
            "timeseries",
            "Messages in flight",
            "A single group with more than its share of these is noisy; this is judged at or above the line.",
            queries=(Query(per_queue("queuewatch_queue_messages", 'state="in_flight"'), NAME),),
            lines=(Line("NoisyGroup", limits.noisy_group_in_flight),),
        ),
        Panel(
            "timeseries",
            "Visible messages",
            "Number of waiting messages. The line is the look-ahead: above it, blocked groups at the front can hide the others.",
            queries=(Query(per_queue("queuewatch_queue_messages", 'state="visible"'), NAME),),
            lines=(Line("LookAheadSaturated", limits.look_ahead),),
        ),
    )
