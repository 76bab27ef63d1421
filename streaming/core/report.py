"""What a shard reports after a step, and how the reports of all shards become one: sums, minima, maxima, longest first.

However many shards there are, the merged report is the same.
"""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import nlargest, nsmallest
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from streaming.core.columns import Array
from streaming.core.garbage import not_collecting
from streaming.core.packet import Quarantined
from streaming.core.queues import NEVER, TOTALS, ConsumerState, Depth
from streaming.core.settings import QueueName, Settings
from streaming.core.views import MessageView

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
MINIMA = ("expires_at", "visible_since", "used_up_first", "oldest_received", "oldest_received_visible", "oldest_held")


Rank = tuple[int, int]
"""From when the quiet after something counts, in epoch milliseconds: when it happened or, noticed too late for that, when it was
noticed; and a number of the message, for those of one time."""


class Listed(NamedTuple):
    """A message a shard lists under one of the kinds `poison`, `held`, `dead_letter`, `oldest`; `rank` orders them."""

    rank: tuple[int, ...]
    view: MessageView


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
    messages: dict[str, list[Listed]] = field(default_factory=dict)
    consumer_states: dict[str, ConsumerState] = field(default_factory=dict)
    consumer_acks: dict[str, int] = field(default_factory=dict)
    """When each consumer last had a message acknowledged, as far as its receives are known."""
    consumer_results: dict[str, ConsumerResults] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    """The latest `messages_per_queue`, oldest first."""

    def __reduce__(self) -> tuple[Any, ...]:
        # There may be thousands in every batch, and a class with slots is slow to pickle otherwise.
        return QueueFacts, _OF_FACTS(self)

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


_OF_FACTS = attrgetter(*QueueFacts.__slots__)


@dataclass(slots=True)
class ShardReport:
    """What one shard, or all of them together, say as of `now`."""

    now: int
    rows: int
    queues: dict[QueueName, QueueFacts]
    arrivals: list[Arrival]
    """The latest `messages_per_queue` of each dead-letter queue."""
    events_total: Counter[str]
    invalid_total: Counter[str]
    collectors: dict[str, int]
    quarantine: list[Quarantined]
    high_water: int

    def to_bytes(self) -> bytes:
        """For the way from a worker to the driver of the same release; not for keeping."""
        return pickle.dumps(self, protocol=5)

    @classmethod
    def from_bytes(cls, blob: bytes) -> ShardReport:
        """The report of `to_bytes`."""
        with not_collecting():
            report = pickle.loads(blob)
        if not isinstance(report, cls):
            raise TypeError(f"not a shard report: {type(report).__name__}")
        return report


Merged = ShardReport


def merge(reports: Sequence[ShardReport], settings: Settings) -> Merged:
    """The reports of all shards for one `now` as one."""
    if not reports:
        raise ValueError("no shard reported")
    merged = ShardReport(
        max(r.now for r in reports),
        sum(r.rows for r in reports),
        {},
        _latest_arrivals([a for r in reports for a in r.arrivals], settings),
        Counter(),
        Counter(),
        {},
        [q for r in reports for q in r.quarantine],
        max(r.high_water for r in reports),
    )
    for report in reports:
        merged.events_total.update(report.events_total)
        merged.invalid_total.update(report.invalid_total)
        for collector, at in report.collectors.items():
            merged.collectors[collector] = max(at, merged.collectors.get(collector, 0))
        for name, facts in report.queues.items():
            known = merged.queues.get(name)
            if known is None:
                merged.queues[name] = facts
            else:
                _merge_queue(known, facts, settings)
    merged.queues = dict(sorted(merged.queues.items()))
    return merged


