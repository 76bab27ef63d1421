"""What a shard reports of its ordered queues, as tables: a row per queue, and a row per group that is listed by name.

Objects for one queue and its groups are built when it is judged or shown. In an account with thousands of FIFO queues most are
neither in a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.core.columns import Array
from streaming.core.reporting.message_columns import AttemptColumns, MessageColumns
from streaming.core.reporting.report import GroupReport, LookAhead, OrderedQueueReport, StuckGroup

COUNTS: Final = ("groups", "backlog", "in_flight", "blocked", "hidden", "stuck_groups", "overtaken")
FIGURES: Final = (*COUNTS, "youngest_received_sent_at", "others_oldest_at")
"""Of a queue: the fields of `OrderedQueueReport` of the same names. `others_oldest_at`: NO_OTHERS where all groups are listed."""
NO_OTHERS: Final = -1
GROUP_NUMBERS: Final = ("unsettled", "in_flight", "visible", "oldest_sent_at", "last_settled_at", "standing_since")
"""The fields of `GroupReport` of the same names."""
REASONS: Final = ("poison_head", "held_head", "not_received")
"""Why a group is stuck; their places are the codes of `StuckColumns.reason`."""
_MULTIPLIER: Final = np.int64(1_000_003)


@dataclass(slots=True)
class GroupColumns:
    """Some groups, queue by queue, with their heads."""

    queue: Array
    """Row number of the queue, ascending."""
    names: pa.Array
    numbers: dict[str, Array]
    """Columns by name of GROUP_NUMBERS."""
    heads: MessageColumns

    def range_of(self, queue: int) -> tuple[int, int]:
        """Return the first row of a queue's groups, and the one after the last."""
        return int(self.queue.searchsorted(queue)), int(self.queue.searchsorted(queue, "right"))

    def between(self, start: int, stop: int) -> list[GroupReport]:
        """Return the groups of a range of rows."""
        if start == stop:
            return []
        numbers = zip(*(self.numbers[name][start:stop].tolist() for name in GROUP_NUMBERS), strict=True)
        names, heads = self.names.slice(start, stop - start).to_pylist(), self.heads.views(start, stop, ("head",))
        return [
            GroupReport(name, unsettled, in_flight, visible, oldest_sent_at, last_settled_at, head, standing_since)
            for name, head, (unsettled, in_flight, visible, oldest_sent_at, last_settled_at, standing_since) in zip(
                names, heads, numbers, strict=True
            )
        ]


@dataclass(slots=True)
class StuckColumns:
    """The groups that are stuck, in the order of `OrderedQueueReport.stuck`: see `StuckGroup`."""

    groups: GroupColumns
    since: Array
    reason: Array
    """A place in REASONS."""
    waiting: Array
    may_begin: Array

    def of(self, queue: int) -> list[StuckGroup]:
        """Return those of one queue."""
        start, stop = self.groups.range_of(queue)
        columns = (values[start:stop].tolist() for values in (self.since, self.reason, self.waiting, self.may_begin))
        return [
            StuckGroup(group, since, REASONS[reason], waiting, may_begin)
            for group, since, reason, waiting, may_begin in zip(self.groups.between(start, stop), *columns, strict=True)
        ]


@dataclass(slots=True)
class OrderedQueues:
    """The ordered queues of one shard that have unsettled messages in groups."""

    queue: Array
    """Row number of the queue, ascending."""
    figures: dict[str, Array]
    """Columns by name of FIGURES."""
    oldest: GroupColumns
    """The groups with the oldest messages, at most the top K of each queue."""
    stuck: StuckColumns
    look_ahead: Mapping[int, LookAhead] = field(default_factory=dict)

    def get(self, queue: int) -> OrderedQueueReport | None:
        """Return the report on one queue, None where it is not ordered or none of its messages has a group."""
        place = int(self.queue.searchsorted(queue))
        if place == len(self.queue) or self.queue[place] != queue:
            return None
        figures = {name: values.item(place) for name, values in self.figures.items()}
        others_oldest_at = figures.pop("others_oldest_at")
        return OrderedQueueReport(
            **figures,
            others_oldest_at=None if others_oldest_at == NO_OTHERS else others_oldest_at,
            oldest=self.oldest.between(*self.oldest.range_of(queue)),
            stuck=self.stuck.of(queue),
            look_ahead=self.look_ahead.get(queue),
        )

    def digests(self) -> Array:
        """Return a number for each of `queue` that changes when its counts do, or its look-ahead is saturated or no longer so."""
        digest = 7 + np.isin(self.queue, list(self.look_ahead)).astype(np.int64)
        for name in COUNTS:
            digest = digest * _MULTIPLIER + self.figures[name]
        return digest


@cache
def no_ordered_queues() -> OrderedQueues:
    """Return the report of a shard that has none."""
    nothing = np.zeros(0, dtype=np.int64)
    texts = pa.nulls(0, pa.string())
    attempts = AttemptColumns(np.zeros(1, dtype=np.int64), nothing, nothing, nothing, nothing, texts)
    groups = GroupColumns(
        nothing, texts, dict.fromkeys(GROUP_NUMBERS, nothing), MessageColumns({}, texts, texts, texts, attempts)
    )
    stuck = StuckColumns(groups, nothing, nothing, nothing, nothing)
    return OrderedQueues(nothing, dict.fromkeys(FIGURES, nothing), groups, stuck)
