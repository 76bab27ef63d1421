"""The reports of all shards as one: sums, minima, maxima, longest first. However many shards there are, it is the same."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import nlargest, nsmallest
from operator import attrgetter
from typing import Literal, NamedTuple

import numpy as np

from streaming.core.columns import Array
from streaming.core.packet import Quarantined
from streaming.core.queue_columns import COUNTS, FLAGS, NUMBERS, TIMES, TOLD, QueueColumns
from streaming.core.queue_table import read_names
from streaming.core.queues import HOLD_BUCKETS, NEVER, TOTALS
from streaming.core.report import (
    AGE_BUCKETS_S,
    AGE_SCOPES,
    MAXIMA,
    MINIMA,
    OLDEST_LISTED,
    SUMS,
    Arrival,
    ConsumerResults,
    GroupFacts,
    HeldBy,
    QueueFacts,
)
from streaming.core.settings import QueueName, Settings
from streaming.core.shard_report import ShardReport


class _Places(NamedTuple):
    """Where the queues of each shard are among all."""

    names: tuple[QueueName, ...]
    place: dict[QueueName, int]
    of_shards: tuple[Array, ...]


@lru_cache(maxsize=4)
def _places(packed: tuple[bytes, ...]) -> _Places:
    # Names hardly ever change from one step to the next.
    shards = [read_names(names)[0] for names in packed]
    names = tuple(sorted({name for shard in shards for name in shard}))
    index = {name: place for place, name in enumerate(names)}
    return _Places(names, index, tuple(np.array([index[name] for name in shard], dtype=np.int64) for shard in shards))


class MergedQueues(Mapping[QueueName, QueueFacts]):
    """All queues in the order of their names: a row each, and the facts of single ones when somebody asks for them."""

    def __init__(self, shards: Sequence[QueueColumns], settings: Settings) -> None:
        self._shards, self._settings = shards, settings
        self._facts: dict[int, QueueFacts] = {}
        places = _places(tuple(shard.names for shard in shards))
        self.names, self._index, self._places = places
        n = len(self.names)
        self.columns: dict[str, Array] = {}
        """By name of NUMBERS, FLAGS, TIMES, COUNTS and TOLD."""
        for name in (*NUMBERS, *FLAGS, *TIMES, *COUNTS, *TOLD):
            self.columns[name] = self._combined(name, n)
        self.totals = self._summed([shard.totals for shard in shards], len(TOTALS))
        """A column for each of TOTALS."""
        self.oldest = self._least([shard.oldest for shard in shards], len(AGE_SCOPES))
        self.oldest_but_used_up = self._least([shard.oldest_but_used_up for shard in shards], len(AGE_SCOPES))
        self.age_counts = self._summed([shard.age_counts for shard in shards], len(AGE_BUCKETS_S) + 1)

    @cached_property
    def holds(self) -> Array:
        """Holding times: a column per bucket."""
        counts = np.zeros((len(self.names), HOLD_BUCKETS), dtype=np.int64)
        for shard, place in zip(self._shards, self._places, strict=True):
            queue, bucket, count = shard.holds
            counts[place[queue], bucket] += count
        return counts

    @cached_property
    def group_digest(self) -> Array:
        """A number that changes when something of the ordering groups of a queue does; 0 where there are none."""
        digest = np.zeros(len(self.names), dtype=np.int64)
        for shard, place in zip(self._shards, self._places, strict=True):
            for number, facts in shard.ordered_facts.items():
                said = (facts.groups, facts.backlog, facts.in_flight, facts.blocked, facts.hidden, facts.stuck_groups)
                digest[place[number]] ^= hash((*said, facts.look_ahead is not None))
        return digest

    def places_of(self, what: Literal["losses", "consumer_states"]) -> Iterator[int]:
        """The rows of the queues of which there are any."""
        for shard, place in zip(self._shards, self._places, strict=True):
            yield from place[list(getattr(shard, what))].tolist()

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[QueueName]:
        return iter(self.names)

    def __getitem__(self, name: QueueName) -> QueueFacts:
        return self.facts(self._index[name])

    def place(self, name: QueueName) -> int | None:
        """The row of a queue."""
        return self._index.get(name)

    def facts(self, place: int) -> QueueFacts:
        """Everything that is said of one queue."""
        found = self._facts.get(place)
        if found is not None:
            return found
        for shard, rows in zip(self._shards, self._rows, strict=True):
            row = int(rows[place])
            if row < 0:
                continue
            facts = shard.facts(row)
            if found is None:
                found = facts
            else:
                _merge_queue(found, facts, self._settings)
        if found is None:
            raise KeyError(self.names[place])
        self._facts[place] = found
        return found

    @cached_property
    def _rows(self) -> tuple[Array, ...]:
        """Per shard the row of each queue, -1 where it does not know it."""
        found = []
        for place in self._places:
            rows = np.full(len(self.names), -1, dtype=np.int64)
            rows[place] = np.arange(len(place))
            found.append(rows)
        return tuple(found)

    def _combined(self, name: str, n: int) -> Array:
        least, flag = name in MINIMA, name in FLAGS
        out = np.full(n, NEVER if least else 0, dtype=bool if flag else np.int64)
        for shard, place in zip(self._shards, self._places, strict=True):
            values = shard.columns[name]
            if name in SUMS:
                out[place] += values
            else:
                out[place] = np.minimum(out[place], values) if least else np.maximum(out[place], values)
        return out

    def _summed(self, tables: Sequence[Array], width: int) -> Array:
        out = np.zeros((len(self.names), width), dtype=np.int64)
        for table, place in zip(tables, self._places, strict=True):
            out[place] += table
        return out

    def _least(self, tables: Sequence[Array], width: int) -> Array:
        out = np.full((len(self.names), width), NEVER, dtype=np.int64)
        for table, place in zip(tables, self._places, strict=True):
            out[place] = np.minimum(out[place], table)
        return out


@dataclass(slots=True)
class Merged:
    """What all shards together say as of `now`."""

    now: int
    rows: int
    queues: MergedQueues
    arrivals: list[Arrival]
    """The latest `messages_per_queue` of each dead-letter queue."""
    events_total: Counter[str]
    invalid_total: Counter[str]
    collectors: dict[str, int]
    quarantine: list[Quarantined]
    high_water: int


def merge(reports: Sequence[ShardReport], settings: Settings) -> Merged:
    """The reports of all shards for one `now` as one."""
    if not reports:
        raise ValueError("no shard reported")
    merged = Merged(
        now=max(r.now for r in reports),
        rows=sum(r.rows for r in reports),
        queues=MergedQueues([r.queues for r in reports], settings),
        arrivals=_latest_arrivals([a for r in reports for a in r.arrivals], settings),
        events_total=Counter(),
        invalid_total=Counter(),
        collectors={},
        quarantine=[q for r in reports for q in r.quarantine],
        high_water=max(r.high_water for r in reports),
    )
    for report in reports:
        merged.events_total.update(report.events_total)
        merged.invalid_total.update(report.invalid_total)
        for collector, at in report.collectors.items():
            merged.collectors[collector] = max(at, merged.collectors.get(collector, 0))
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