def _latest_arrivals(arrivals: list[Arrival], settings: Settings) -> list[Arrival]:
    by_queue: defaultdict[QueueName, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        by_queue[arrival.queue].append(arrival)
    kept = (a for own in by_queue.values() for a in nlargest(settings.messages_per_queue, own, key=attrgetter("rank")))
    return sorted(kept, key=lambda a: (a.at, a.message_id))


def _merge_queue(a: QueueFacts, b: QueueFacts, settings: Settings) -> None:
    for name, (at, value) in b.attributes.items():
        told = a.attributes.get(name)
        if told is None or (at, repr(value)) >= (told[0], repr(told[1])):
            a.attributes[name] = (at, value)
    a.totals = [x + y for x, y in zip(a.totals, b.totals, strict=True)]
    a.holds = dict(Counter(a.holds) + Counter(b.holds))
    if len(b.depths) > len(a.depths):
        a.depths = b.depths
    a.losses = sorted(a.losses + b.losses)[-settings.messages_per_queue :]
    for flag in ("ordered", "dead_letter", "messages_seen"):
        setattr(a, flag, getattr(a, flag) or getattr(b, flag))
    for latest in ("last_event_at", "last_received_at", "last_settled_at", "last_state_at", "skew_ms"):
        setattr(a, latest, max(getattr(a, latest), getattr(b, latest)))
    for names, combine in ((SUMS, int.__add__), (MAXIMA, max), (MINIMA, min)):
        for name in names:
            a.numbers[name] = combine(a.numbers[name], b.numbers[name])
    a.oldest = [min(x, y) for x, y in zip(a.oldest, b.oldest, strict=True)]
    a.oldest_but_used_up = [min(x, y) for x, y in zip(a.oldest_but_used_up, b.oldest_but_used_up, strict=True)]
    a.age_counts = [x + y for x, y in zip(a.age_counts, b.age_counts, strict=True)]
    a.groups = _merge_groups(a.groups, b.groups)
    a.folded_groups += b.folded_groups
    a.ordered_facts = a.ordered_facts or b.ordered_facts
    a.consumers = _merge_consumers(a.consumers, b.consumers)
    for kind, listed in b.messages.items():
        cap = settings.messages_per_queue
        a.messages[kind] = nsmallest(cap, a.messages.get(kind, []) + listed, key=lambda one: one.rank)
    a.messages["oldest"] = [m for m in a.messages.get("oldest", []) if m.view.sent_at_ms == a.oldest[0]][:OLDEST_LISTED]
    a.consumer_states.update(b.consumer_states)
    for consumer, at in b.consumer_acks.items():
        a.consumer_acks[consumer] = max(at, a.consumer_acks.get(consumer, 0))
    for consumer, results in b.consumer_results.items():
        before = a.consumer_results.get(consumer, ConsumerResults(0, 0))
        a.consumer_results[consumer] = ConsumerResults(before.finished + results.finished, before.failed + results.failed)


def _merge_groups(a: list[GroupFacts], b: list[GroupFacts]) -> list[GroupFacts]:
    if not a or not b:
        return a or b
    known = {group.name: group for group in a}
    for group in b:
        other = known.get(group.name)
        if other is not None:
            group = GroupFacts(
                group.name,
                group.unsettled + other.unsettled,
                group.in_flight + other.in_flight,
                min(group.oldest_sent_at, other.oldest_sent_at),
                max(group.last_settled_at, other.last_settled_at),
            )
        known[group.name] = group
    return sorted(known.values(), key=lambda g: (g.oldest_sent_at, g.name))


def _merge_consumers(a: list[HeldBy], b: list[HeldBy]) -> list[HeldBy]:
    if not a or not b:
        return a or b
    known = {held.consumer: held for held in a}
    for held in b:
        other = known.get(held.consumer)
        if other is not None:
            since, message_id = min((held.since, held.message_id), (other.since, other.message_id))
            held = HeldBy(held.consumer, held.held + other.held, since, message_id)
        known[held.consumer] = held
    return sorted(known.values(), key=lambda h: (h.since, h.consumer))


def no_numbers() -> dict[str, int]:
    """The numbers of a queue without messages."""
    return dict.fromkeys((*SUMS, *MAXIMA), 0) | dict.fromkeys(MINIMA, NEVER)


def per_queue_min(queue: Array, values: Array, mask: Array, n: int) -> Array:
    """Per queue the smallest of `values` in `mask`, NEVER where there is none."""
    out = np.full(n, NEVER, dtype=np.int64)
    at = np.flatnonzero(mask)
    np.minimum.at(out, queue[at], values[at])
    return out
