"""Counts by queue and key, of which most steps change few or none.

They stay packed until one is looked up or changed, and the state and the report share the same bytes: a queue that is not touched
costs next to nothing, however many keys it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from streaming.core.columns import Array, pack_columns, unpack_columns

_KEY_BITS = 16
_KEYS = (1 << _KEY_BITS) - 1


class PackedCounts:
    """Counts by queue (row number) and key (16 bits). Immutable."""

    __slots__ = ("_edges", "_packed", "_pairs")

    def __init__(self, packed: bytes) -> None:
        """`packed`: the bytes of `to_bytes`; empty if nothing was counted."""
        self._packed: bytes | None = packed
        self._pairs: tuple[Array, Array] | None = None
        self._edges: list[int] | None = None

    @classmethod
    def of(cls, pairs: Array, counts: Array) -> PackedCounts:
        """Build them from distinct pairs `queue << 16 | key`, ascending, and a count for each."""
        made = cls(b"")
        if len(pairs):
            made._packed, made._pairs = None, (pairs, counts)
        return made

    @classmethod
    def from_queues(cls, counts: Iterable[Mapping[int, int]]) -> PackedCounts:
        """Build them from the counts by key of each queue."""
        found = sorted((queue << _KEY_BITS | key, n) for queue, of_queue in enumerate(counts) for key, n in of_queue.items())
        pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
        return cls.of(pairs[:, 0].copy(), pairs[:, 1].copy())

    def __reduce__(self) -> tuple[type[PackedCounts], tuple[bytes]]:
        return PackedCounts, (self.to_bytes(),)

    def to_bytes(self) -> bytes:
        """Return the counts packed."""
        if self._packed is None:
            pairs, counts = self.pairs()
            columns: dict[str, Array] = {
                "lengths": np.bincount(pairs >> _KEY_BITS),
                "key": (pairs & _KEYS).astype(np.uint16),
                "count": counts,
            }
            self._packed = pack_columns(columns, {}, compress=True)
        return self._packed

    def pairs(self) -> tuple[Array, Array]:
        """Return all pairs `queue << 16 | key`, ascending, and their counts."""
        if self._pairs is None:
            self._pairs = _unpacked(self._packed or b"")
        return self._pairs

    def add(self, pairs: Array) -> PackedCounts:
        """Return the counts with one more for each of these pairs `queue << 16 | key`, in any order."""
        added, n = np.unique(pairs, return_counts=True)
        known, counts = self.pairs()
        at = known.searchsorted(added)
        found = at < len(known)
        found[found] = known[at[found]] == added[found]
        counts = counts.copy()
        counts[at[found]] += n[found]
        if not found.all():
            new = ~found
            known, counts = np.insert(known, at[new], added[new]), np.insert(counts, at[new], n[new])
        return PackedCounts.of(known, counts)

    def of_queue(self, queue: int) -> tuple[Array, Array]:
        """Return the keys of one queue, ascending, and their counts."""
        pairs, counts = self.pairs()
        if self._edges is None:
            # Compute the bounds of all queues together: hundreds of queues are looked up.
            queues = int(pairs[-1] >> _KEY_BITS) + 2 if len(pairs) else 1
            self._edges = pairs.searchsorted(np.arange(queues) << _KEY_BITS).tolist()
        edges = self._edges
        start, stop = (edges[queue], edges[queue + 1]) if queue + 1 < len(edges) else (0, 0)
        return pairs[start:stop] & _KEYS, counts[start:stop]


def _unpacked(packed: bytes) -> tuple[Array, Array]:
    if not packed:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    columns, _ = unpack_columns(packed)
    lengths = columns["lengths"]
    queue = np.repeat(np.arange(len(lengths)), lengths)
    return queue << _KEY_BITS | columns["key"], columns["count"]
