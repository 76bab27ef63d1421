"""Intern the names of groups and consumers per queue."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.columns import Array, distinct, nonzero
from streaming.core.hashing import hash_texts, mix

CONSUMER_COLUMNS = ("finished", "failed", "failed_at")
GROUP_COLUMNS = ("reached_hi", "reached_lo", "reached_at")

FEW_TEXTS = 8
"""Up to so many texts are looked up one by one."""
_BYTES_OF_AN_OFFSET = 4
"""Where an array of Arrow's type `string` holds the offset of each text."""


@dataclass(slots=True)
class Interner:
    """Names as columns; a name's number is its index. There may be a hundred thousand, and a few thousand new ones per step."""

    queue: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    """The number of the queue that each name belongs to."""
    texts: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    time: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """When a message of each name was last settled, in epoch milliseconds."""
    finished: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Consumers only: deliveries that ended with a deletion, as a running total…"""
    failed: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """…and those that ended without a settlement."""
    failed_at: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Consumers only: the latest receive of a message that they failed to settle (epoch milliseconds, 0: none)."""
    reached_hi: Array = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    """Groups only: the highest position of a message that was received, as in `sequences`…"""
    reached_lo: Array = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    reached_at: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """…and when it was last received (epoch milliseconds, 0: none)."""
    _hashes: Array | None = None
    """Hashes of queue and name, ascending…"""
    _numbers: Array | None = None
    """…and the number each belongs to. Built on first use."""

    def __len__(self) -> int:
        return len(self.queue)

    @property
    def active_at(self) -> Array:
        """When a message of each name was last settled, or received by a consumer that then failed (epoch milliseconds)."""
        return np.maximum(self.time, self.failed_at)

    def text(self, number: int) -> str:
        """Return one name."""
        return str(self.texts[number].as_py())

    def taken(self, numbers: Array) -> pa.Array:
        """Return the names of some numbers as an Arrow array, null for -1."""
        return text_of(self.texts, numbers)

    def words(self, numbers: Array) -> list[str | None]:
        """Return the names of some numbers as a list, None for -1."""
        words: list[str | None] = self.taken(numbers).to_pylist()
        return words

    def numbers(self, queue: Array, index: Array, words: list[str], most_bytes: int) -> Array:
        """Return the numbers of whole columns (per row a queue and an index into `words`, -1 for none) and add new names.

        Names that do not fit into `most_bytes`, with all that are known, are not added: their number is -1.
        """
        out = np.full(len(index), -1, dtype=np.int32)
        named = nonzero(index >= 0)
        if not len(named):
            return out
        width = len(words)
        owner = queue[named].astype(np.int64)
        pairs, place = distinct(owner * width + index[named], (int(owner.max()) + 1) * width)
        owners, word = pairs // width, pairs % width
        hashes = _hash(owners, pa.array(words, pa.string()), word)
        known, of = self._index()
        at = np.searchsorted(known, hashes)
        at_most = np.minimum(at, max(len(known) - 1, 0))
        new = known[at_most] != hashes if len(known) else np.ones(len(hashes), dtype=bool)
        numbers = np.full(len(hashes), -1, dtype=np.int32)
        numbers[~new] = of[at_most[~new]]
        if new.any():
            texts = pa.array([words[i] for i in word[new].tolist()], pa.string())
            room = most_bytes - self.texts.nbytes
            if texts.nbytes > room:
                fit = np.cumsum(pc.binary_length(texts).to_numpy() + _BYTES_OF_AN_OFFSET) <= room
                texts, new[new] = texts.filter(pa.array(fit)), fit
        if new.any():
            numbers[new] = len(self) + np.arange(int(new.sum()), dtype=np.int32)
            self.queue = np.concatenate([self.queue, owners[new].astype(np.int32)])
            self.texts = pa.concat_arrays([self.texts, texts])
            for column in ("time", *CONSUMER_COLUMNS, *GROUP_COLUMNS):
                values = getattr(self, column)
                setattr(self, column, np.concatenate([values, np.zeros(int(new.sum()), dtype=values.dtype)]))
            order = np.argsort(hashes[new])
            where = np.searchsorted(known, hashes[new][order])
            self._hashes = np.insert(known, where, hashes[new][order])
            self._numbers = np.insert(of, where, numbers[new][order])
        out[named] = numbers[place]
        return out

    def keep(self, used: Array) -> Array:
        """Drop the names where `used` is False; return the new number of every old one, -1 for the dropped."""
        moved = np.full(len(used) + 1, -1, dtype=np.int32)
        kept = nonzero(used)
        moved[kept] = np.arange(len(kept))
        self.queue, self.time = self.queue[kept], self.time[kept]
        for column in (*CONSUMER_COLUMNS, *GROUP_COLUMNS):
            setattr(self, column, getattr(self, column)[kept])
        self.texts = self.texts.take(pa.array(kept))
        self._hashes = self._numbers = None
        return moved

    def _index(self) -> tuple[Array, Array]:
        if self._hashes is None or self._numbers is None:
            hashes = _hash(self.queue, self.texts, np.arange(len(self)))
            order = np.argsort(hashes)
            self._hashes, self._numbers = hashes[order], order.astype(np.int32)
        return self._hashes, self._numbers


def text_of(texts: pa.Array, numbers: Array) -> pa.Array:
    """Return some of `texts` by number, null for -1."""
    # Often there is little to look up, and Arrow takes as long for nothing as for a hundred.
    if not len(texts) or not len(numbers):
        return pa.nulls(len(numbers), texts.type)
    if len(numbers) <= FEW_TEXTS:
        return pa.array([texts[number].as_py() if number >= 0 else None for number in numbers.tolist()], texts.type)
    unnamed = numbers < 0
    if unnamed.all():
        return pa.nulls(len(numbers), texts.type)
    return texts.take(pa.array(numbers, mask=unnamed))


def _hash(queue: Array, texts: pa.Array, index: Array) -> Array:
    """Hash (queue, name) to 64 bits: a hundred thousand names collide in one of four thousand million shards."""
    result: Array = mix(hash_texts(texts)[index] + mix(queue.astype(np.uint64) + np.uint64(1)))
    return result
