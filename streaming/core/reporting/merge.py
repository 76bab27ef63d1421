"""The reports of all shards as one: sums, minima, maxima, longest first. However many shards there are, it is the same."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import nlargest, nsmallest
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import numpy as np

from streaming.core.columns import Array
from streaming.core.events.packet import Quarantined
from streaming.core.reporting.message_columns import Listed
from streaming.core.reporting.queue_columns import COUNTS, FLAGS, NUMBERS, TIMES, TOLD, QueueColumns, rows_of
from streaming.core.reporting.report import (
    AGE_BUCKETS_S,
    AGE_SCOPES,
    MINIMA,
    OLDEST_LISTED,
    SUMS,
    Arrival,
    ConsumerResults,
    GroupFacts,
    HeldBy,
    QueueFacts,
)
from streaming.core.reporting.shard_report import ShardReport
from streaming.core.settings import QueueName, Settings
from streaming.core.state.queue_table import read_names
from streaming.core.state.queues import HOLD_BUCKETS, NEVER, TOTALS


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
        if found is None:
            found = self._facts[place] = self._made(place)
        return found

    def _made(self, place: int) -> QueueFacts:
        number = dict(zip(self.columns, self._table[place].tolist(), strict=True))
        counts = self.holds[place]
        used = np.flatnonzero(counts)
        facts = QueueFacts(
            name=self.names[place],
            attributes={},
            totals=self.totals[place].tolist(),
            holds=dict(zip(used.tolist(), counts[used].tolist(), strict=True)),
            durations={},
            depths=[],
            ordered=bool(number["ordered"]),
            dead_letter=bool(number["dead_letter"]),
            messages_seen=bool(number["messages_seen"]),
            last_event_at=number["last_event_at"],
            last_received_at=number["last_received_at"],
            last_settled_at=number["last_settled_at"],
            last_state_at=number["last_state_at"],
            skew_ms=number["skew_ms"],
            numbers={name: number[name] for name in NUMBERS},
            oldest=self.oldest[place].tolist(),
            oldest_but_used_up=self.oldest_but_used_up[place].tolist(),
            age_counts=self.age_counts[place].tolist(),
        )
        facts.messages = _ListedOf(self, place)
        told: tuple[bytes, int] | None = None
        for shard, rows in zip(self._shards, self._rows, strict=True):
            row = int(rows[place])
            if row < 0:
                continue
            # Every shard hears what the broker says of a queue, so they nearly always know the same.
            text = shard.attributes[row], int(shard.columns["last_state_at"][row])
            if told is None:
                facts.attributes, facts.depths = shard.attributes_of(row), shard.depths_of(row)
            elif text != told:
                _add_attributes(facts, shard.attributes_of(row))
                facts.depths = max(facts.depths, shard.depths_of(row), key=len)
            told = text
            _add_details(facts, shard, row, self._settings)
        return facts

    def listed_kinds(self, place: int) -> list[str]:
        """The kinds under which messages of one queue are listed."""
        found: dict[str, bool] = {}
        for shard, rows in zip(self._shards, self._rows, strict=True):
            found |= {listed.kind: True for listed in shard.listed if rows[place] >= 0 and listed.has(int(rows[place]))}
        return list(found)

    def listed(self, place: int, kind: str) -> list[Listed]:
        """The messages of one queue that are listed under a kind, those of lowest rank first."""
        found = []
        for shard, rows in zip(self._shards, self._rows, strict=True):
            found += [one for listed in shard.listed if listed.kind == kind for one in listed.of(int(rows[place]))]
        if kind == "oldest":
            found = [one for one in found if one.view.sent_at_ms == self.oldest[place, 0]]
        most = OLDEST_LISTED if kind == "oldest" else self._settings.messages_per_queue
        return nsmallest(most, found, key=attrgetter("rank"))

    @cached_property
    def _table(self) -> Array:
        return np.stack([values.astype(np.int64, copy=False) for values in self.columns.values()], axis=1)

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


class _ListedOf(Mapping[str, list[Listed]]):
    """The messages listed of one queue, by kind. Hardly ever are those of every kind looked at."""

    def __init__(self, queues: MergedQueues, place: int) -> None:
        self._queues, self._place = queues, place
        self._kinds = queues.listed_kinds(place)
        self._made: dict[str, list[Listed]] = {}

    def __getitem__(self, kind: str) -> list[Listed]:
        if kind not in self._kinds:
            raise KeyError(kind)
        if kind not in self._made:
            self._made[kind] = self._queues.listed(self._place, kind)
        return self._made[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


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


def _add_attributes(facts: QueueFacts, attributes: Mapping[str, tuple[int, Any]]) -> None:
    for name, (at, value) in attributes.items():
        told = facts.attributes.get(name)
        if told is None or (at, repr(value)) >= (told[0], repr(told[1])):
            facts.attributes[name] = (at, value)


def _add_details(facts: QueueFacts, shard: QueueColumns, row: int, settings: Settings) -> None:
    """What few queues have, and what is named one by one."""
    if row in shard.losses:
        facts.losses = sorted(facts.losses + shard.losses[row])[-settings.messages_per_queue :]
    if row in shard.groups:
        groups, folded = shard.groups[row]
        facts.groups = _merge_groups(facts.groups, groups)
        facts.folded_groups += folded
    facts.ordered_facts = facts.ordered_facts or shard.ordered_facts.get(row)
    if row in shard.consumers:
        facts.consumers = _merge_consumers(facts.consumers, shard.consumers[row])
    for bucket, count in rows_of(shard.durations, row):
        facts.durations[bucket] = facts.durations.get(bucket, 0) + count
    facts.consumer_states.update(shard.consumer_states.get(row, {}))
    for consumer, (at,) in shard.acks.of(row).items():
        facts.consumer_acks[consumer] = max(at, facts.consumer_acks.get(consumer, 0))
    for consumer, (finished, failed) in shard.results.of(row).items():
        before = facts.consumer_results.get(consumer, ConsumerResults(0, 0))
        facts.consumer_results[consumer] = ConsumerResults(before.finished + finished, before.failed + failed)


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
