"""A shard's report on its queues, as columns with a row per queue. Objects for a single queue are built on demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from streaming.core.columns import Array
from streaming.core.reporting.message_columns import ListedMessages
from streaming.core.reporting.ordered_queues import OrderedQueues, no_ordered_queues
from streaming.core.reporting.report import MAXIMA, MINIMA, SUMS, Loss, Purge
from streaming.core.state.consumer_states import ConsumerStates
from streaming.core.state.packed_counts import PackedCounts
from streaming.core.state.queue_table import FLAGS as FLAGS
from streaming.core.state.queue_table import REPORTED as REPORTED
from streaming.core.state.queue_text import SharedTexts, read_attributes
from streaming.core.state.queues import Reported

NUMBERS = (*SUMS, *MAXIMA, *MINIMA)
REPORT_TIMES = ("last_event_at", "last_received_at", "last_settled_at", "last_state_at", "skew_ms", "left_out_at")
"""Those of the table's times that the judge needs."""
LATEST_COUNT = ("counted_at", "counted_visible", "counted_in_flight", "counted_delayed")
"""The table's columns that the judge needs from the broker's latest count."""
INTEGERS = (*NUMBERS, *REPORT_TIMES, *LATEST_COUNT, *REPORTED)
"""All columns but FLAGS."""


@dataclass(slots=True)
class NamedColumns:
    """Consumers or groups, queue by queue, with some values of each."""

    queue: Array
    """Row number of the queue, ascending."""
    names: pa.Array
    values: tuple[Any, ...]
    """Columns: arrays of numpy or of Arrow."""


def nothing_named() -> NamedColumns:
    """Return the columns of a shard that has none."""
    return NamedColumns(np.zeros(0, dtype=np.int32), pa.nulls(0, pa.string()), ())


@dataclass(slots=True)
class QueueColumns:
    """The queues of one shard, numbered as in its state."""

    names: bytes
    """Packed names, for `read_names`."""
    columns: dict[str, Array]
    """Columns by name of NUMBERS, FLAGS, REPORT_TIMES, LATEST_COUNT and REPORTED."""
    totals: Array
    """A column for each of TOTALS. Of this table and the next ones, each column is together in memory."""
    oldest: Array
    """A column per scope of AGE_SCOPES: the time from which its age counts, NEVER where it has no message."""
    oldest_but_used_up: Array
    age_counts: Array
    """A column per age bucket."""
    attributes: SharedTexts
    """As `write_attributes` writes them."""
    durations: PackedCounts
    """Deleted messages by queue and key of `duration_buckets`."""
    depths: tuple[Array, ...]
    """Queue (ascending) and the fields of Depth."""
    tracked_at_counts: tuple[Array, ...]
    """Queue (ascending), the time of one of its latest counts, and the fields of TrackedAtCount."""
    acks: NamedColumns
    """See `last_acks`."""
    results: NamedColumns
    """See `consumer_results`."""
    folded_groups: Array
    """Unordered queues only: the number of groups beyond `groups`."""
    losses_per_queue: int
    """At most so many of `losses` are listed of each queue."""
    listed: tuple[ListedMessages, ...] = ()
    groups: NamedColumns = field(default_factory=nothing_named)
    """Unordered queues only: see `unordered_groups`."""
    ordered: OrderedQueues = field(default_factory=no_ordered_queues)
    consumers: NamedColumns = field(default_factory=nothing_named)
    """See `held_by_consumers`."""
    consumer_states: ConsumerStates = field(default_factory=ConsumerStates)
    losses: Mapping[int, list[Loss]] = field(default_factory=dict)
    purges: Mapping[int, list[Purge]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.totals)

    def attributes_of(self, number: int) -> dict[str, Reported]:
        """Return the attributes of one queue."""
        return read_attributes(self.attributes.text(number), int(self.columns["last_state_at"][number]))
