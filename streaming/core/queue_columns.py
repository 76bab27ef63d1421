"""What a shard reports of its queues, as columns with a row each. What is said of a single queue is made when somebody asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streaming.core.columns import Array
from streaming.core.message_columns import ListedMessages
from streaming.core.queue_table import read_attributes, read_names
from streaming.core.queues import ConsumerState, Depth
from streaming.core.report import MAXIMA, MINIMA, SUMS, ConsumerResults, GroupFacts, HeldBy, Loss, OrderedFacts, QueueFacts

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
        start, stop = np.searchsorted(self.queue, [queue, queue + 1]).tolist()
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

    def facts(self, number: int) -> QueueFacts:
        """Everything that is said of one queue."""
        columns = self.columns
        times = {name: int(columns[name][number]) for name in TIMES}
        groups, folded_groups = self.groups.get(number, ([], 0))
        return QueueFacts(
            name=read_names(self.names)[0][number],
            attributes=read_attributes(self.attributes[number], times["last_state_at"]),
            totals=self.totals[number].tolist(),
            holds={int(bucket): int(count) for bucket, count in _rows_of(self.holds, number)},
            depths=[Depth(*row) for row in _rows_of(self.depths, number)],
            ordered=bool(columns["ordered"][number]),
            dead_letter=bool(columns["dead_letter"][number]),
            messages_seen=bool(columns["messages_seen"][number]),
            last_event_at=times["last_event_at"],
            last_received_at=times["last_received_at"],
            last_settled_at=times["last_settled_at"],
            last_state_at=times["last_state_at"],
            skew_ms=times["skew_ms"],
            numbers={name: int(columns[name][number]) for name in NUMBERS},
            oldest=self.oldest[number].tolist(),
            oldest_but_used_up=self.oldest_but_used_up[number].tolist(),
            age_counts=self.age_counts[number].tolist(),
            groups=groups,
            folded_groups=folded_groups,
            ordered_facts=self.ordered_facts.get(number),
            consumers=self.consumers.get(number, []),
            messages={kind.kind: found for kind in self.listed if (found := kind.of(number))},
            consumer_states=dict(self.consumer_states.get(number, {})),
            consumer_acks={name: at for name, (at,) in self.acks.of(number).items()},
            consumer_results={name: ConsumerResults(*told) for name, told in self.results.of(number).items()},
            losses=self.losses.get(number, []),
        )


def _rows_of(columns: tuple[Array, ...], queue: int) -> list[tuple[int, ...]]:
    start, stop = np.searchsorted(columns[0], [queue, queue + 1]).tolist()
    return list(zip(*(values[start:stop].tolist() for values in columns[1:]), strict=True))
