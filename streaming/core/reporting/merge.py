"""Merge the reports of all shards: sums, minima, maxima, longest first. The result does not depend on the number of shards."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from heapq import nlargest
from operator import attrgetter
from typing import Literal, NamedTuple

import numpy as np

from streaming.core.columns import Array
from streaming.core.events.packet import Quarantined
from streaming.core.reporting.counted_durations import CountedDurations
from streaming.core.reporting.listings import Listings, ShardRows
from streaming.core.reporting.message_columns import Listed
from streaming.core.reporting.queue_columns import FLAGS, INTEGERS, QueueColumns
from streaming.core.reporting.report import (
    AGE_BUCKETS_S,
    AGE_SCOPES,
    MINIMA,
    SUMS,
    Arrival,
    OrderedQueueReport,
    QueueAttributes,
    QueueSummary,
    listed_per_queue,
)
from streaming.core.reporting.shard_report import ShardReport
from streaming.core.reporting.summaries import make_summaries, slices_of
from streaming.core.settings import QueueName, Settings
from streaming.core.state.consumer_states import ConsumerStates
from streaming.core.state.queue_text import read_names
from streaming.core.state.queues import NEVER, TOTALS, Reported, keep_latest

LOADED_TOGETHER = 2_048
"""Queues of which summaries, and samples, are read at once: those of a hundred thousand take gigabytes."""


class _Places(NamedTuple):
    """The row of each shard's queues in the merged table."""

    names: tuple[QueueName, ...]
    place: dict[QueueName, int]
    of_shards: tuple[Array, ...]


@lru_cache(maxsize=1)
def _places(packed: tuple[bytes, ...]) -> _Places:
    # Names rarely change from one step to the next.
    shards = [read_names(names)[0] for names in packed]
    names = tuple(sorted({name for shard in shards for name in shard}))
    index = {name: place for place, name in enumerate(names)}
    return _Places(names, index, tuple(np.array([index[name] for name in shard], dtype=np.int64) for shard in shards))


