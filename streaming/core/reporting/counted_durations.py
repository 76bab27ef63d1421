"""The durations counted of some queues, put together from all shards when they are read: few are, in a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from streaming.core.columns import Array
from streaming.core.state.packed_counts import PackedCounts


class CountedDurations(Mapping[int, int]):
    """Key of `duration_buckets` -> deleted messages (under SUM, milliseconds)."""

    __slots__ = ("_counts", "_parts")

    def __init__(self, parts: Sequence[tuple[PackedCounts, int]]) -> None:
        """`parts`: the counts of a shard, and the row of a queue there."""
        self._parts = parts
        self._counts: dict[int, int] | None = None

    def columns(self) -> tuple[Array, Array]:
        """Return keys and counts. A key may occur several times."""
        if not self._parts:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        found = [counts.of_queue(row) for counts, row in self._parts]
        if len(found) == 1:
            return found[0]
        return np.concatenate([keys for keys, _ in found]), np.concatenate([counts for _, counts in found])

    def _all(self) -> dict[int, int]:
        if self._counts is None:
            found: dict[int, int] = {}
            for key, count in zip(*(column.tolist() for column in self.columns()), strict=True):
                found[key] = found.get(key, 0) + count
            self._counts = found
        return self._counts

    def __getitem__(self, key: int) -> int:
        return self._all()[key]

    def __iter__(self) -> Iterator[int]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())
