"""What is said of a queue after a step: its numbers, and the messages, groups and consumers worth naming."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from streaming.core.columns import Array
from streaming.core.reporting.message_columns import Listed
from streaming.core.reporting.views import MessageView
from streaming.core.settings import QueueName
from streaming.core.state.queues import NEVER, TOTALS, ConsumerState, Depth

AGE_BUCKETS_S: tuple[float, ...] = (
    1,
    5,
    15,
    30,
    60,
    120,
    300,
    900,
    1800,
    3600,
    14_400,
    43_200,
    86_400,
    345_600,
)
AGE_SCOPES = ("all", "visible", "cloudwatch", "healthy")

OLDEST_LISTED = 3
"""How many of the messages with the oldest send time are listed."""

SUMS = ("visible", "in_flight", "delayed", "poison", "used_up", "age_sum_ms", "dead_letters")
MAXIMA = ("receive_count_max", "lost_at_receives", "used_up_last")
MINIMA = (
    "expires_at",
    "visible_since",
    "used_up_first",
    "oldest_received",
    "oldest_received_visible",
    "oldest_held",
    "held_since",
)


Rank = tuple[int, int]
"""From when the quiet after something counts, in epoch milliseconds: when it happened or, noticed too late for that, when it was
noticed; and a number of the message, for those of one time."""


class GroupFacts(NamedTuple):
    """One group of messages. Times are epoch milliseconds."""

    name: str
    unsettled: int
    in_flight: int
    oldest_sent_at: int
    last_settled_at: int
    head: MessageView | None = None


class StuckGroup(NamedTuple):
    """A group in which nothing moved for too long."""

    group: GroupFacts
    since: int
    reason: str
    waiting: int


class LookAhead(NamedTuple):
    """A FIFO queue all of whose first messages are of blocked groups."""

    limit: int
    blocking_group: str
    blocking_messages: int
    blocked_groups: int
    hidden_messages: int
    hidden_groups: int


@dataclass(slots=True)
class OrderedFacts:
    """What is told of an ordered queue, all of which one shard sees."""

    groups: int
    backlog: int
    in_flight: int
    blocked: int
    hidden: int
    oldest: list[GroupFacts]
    """The groups with the oldest messages, at most top K."""
    others_oldest_at: int | None
    stuck: list[StuckGroup]
    """At most `messages_per_queue`, longest stuck first."""
    stuck_groups: int
    look_ahead: LookAhead | None


class HeldBy(NamedTuple):
    """What one consumer holds."""

    consumer: str
    held: int
    since: int
    message_id: str


class ConsumerResults(NamedTuple):
    """How one consumer's deliveries ended so far: with a deletion, or without a settlement. Running totals."""

    finished: int
    failed: int


class Arrival(NamedTuple):
    """A message that came to a dead-letter queue. `known_by`: event, first_receive or inferred."""

    queue: QueueName
    message_id: str
    at: int
    known_by: str
    source: str | None
    receive_count: int
    rank: Rank


RETENTION_RAN_OUT = "retention ran out"
"""Reason of a loss that was concluded from a message's age and reported by nobody."""


class Loss(NamedTuple):
    """A message that was lost. `kind`: expired or dropped."""

    rank: Rank
    at: int
    message_id: str
    kind: str
    reason: str
    receive_count: int
    sent_at: int


@dataclass(slots=True)
class QueueFacts:
    """One queue as the shards know it. Times are epoch milliseconds, 0 when it never happened."""

    name: QueueName
    attributes: dict[str, tuple[int, Any]]
    totals: list[int]
    holds: dict[int, int]
    durations: dict[int, int]
    """Kind and bucket of `durations` -> deleted messages."""
    depths: list[Depth]
    ordered: bool
    dead_letter: bool
    messages_seen: bool
    last_event_at: int
    last_received_at: int
    last_settled_at: int
    last_state_at: int
    skew_ms: int
    numbers: dict[str, int] = field(default_factory=dict)
    """By name of SUMS, MAXIMA and MINIMA."""
    oldest: list[int] = field(default_factory=list)
    """Per scope of AGE_SCOPES the time its age counts from, NEVER where no message is in it."""
    oldest_but_used_up: list[int] = field(default_factory=list)
    """The same without messages whose receives are used up and whose last window is over."""
    age_counts: list[int] = field(default_factory=list)
    groups: list[GroupFacts] = field(default_factory=list)
    """Of unordered queues: oldest first."""
    folded_groups: int = 0
    ordered_facts: OrderedFacts | None = None
    consumers: list[HeldBy] = field(default_factory=list)
    messages: Mapping[str, list[Listed]] = field(default_factory=dict)
    """By kind, those that are listed."""
    consumer_states: dict[str, ConsumerState] = field(default_factory=dict)
    consumer_acks: dict[str, int] = field(default_factory=dict)
    """When each consumer last had a message acknowledged, as far as its receives are known."""
    consumer_results: dict[str, ConsumerResults] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    """The latest `messages_per_queue`, oldest first."""

    def attribute(self, name: str) -> Any:
        """The latest value of an attribute, or None when it was never told."""
        found = self.attributes.get(name)
        return None if found is None else found[1]

    def number(self, name: str) -> float | None:
        """The latest value of a numeric attribute."""
        value = self.attribute(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def total(self, name: str) -> int:
        """One of the running totals."""
        return self.totals[TOTALS.index(name)]


def per_queue_min(queue: Array, values: Array, mask: Array, n: int) -> Array:
    """Per queue the smallest of `values` in `mask`, NEVER where there is none."""
    out = np.full(n, NEVER, dtype=np.int64)
    at = np.flatnonzero(mask)
    np.minimum.at(out, queue[at], values[at])
    return out
