"""Look up what the shards' reports list about single queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from heapq import nsmallest
from operator import attrgetter

import numpy as np

from streaming.core.columns import Array
from streaming.core.reporting.message_columns import Listed, ListedMessages
from streaming.core.reporting.queue_columns import QueueColumns
from streaming.core.reporting.report import OLDEST_LISTED, listed_per_queue
from streaming.core.settings import Settings


class ShardRows:
    """The shards' reports, and the row of each queue in each of them."""

    def __init__(self, shards: Sequence[QueueColumns], places: Sequence[Array], queues: int) -> None:
        """`places`: per shard, the row of each of its queues in the merged table of `queues` rows."""
        self.shards, self._places, self._queues = shards, places, queues

    @cached_property
    def rows(self) -> tuple[Array, ...]:
        """Return, per shard, the row of each queue, -1 where the shard does not know it."""
        found = []
        for place in self._places:
            rows = np.full(self._queues, -1, dtype=np.int64)
            rows[place] = np.arange(len(place))
            found.append(rows)
        return tuple(found)

    def known(self, place: int) -> Iterator[tuple[QueueColumns, int]]:
        """Yield the shards that know a queue, each with the queue's row."""
        for shard, rows in zip(self.shards, self.rows, strict=True):
            row = int(rows[place])
            if row >= 0:
                yield shard, row

    def listed(self, kind: str) -> Iterator[tuple[Array, ListedMessages]]:
        """Yield what each shard lists under a kind, with the row in the merged table of each of its queues."""
        for shard, place in zip(self.shards, self._places, strict=True):
            yield from ((place, one) for one in shard.listed if one.kind == kind)

    @cached_property
    def kinds(self) -> list[tuple[str, bytes]]:
        """Return, per shard and kind, a byte per queue: whether messages of it are listed there."""
        found = []
        for shard, place in zip(self.shards, self._places, strict=True):
            for listed in shard.listed:
                lists = np.zeros(self._queues, dtype=bool)
                lists[place[listed.queue]] = True
                found.append((listed.kind, lists.tobytes()))
        return found


class Listings:
    """The listed messages of all queues. It refers to no summary: a summary refers to it, and both are freed at once."""

    def __init__(self, shards: ShardRows, oldest: Array, settings: Settings) -> None:
        """`oldest`: the send time of each queue's oldest message."""
        self._shards, self._oldest, self._settings = shards, oldest, settings
        self._edges: dict[int, list[int]] = {}
        self._per_queue: dict[str, int] = {}
        """How many are listed of each queue under a kind of which each message has a signal."""

    def of(self, place: int) -> Mapping[str, list[Listed]]:
        """Return the listed messages of one queue by kind."""
        return _ListedOf(self, place)

    def kinds(self, place: int) -> list[str]:
        """Return the kinds under which messages of one queue are listed."""
        return list(dict.fromkeys([kind for kind, lists in self._shards.kinds if lists[place]]))

    def listed(self, place: int, kind: str) -> list[Listed]:
        """Return the messages of one queue listed under a kind, lowest rank first."""
        found = []
        for shard, row in self._shards.known(place):
            for listed in shard.listed:
                if listed.kind == kind:
                    found += listed.between(*self._bounds(listed.queue, row))
        if kind == "oldest":
            found = [one for one in found if one.view.sent_at_ms == self._oldest[place]]
        return nsmallest(self._most(kind), found, key=attrgetter("rank"))

    def _most(self, kind: str) -> int:
        """Return how many messages are listed of each queue under a kind."""
        if kind == "oldest":
            return OLDEST_LISTED
        most = self._settings.messages_per_queue
        if kind == "dead_letter":
            return most
        if kind not in self._per_queue:
            listed = [(place[one.queue], one.most) for place, one in self._shards.listed(kind)]
            together = np.concatenate([queue for queue, _ in listed])
            self._per_queue[kind] = min(listed_per_queue(together, most), *(of_shard for _, of_shard in listed))
        return self._per_queue[kind]

    def _bounds(self, owner: Array, row: int) -> tuple[int, int]:
        """Return where the rows of one queue start and end in an ascending column of queue numbers."""
        edges = self._edges.get(id(owner))
        if edges is None:
            # Compute the bounds of all queues together: hundreds of queues are looked up in every column.
            queues = int(owner[-1]) + 2 if len(owner) else 1
            edges = self._edges[id(owner)] = np.searchsorted(owner, np.arange(queues)).tolist()
        return (edges[row], edges[row + 1]) if row + 1 < len(edges) else (len(owner), len(owner))


class _ListedOf(Mapping[str, list[Listed]]):
    """The listed messages of one queue, by kind, built on access: callers rarely read every kind."""

    def __init__(self, listings: Listings, place: int) -> None:
        self._listings, self._place = listings, place
        self._kinds = listings.kinds(place)
        self._made: dict[str, list[Listed]] = {}

    def __contains__(self, kind: object) -> bool:
        return kind in self._kinds

    def __getitem__(self, kind: str) -> list[Listed]:
        if kind not in self._kinds:
            raise KeyError(kind)
        if kind not in self._made:
            self._made[kind] = self._listings.listed(self._place, kind)
        return self._made[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)
