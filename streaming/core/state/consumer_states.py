"""The broker's latest report on each consumer of a shard's queues, as columns with a row per consumer.

Every shard knows all of them, since their messages may be in any, and most are not reported anew in a step. So the attributes
stay JSON until somebody asks for one consumer or for those of one queue.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.columns import Array, text_columns, texts_of
from streaming.core.hashing import hash_texts, mix
from streaming.core.text_cache import cached

_STORED = ("queue", "at", "dispatched_at", "connected", "digest")
_TEXTS = ("names", "texts")
_BYTES_BESIDE = np.int64(8)
"""More than Arrow needs to find one text among others."""


class ConsumerState(NamedTuple):
    """The last report about a consumer, and its time (epoch milliseconds)."""

    at: int
    attributes: Mapping[str, Any]
    dispatched_at: int = 0
    """When its attribute `dispatched` was last reported, which later reports may leave out; 0: never."""


Key = tuple[int, str]
"""The row number of a queue, and the name of one of its consumers."""


@dataclass(frozen=True, slots=True)
class ConsumerStates:
    """The columns, queue by queue. Times are epoch milliseconds. Immutable."""

    queue: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    """Row number of the queue, ascending."""
    names: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    at: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    dispatched_at: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    connected: Array = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    """0: its latest report says that it has left."""
    digest: Array = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    """Of the name and the attributes."""
    texts: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    """The attributes as JSON."""

    @classmethod
    def of(cls, states: Mapping[Key, ConsumerState]) -> ConsumerStates:
        """Build them from states in any order."""
        keys = sorted(states)
        found = [states[key] for key in keys]
        names = pa.array([name for _, name in keys], pa.string())
        texts = pa.array([_encoder.encode(state.attributes) for state in found], pa.string())
        return cls(
            queue=np.array([queue for queue, _ in keys], dtype=np.int32),
            names=names,
            at=np.array([state.at for state in found], dtype=np.int64),
            dispatched_at=np.array([state.dispatched_at for state in found], dtype=np.int64),
            connected=np.array([state.attributes.get("connected") is not False for state in found], dtype=np.uint8),
            digest=mix(hash_texts(names) + mix(hash_texts(texts))),
            texts=texts,
        )

    def __len__(self) -> int:
        return len(self.queue)

    def items(self) -> Iterator[tuple[Key, ConsumerState]]:
        """Yield every consumer with its state."""
        for row, key in enumerate(zip(self.queue.tolist(), self.names.to_pylist(), strict=True)):
            yield key, self.state(row)

    def find(self, keys: Iterable[Key]) -> dict[Key, int]:
        """Return the row of each of these consumers that is known."""
        if not len(self):
            return {}
        wanted: dict[int, list[str]] = {}
        for queue, name in keys:
            wanted.setdefault(queue, []).append(name)
        found: dict[Key, int] = {}
        queues = np.fromiter(wanted, dtype=np.int64, count=len(wanted))
        starts, stops = (self.queue.searchsorted(queues, side).tolist() for side in ("left", "right"))
        for (queue, names), start, stop in zip(wanted.items(), starts, stops, strict=True):
            if start < stop:
                rows = dict(zip(self.names.slice(start, stop - start).to_pylist(), range(start, stop), strict=True))
                found |= {(queue, name): rows[name] for name in names if name in rows}
        return found

    def state(self, row: int) -> ConsumerState:
        """Return the state of one row."""
        return ConsumerState(int(self.at[row]), read_attributes(self.texts[row].as_py()), int(self.dispatched_at[row]))

    def heard(self, states: Mapping[int, ConsumerState]) -> ConsumerStates:
        """Return the consumers with the times of these states, by row; their attributes are as before."""
        if not states:
            return self
        rows, at, dispatched_at = list(states), self.at.copy(), self.dispatched_at.copy()
        at[rows] = [state.at for state in states.values()]
        dispatched_at[rows] = [state.dispatched_at for state in states.values()]
        return replace(self, at=at, dispatched_at=dispatched_at)

    def replaced(self, states: Mapping[Key, ConsumerState]) -> ConsumerStates:
        """Return the consumers with these states added, or put in the place of those known before."""
        if not states:
            return self
        kept, new = np.ones(len(self), dtype=bool), ConsumerStates.of(states)
        kept[list(self.find(states).values())] = False
        return _together([self.only(kept), new])

    def only(self, chosen: Array) -> ConsumerStates:
        """Return the consumers of the rows that are `chosen` (a mask)."""
        if chosen.all():
            return self
        (rows,) = chosen.nonzero()
        taken, places = {name: getattr(self, name)[rows] for name in _STORED}, pa.array(rows)
        return ConsumerStates(**taken, **{name: getattr(self, name).take(places) for name in _TEXTS})

    def fitting(self, most_bytes: int) -> ConsumerStates:
        """Return the consumers whose names and attributes take at most so many bytes: the shortest, of equal ones the latest."""
        if self.names.nbytes + self.texts.nbytes <= most_bytes:
            return self
        lengths = sum(pc.binary_length(getattr(self, name)).to_numpy() + _BYTES_BESIDE for name in _TEXTS)
        shortest_first = np.lexsort((-self.at, lengths))
        chosen = np.zeros(len(self), dtype=bool)
        chosen[shortest_first[np.cumsum(lengths[shortest_first]) <= most_bytes]] = True
        return self.only(chosen)

    def per_queue(self, values: Array, n: int) -> Array:
        """Return the sums of 64-bit values by queue, for `n` queues. They wrap around."""
        sums = np.zeros(n, dtype=values.dtype)
        np.add.at(sums, self.queue, values)
        return sums

    def pack(self) -> dict[str, Array]:
        """Return them as one-dimensional columns for `unpack`."""
        columns = {f"cs.{name}": getattr(self, name) for name in _STORED}
        for name in _TEXTS:
            columns[f"cs.{name}.lengths"], columns[f"cs.{name}.bytes"] = text_columns(getattr(self, name))
        return columns

    @classmethod
    def unpack(cls, columns: Mapping[str, Array]) -> ConsumerStates:
        """Rebuild them from the columns of `pack`."""
        texts = {name: texts_of(columns[f"cs.{name}.lengths"], columns[f"cs.{name}.bytes"]) for name in _TEXTS}
        return cls(**{name: columns[f"cs.{name}"] for name in _STORED}, **texts)


def _together(parts: Sequence[ConsumerStates]) -> ConsumerStates:
    """Return the consumers of all parts, none of which is in two of them."""
    queue = np.concatenate([part.queue for part in parts])
    order = np.argsort(queue, kind="stable")
    columns = {name: np.concatenate([getattr(part, name) for part in parts])[order] for name in _STORED}
    places = pa.array(order)
    texts = {name: pa.concat_arrays([getattr(part, name) for part in parts]).take(places) for name in _TEXTS}
    return ConsumerStates(**columns, **texts)


# Shared: `json.dumps` creates a new one per call.
_encoder = json.JSONEncoder(separators=(",", ":"))


@cached(maxsize=16_384)
def read_attributes(text: str) -> Mapping[str, Any]:
    """Parse the attributes of one consumer. The dictionary is shared: callers must not change it."""
    # Each shard has the same text, and it stays the same until the consumer is reported anew.
    found: dict[str, Any] = json.loads(text)
    return found
