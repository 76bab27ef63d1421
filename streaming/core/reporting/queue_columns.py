"""What a shard reports of its queues, as columns with a row each. What is said of a single queue is made when somebody asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streaming.core.columns import Array
from streaming.core.reporting.message_columns import ListedMessages, bounds
from streaming.core.reporting.report import MAXIMA, MINIMA, SUMS, GroupFacts, HeldBy, Loss, OrderedFacts
from streaming.core.state.queue_table import read_attributes
from streaming.core.state.queues import ConsumerState, Depth

NUMBERS = (*SUMS, *MAXIMA, *MINIMA)
FLAGS = ("ordered", "dead_letter", "messages_seen")
TIMES = ("last_event_at", "last_received_at", "last_settled_at", "last_state_at", "skew_ms")
COUNTS = ("counted_at", "counted_visible", "counted_in_flight", "counted_delayed")
TOLD = ("visible_told_at", "paused", "redrive_told")


@dataclass(slots=True)
class ConsumerColumns:
    """Something about consumers, queue by queue."""

    queue: Array
    """Row number of the queue, ascending."""
    names: pa.Array
    values: tuple[Array, ...]

    def of(self, queue: int) -> dict[str, tuple[int, ...]]:
        """By the consumers of one queue."""
        start, stop = bounds(self.queue, queue)
        if start == stop:
            return {}
        names = self.names.slice(start, stop - start).to_pylist()
        return dict(zip(names, zip(*(column[start:stop].tolist() for column in self.values), strict=True), strict=True))


@dataclass(slots=True)
class QueueColumns:
    """The queues of one shard, numbered as in its state."""

    names: bytes
    """For `read_names`."""
    columns: dict[str, Array]
    """By name of NUMBERS, FLAGS, TIMES, COUNTS and TOLD."""
    totals: Array
    """A column for each of TOTALS."""
    oldest: Array
    """A column per scope of AGE_SCOPES: the time its age counts from, NEVER where no message is in it."""
    oldest_but_used_up: Array
    age_counts: Array
    """A column per bucket of ages."""
    attributes: list[bytes]
    holds: tuple[Array, ...]
    """Queue (ascending), bucket, count."""
    durations: tuple[Array, ...]
    """Queue (ascending), kind and bucket, count."""
    depths: tuple[Array, ...]
    """Queue (ascending) and the fields of Depth."""
    acks: ConsumerColumns
    results: ConsumerColumns
    listed: tuple[ListedMessages, ...] = ()
    groups: Mapping[int, tuple[list[GroupFacts], int]] = field(default_factory=dict)
    """Of unordered queues: groups, oldest first, and how many more there are."""
    ordered_facts: Mapping[int, OrderedFacts] = field(default_factory=dict)
    consumers: Mapping[int, list[HeldBy]] = field(default_factory=dict)
    consumer_states: Mapping[int, dict[str, ConsumerState]] = field(default_factory=dict)
    losses: Mapping[int, list[Loss]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.totals)

    def attributes_of(self, number: int) -> dict[str, tuple[int, Any]]:
        """Attribute -> (when told, value)."""
        return read_attributes(self.attributes[number], int(self.columns["last_state_at"][number]))

    def depths_of(self, number: int) -> list[Depth]:
        """Recent counts by the broker, oldest first."""
        return [Depth(*row) for row in rows_of(self.depths, number)]


def rows_of(columns: tuple[Array, ...], queue: int) -> list[tuple[int, ...]]:
    """The rows of one queue: the first column names it, ascending."""
    start, stop = bounds(columns[0], queue)
    return list(zip(*(values[start:stop].tolist() for values in columns[1:]), strict=True))
