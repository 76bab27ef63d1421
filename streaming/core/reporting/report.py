"""The report on a queue after a step: its numbers, and the messages, groups and consumers worth naming."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from streaming.core.columns import Array
from streaming.core.reporting.counted_durations import CountedDurations
from streaming.core.reporting.message_columns import Listed
from streaming.core.reporting.views import MessageView
from streaming.core.settings import QueueName
from streaming.core.state.consumer_states import ConsumerState
from streaming.core.state.queues import NEVER, TOTALS, Attribute, Depth, Reported, latest_number, latest_value

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
AgeScope = Literal["all", "visible", "cloudwatch", "healthy"]
AGE_SCOPES: tuple[AgeScope, ...] = get_args(AgeScope)

OLDEST_LISTED = 3
"""How many of the messages with the oldest send time are listed."""

SUMS = ("visible", "in_flight", "delayed", "poison", "used_up", "age_sum_ms", "dead_letters", "send_unknown", "restarts_unseen")
MAXIMA = ("receive_count_max", "lost_at_receives", "expires_last", "late_work_ms")
MINIMA = (
    "expires_at",
    "visible_since",
    "used_up_first",
    "oldest_received",
    "oldest_received_visible",
    "returned_since",
    "oldest_held",
    "held_since",
)


MOST_LISTED = 20_000
"""So many messages of a kind are listed of all queues together, where each has a signal of its own: when thousands of queues fail
at once, a hundred of each would take a minute in every step…"""
FEWEST_LISTED = 3
"""…but so many of each queue are."""

Rank = tuple[int, int]
"""Orders arrivals and losses: the time in epoch milliseconds from which the quiet after one counts (when it happened or, if that
became known too late, when it was noticed), then a number of the message to break ties."""


class GroupReport(NamedTuple):
    """One group of messages. Times are epoch milliseconds."""

    name: str
    unsettled: int
    in_flight: int
    """Of an ordered queue with those given back that are not visible yet, which block the group as well."""
    visible: int
    oldest_sent_at: int
    last_settled_at: int
    """Of an ordered queue, whose groups are each in one shard; 0 otherwise, and where none was settled."""
    head: MessageView | None = None
    standing_since: int = 0
    """Since when the head of an ordered group could be received, or is in flight, and nothing was settled; 0: it is delayed, or
    no message waits behind it."""


class StuckGroup(NamedTuple):
    """A group in which nothing moved for too long."""

    group: GroupReport
    since: int
    reason: str
    waiting: int
    """How many messages wait behind its head."""
    may_begin: bool
    """False where a signal about it only goes on: its head is being tried again, alone or with all the others, or no consumer
    receives from the queue."""


class LookAhead(NamedTuple):
    """A FIFO queue whose look-ahead holds messages of blocked groups only."""

    limit: int
    blocking_group: str
    blocking_messages: int
    blocked_groups: int
    hidden_messages: int
    hidden_groups: int


@dataclass(slots=True)
class OrderedQueueReport:
    """The report on an ordered queue, which is wholly in one shard."""

    groups: int
    backlog: int
    """Groups with a visible message."""
    in_flight: int
    blocked: int
    """Groups with a backlog that have a message in flight."""
    hidden: int
    oldest: list[GroupReport]
    """The groups with the oldest messages, at most the top K."""
    others_oldest_at: int | None
    stuck: list[StuckGroup]
    """At most `messages_per_queue`: those that a signal may begin about, then the others, each longest stuck first."""
    stuck_groups: int
    """How many there are that a signal may begin about."""
    look_ahead: LookAhead | None
    youngest_received_sent_at: int
    """When the youngest message received so far was sent; 0: none was."""
    overtaken: int
    """Messages that were never received, although a later one of their group was: they are in none of these groups."""


class ConsumerHolds(NamedTuple):
    """The messages that one consumer holds."""

    consumer: str
    messages: int
    since: int
    """Since when it has held the oldest of them, epoch milliseconds."""
    message_id: str
    """The oldest of them."""
    group: str | None
    """That one's group; None if it has none."""
    extended: bool
    """Whether that one's window was extended since its latest receive."""
    held_at_count: int
    """How many of them it held when the broker last counted what it holds (`dispatched` of its `consumer_state`)."""
    rank: tuple[int, ...]
    """The place of the oldest one: the lower, the earlier it was dispatched or, of those dispatched at once, sent."""


class ConsumerResults(NamedTuple):
    """How one consumer's deliveries ended so far: with a deletion, or without a settlement. Running totals."""

    finished: int
    failed: int


class Arrival(NamedTuple):
    """A message that arrived in a dead-letter queue. `known_by`: event, first_receive or inferred."""

    queue: QueueName
    message_id: str
    at: int
    known_by: str
    source: str | None
    receive_count: int
    rank: Rank


