"""The message groups of queues without order, such as the tenants of fair queues."""

from __future__ import annotations

from typing import Any

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.reporting.queue_columns import NamedColumns, nothing_named
from streaming.core.reporting.ranking import in_order, place_in_queue
from streaming.core.reporting.report import GroupReport
from streaming.core.settings import Settings
from streaming.core.state.queues import NEVER
from streaming.core.state.state import ShardState
from streaming.core.tracking.windows import Windows

BUSIEST_LISTED = 32
"""Beyond a queue's oldest groups: only groups with many messages in flight can crowd out others."""


def unordered_groups(state: ShardState, w: Windows, settings: Settings) -> tuple[NamedColumns, Array]:
    """Return the oldest groups of each unordered queue and those with most in flight, as `group_of` reads them.

    And, per queue, how many more there are. When one was last settled is left out: it may have been in a shard that has no
    message of the group any more.
    """
    rows, folded = state.rows, np.zeros(len(state.queues), dtype=np.int64)
    if not rows.has("group"):
        return nothing_named(), folded
    ordered = state.queues.keeps_order(settings)
    grouped = nonzero(w.live & ~ordered[rows["queue"]] & (rows["group"] >= 0))
    if not len(grouped):
        return nothing_named(), folded
    names, group, unsettled = np.unique(rows.at("group", grouped), return_inverse=True, return_counts=True)
    in_flight, visible = (
        np.bincount(group, weights=those[grouped], minlength=len(names)).astype(np.int64) for those in (w.in_flight, w.visible)
    )
    oldest = np.full(len(names), NEVER, dtype=np.int64)
    np.minimum.at(oldest, group, rows.at("sent", grouped))
    queue = state.groups.queue[names]
    order = in_order((queue, oldest), state.groups, names)
    is_old = place_in_queue(queue[order]) < settings.groups_per_report
    # Of the others those with most in flight, the older first.
    others = order[~is_old]
    others = others[np.lexsort((-in_flight[others], queue[others]))]
    busiest = others[place_in_queue(queue[others]) < BUSIEST_LISTED]
    listed = np.append(order[is_old], busiest)
    listed = listed[np.argsort(queue[listed], kind="stable")]
    np.add.at(folded, queue, 1)
    np.subtract.at(folded, queue[listed], 1)
    values = (unsettled[listed], in_flight[listed], visible[listed], oldest[listed])
    return NamedColumns(queue[listed], state.groups.taken(names[listed]), values), folded


def group_of(values: tuple[Any, ...]) -> GroupReport:
    """Return one row of `unordered_groups`, name first, as an object."""
    name, unsettled, in_flight, visible, oldest_sent_at = values
    return GroupReport(
        name=name, unsettled=unsettled, in_flight=in_flight, visible=visible, oldest_sent_at=oldest_sent_at, last_settled_at=0
    )