class MergedQueues(Mapping[QueueName, QueueSummary]):
    """All queues in name order, a row each; a single queue's summary is built on demand."""

    def __init__(self, shards: Sequence[QueueColumns], settings: Settings) -> None:
        self._shards, self._settings = shards, settings
        self._summaries: dict[int, QueueSummary] = {}
        self._attributes: dict[int, QueueAttributes] = {}
        places = _places(tuple(shard.names for shard in shards))
        self.names, self._index, self._places = places
        n = len(self.names)
        self._shard_rows = ShardRows(shards, self._places, n)
        self.integers: Array = np.empty((len(INTEGERS), n), dtype=np.int64)
        """A row for each of INTEGERS, with a value per queue…"""
        self.flags: Array = np.empty((len(FLAGS), n), dtype=bool)
        """…and one for each of FLAGS."""
        self.columns: dict[str, Array] = dict(zip(INTEGERS, self.integers, strict=True))
        """The same by name."""
        self.columns |= zip(FLAGS, self.flags, strict=True)
        if len(shards) == 1:
            for name, values in self.columns.items():
                values[self._places[0]] = shards[0].columns[name]
        else:
            for name, values in self.columns.items():
                self._combine(name, values)
        self.totals = self._summed([shard.totals for shard in shards], len(TOTALS))
        """A column for each of TOTALS. Of this table and the next ones, each column is together in memory."""
        self.oldest = self._least([shard.oldest for shard in shards], len(AGE_SCOPES))
        self.oldest_but_used_up = self._least([shard.oldest_but_used_up for shard in shards], len(AGE_SCOPES))
        self.age_counts = self._summed([shard.age_counts for shard in shards], len(AGE_BUCKETS_S) + 1)
        self._listings = Listings(self._shard_rows, self.oldest[:, 0], settings)

    @cached_property
    def attribute_digest(self) -> Array:
        """A number per queue that changes when the value of an attribute changes, but not when it is only reported again."""
        digest = np.zeros(len(self.names), dtype=np.int64)
        for shard, place in zip(self._shards, self._places, strict=True):
            digest[place] += shard.attributes.hashes()
        return digest

    @cached_property
    def group_digest(self) -> Array:
        """A number per queue that changes when anything about its ordering groups does; 0 where there are none."""
        digest = np.zeros(len(self.names), dtype=np.int64)
        for shard, place in zip(self._shards, self._places, strict=True):
            # Few shards have ordered queues, and numpy takes as long for none as for a hundred.
            if len(shard.ordered.queue):
                digest[place[shard.ordered.queue]] ^= shard.ordered.digests()
        return digest

    @cached_property
    def consumer_digest(self) -> Array:
        """A number per queue that changes when a consumer comes, goes or changes, but not when it is only reported again."""
        return self._summed_of_consumers(lambda states: states.digest.view(np.int64))

    @cached_property
    def consumers_reported(self) -> Array:
        """A number per queue that changes when one of its consumers is reported again."""
        return self._summed_of_consumers(lambda states: states.at + states.dispatched_at)

    def _summed_of_consumers(self, values: Callable[[ConsumerStates], Array]) -> Array:
        """Return the sums of 64-bit values of consumers by queue. They wrap around."""
        sums = np.zeros(len(self.names), dtype=np.int64)
        for shard, place in zip(self._shards, self._places, strict=True):
            if len(shard.consumer_states):
                sums[place] += shard.consumer_states.per_queue(values(shard.consumer_states), len(shard))
        return sums

    def places_of(self, what: Literal["losses", "purges"]) -> Iterator[int]:
        """Yield the rows of the queues that have any."""
        for shard, place in zip(self._shards, self._places, strict=True):
            yield from place[list(getattr(shard, what))].tolist()

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[QueueName]:
        return iter(self.names)

    def __getitem__(self, name: QueueName) -> QueueSummary:
        return self.summary(self._index[name])

    def place(self, name: QueueName) -> int | None:
        """Return the row of a queue, or None when it is not known."""
        return self._index.get(name)

    def places(self, names: Sequence[QueueName]) -> Array:
        """Return the rows of queues that are known."""
        return np.fromiter(map(self._index.__getitem__, names), dtype=np.int64, count=len(names))

    @cached_property
    def losses_per_queue(self) -> int:
        """How many of the latest losses are listed of each queue."""
        queues = [
            np.repeat(place[list(shard.losses)], [len(losses) for losses in shard.losses.values()])
            for shard, place in zip(self._shards, self._places, strict=True)
            if shard.losses
        ]
        most = min((shard.losses_per_queue for shard in self._shards), default=self._settings.messages_per_queue)
        return listed_per_queue(np.concatenate(queues), most) if queues else most

    def attributes(self, place: int) -> QueueAttributes:
        """Return the attributes the broker reports of one queue, without building its summary."""
        made = self._summaries.get(place)
        if made is not None:
            return made
        found = self._attributes.get(place)
        if found is None:
            found = self._attributes[place] = QueueAttributes(self.names[place], self._attributes_of(place))
        return found

    def summary(self, place: int) -> QueueSummary:
        """Return everything reported about one queue."""
        made = self._summaries.get(place)
        if made is None:
            # Another reader of a published snapshot may unload at any time.
            (made,) = make_summaries(self, [place])
            self._summaries[place] = made
        return made

    def ordered_facts(self, place: int) -> OrderedQueueReport | None:
        """Return what is reported about the groups of one queue, without building its summary."""
        made = self._summaries.get(place)
        if made is not None:
            return made.ordered_facts
        found = (shard.ordered.get(row) for shard, row in self._shard_rows.known(place))
        return next((report for report in found if report is not None), None)

    def load(self, places: Sequence[int]) -> None:
        """Build the summaries of several queues together, which takes a third of the time of one after the other."""
        missing = [place for place in places if place not in self._summaries]
        if missing:
            self._summaries.update(zip(missing, make_summaries(self, missing), strict=True))

    def unload(self) -> None:
        """Drop the summaries built so far: those of a hundred thousand queues take more memory than all else about them."""
        self._summaries.clear()

    def messages_of(self, place: int) -> Mapping[str, list[Listed]]:
        """Return the listed messages of one queue by kind."""
        return self._listings.of(place)

    def shard_rows(self, places: Array) -> Iterator[tuple[QueueColumns, Array]]:
        """Yield each shard with the rows it has these queues in, -1 where it does not know one."""
        for shard, rows in zip(self._shards, self._shard_rows.rows, strict=True):
            yield shard, rows[places]

    def _attributes_of(self, place: int) -> dict[str, Reported]:
        found: dict[str, Reported] = {}
        before: tuple[bytes, int] | None = None
        for shard, row in self._shard_rows.known(place):
            # Every shard receives the broker's reports on a queue, so they nearly always hold the same.
            text = shard.attributes.text(row), int(shard.columns["last_state_at"][row])
            if before is None:
                found = shard.attributes_of(row)
            elif text != before:
                keep_latest(found, shard.attributes_of(row))
            before = text
        return found

    def durations_of(self, places: Iterable[int]) -> CountedDurations:
        """Return the durations of some queues together."""
        return CountedDurations([(shard.durations, row) for place in places for shard, row in self._shard_rows.known(place)])

    def durations_by_bucket(self, places: Sequence[int], kind: int) -> dict[int, dict[int, int]]:
        """Return, for each of these queues, bucket -> count of one kind (an index of DURATIONS), in the order of the buckets.

        Counts that cannot be divided are left out.
        """
        found: dict[int, dict[int, int]] = {place: {} for place in places}
        for shard, rows in self.shard_rows(np.array(places, dtype=np.int64)) if places else ():
            keys, counts = shard.durations.pairs()
            # Only what is asked for is looked at: there may be a hundred times as many queues.
            first = (rows << 8 | kind) << 8
            for i, counted in slices_of((keys, counts), keys.searchsorted(first), keys.searchsorted(first + 0x100)):
                by_bucket = found[places[i]]
                for key, count in counted:
                    by_bucket[key & 0xFF] = by_bucket.get(key & 0xFF, 0) + count
        return {place: dict(sorted(by_bucket.items())) for place, by_bucket in found.items()}

    def _combine(self, name: str, out: Array) -> None:
        """Write one of the columns of several shards to `out`."""
        least, flag, added = name in MINIMA, name in FLAGS, name in SUMS
        # Some values are negative where nothing is known, so a maximum does not start at zero.
        nothing = NEVER if least else 0 if added or flag else -NEVER
        how = np.add if added else np.minimum if least else np.maximum
        self._put_together([shard.columns[name] for shard in self._shards], how, nothing, out)

    def _summed(self, tables: Sequence[Array], width: int) -> Array:
        return self._table(tables, width, np.add, 0)

    def _least(self, tables: Sequence[Array], width: int) -> Array:
        return self._table(tables, width, np.minimum, NEVER)

    def _table(self, tables: Sequence[Array], width: int, how: np.ufunc, nothing: int) -> Array:
        out = np.empty((width, len(self.names)), dtype=np.int64)
        if len(tables) == 1:
            # The only shard knows every queue.
            out[:, self._places[0]] = tables[0].T
            return out.T
        for column, *of_shards in zip(out, *(table.T for table in tables), strict=True):
            self._put_together(of_shards, how, nothing, column)
        return out.T

    def _put_together(self, columns: Sequence[Array], how: np.ufunc, nothing: int, out: Array) -> None:
        """Combine the shards' columns in `out` by `how`. `nothing`: the value where no shard knows a queue."""
        out[:] = nothing
        for values, rows in zip(columns, self._shard_rows.rows, strict=True):
            # The row of an unknown queue is -1: the last one. Reading a column in the order of the queues takes half as long as
            # writing it in that order.
            how(out, np.append(values, values.dtype.type(nothing)).take(rows), out=out)