RETENTION_RAN_OUT = "retention ran out"
"""Reason of a loss that was inferred from a message's age and that no event reported."""


class Loss(NamedTuple):
    """A message that was lost. `kind`: expired or dropped."""

    rank: Rank
    at: int
    message_id: str
    kind: str
    reason: str
    receive_count: int
    sent_at: int
    """Until its send time is known, the time of its first event."""
    sent_known: bool = True


class Purge(NamedTuple):
    """Messages of one queue that a purge removed and nobody had processed. Times are epoch milliseconds."""

    at: int
    quiet_from: int
    """From when the quiet after it counts: `at` or, if it became known too late, when it was noticed."""
    messages: int
    received: int
    """How many of them had been delivered."""
    oldest_sent_at: int
    oldest_received_sent_at: int
    """The send time of the oldest that had been delivered, NEVER where there is none."""


_TOTAL = {name: i for i, name in enumerate(TOTALS)}


@dataclass(slots=True)
class QueueAttributes:
    """What the broker reports about one queue."""

    name: QueueName
    attributes: dict[str, Reported]

    def attribute(self, name: Attribute) -> Any:
        """Return the latest value of an attribute, or None when it was never reported."""
        return latest_value(self.attributes, name)

    def number(self, name: Attribute) -> float | None:
        """Return the latest value of a numeric attribute."""
        return latest_number(self.attributes, name)


class TrackedAtCount(NamedTuple):
    """The tracked messages of a queue at the time of a broker's count, with and without what happened in that millisecond."""

    visible: int = 0
    in_flight: int = 0
    delayed: int = 0
    visible_before: int = 0
    in_flight_before: int = 0
    delayed_before: int = 0


@dataclass(slots=True)
class QueueSummary(QueueAttributes):
    """One queue as the shards know it. Times are epoch milliseconds, 0 for never."""

    totals: list[int]
    durations: CountedDurations
    depths: list[Depth]
    tracked_at_counts: dict[int, TrackedAtCount]
    """Time of one of the latest of `depths` -> what was tracked then."""
    ordered: bool
    dead_letter: bool
    messages_seen: bool
    last_event_at: int
    last_received_at: int
    last_settled_at: int
    last_state_at: int
    skew_ms: int
    left_out_at: int
    """The latest event of a message that is not tracked for want of room (epoch milliseconds), 0 for never."""
    numbers: dict[str, int] = field(default_factory=dict)
    """Values by name of SUMS, MAXIMA and MINIMA."""
    oldest: list[int] = field(default_factory=list)
    """Per scope of AGE_SCOPES the time from which its age counts, NEVER where it has no message."""
    oldest_but_used_up: list[int] = field(default_factory=list)
    """The same without messages that have no receives left and whose last window has ended."""
    age_counts: list[int] = field(default_factory=list)
    groups: list[GroupReport] = field(default_factory=list)
    """Unordered queues only: oldest first."""
    folded_groups: int = 0
    ordered_facts: OrderedQueueReport | None = None
    consumers: list[ConsumerHolds] = field(default_factory=list)
    messages: Mapping[str, list[Listed]] = field(default_factory=dict)
    """Listed messages by kind."""
    consumer_states: dict[str, ConsumerState] = field(default_factory=dict)
    consumer_acks: dict[str, int] = field(default_factory=dict)
    """When a message of each consumer was last acknowledged, as far as its receives are known."""
    consumer_results: dict[str, ConsumerResults] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    """The latest `messages_per_queue`, oldest first."""
    purges: list[Purge] = field(default_factory=list)
    """Oldest first."""

    def total(self, name: str) -> int:
        """Return one of the running totals."""
        return self.totals[_TOTAL[name]]


def listed_per_queue(queue: Array, most: int) -> int:
    """Return how many messages are listed of each queue, at most `most`: fewer where very many queues have some.

    `queue`: the number of the queue of each message that could be. It is never less for a part of the messages.
    """
    if len(queue) <= MOST_LISTED:
        return most
    counts = np.bincount(queue)
    while most > FEWEST_LISTED and int(np.minimum(counts, most).sum()) > MOST_LISTED:
        most = max(FEWEST_LISTED, most * 3 // 4)
    return most


def per_queue_min(queue: Array, values: Array, mask: Array, n: int) -> Array:
    """Return, per queue, the smallest of `values` in `mask`, NEVER where there is none."""
    out = np.full(n, NEVER, dtype=np.int64)
    (at,) = mask.nonzero()
    if len(at):
        np.minimum.at(out, queue[at], values[at])
    return out