@dataclass(slots=True)
class Merged:
    """The merged report of all shards at `now`."""

    now: int
    rows: int
    queues: MergedQueues
    arrivals: list[Arrival]
    """The latest `arrivals_per_queue` of each dead-letter queue, oldest first."""
    arrivals_per_queue: int
    events_total: Counter[str]
    invalid_total: Counter[str]
    collectors: dict[str, int]
    quarantine: list[Quarantined]
    high_water: int
    arrivals_by_queue: Mapping[QueueName, Sequence[Arrival]] = field(init=False)
    """The same by dead-letter queue: in an outage each failing queue asks for those of its own, and there are thousands."""

    def __post_init__(self) -> None:
        by_queue: dict[QueueName, list[Arrival]] = {}
        for arrival in self.arrivals:
            by_queue.setdefault(arrival.queue, []).append(arrival)
        self.arrivals_by_queue = by_queue


def merge(reports: Sequence[ShardReport], settings: Settings) -> Merged:
    """Merge the reports of all shards for one `now`."""
    if not reports:
        raise ValueError("no shard reported")
    arrivals = [a for r in reports for a in r.arrivals]
    queues = MergedQueues([r.queues for r in reports], settings)
    # A shard that has too many itself has left some out.
    together = listed_per_queue(queues.places([a.queue for a in arrivals]), settings.messages_per_queue)
    per_queue = min(together, *(r.arrivals_per_queue for r in reports))
    merged = Merged(
        now=max(r.now for r in reports),
        rows=sum(r.rows for r in reports),
        queues=queues,
        arrivals=_latest_arrivals(arrivals, per_queue),
        arrivals_per_queue=per_queue,
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


def _latest_arrivals(arrivals: list[Arrival], most: int) -> list[Arrival]:
    by_queue: defaultdict[QueueName, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        by_queue[arrival.queue].append(arrival)
    kept = (a for own in by_queue.values() for a in nlargest(most, own, key=attrgetter("rank")))
    return sorted(kept, key=lambda a: (a.at, a.message_id))
