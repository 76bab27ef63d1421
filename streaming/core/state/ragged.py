"""A few rows for each of many queues, stored in flat columns; the rows of a single queue can be replaced."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streaming.core.columns import Array


class Ragged:
    """Rows of integers, queue by queue. Objects are created only for queues whose rows were replaced."""

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = tuple(fields)
        self._flat = [np.zeros(0, dtype=np.int64) for _ in self.fields]
        self._starts = np.zeros(1, dtype=np.int64)
        self._put: dict[int, list[tuple[int, ...]]] = {}

    def grow(self, queues: int) -> None:
        """Add this many queues without rows."""
        self._starts = np.append(self._starts, np.full(queues, self._starts[-1]))

    def rows(self, queue: int) -> list[tuple[int, ...]]:
        """Return the rows of one queue, in order."""
        put = self._put.get(queue)
        if put is not None:
            return list(put)
        start, stop = int(self._starts[queue]), int(self._starts[queue + 1])
        return list(zip(*(values[start:stop].tolist() for values in self._flat), strict=True))

    def put(self, queue: int, rows: Sequence[tuple[int, ...]]) -> None:
        """Replace the rows of one queue."""
        self._put[queue] = list(rows)

    def add(self, queue: Array, key: Array, count: Array) -> None:
        """Add `count` to the second field of the row whose first field is `key`, or append a row. For two fields only."""
        self._settle()
        owner = np.repeat(np.arange(len(self._starts) - 1), np.diff(self._starts))
        pairs = np.concatenate([owner << 32 | self._flat[0], queue << 32 | key])
        distinct, place = np.unique(pairs, return_inverse=True)
        total = np.bincount(place, weights=np.concatenate([self._flat[1], count]), minlength=len(distinct)).astype(np.int64)
        self._flat = [distinct & 0xFFFFFFFF, total]
        self._starts = np.searchsorted(distinct >> 32, np.arange(len(self._starts)))

    def flat(self) -> tuple[Array, ...]:
        """Return the queue of each row, ascending, and the columns."""
        self._settle()
        return np.repeat(np.arange(len(self._starts) - 1), np.diff(self._starts)), *self._flat

    def pack(self, prefix: str) -> dict[str, Array]:
        """Return the columns and each queue's number of rows, under names that begin with `prefix`."""
        self._settle()
        columns = dict(zip(self.fields, self._flat, strict=True)) | {"lengths": np.diff(self._starts)}
        return {prefix + name: values for name, values in columns.items()}

    @classmethod
    def unpack(cls, fields: Sequence[str], columns: dict[str, Array], prefix: str) -> Ragged:
        """Rebuild the rows from the columns of `pack`."""
        ragged = cls(fields)
        ragged._flat = [columns[prefix + name] for name in ragged.fields]
        ragged._starts = np.append(0, np.cumsum(columns[prefix + "lengths"]))
        return ragged

    def _settle(self) -> None:
        """Merge replaced rows into the columns."""
        if not self._put:
            return
        queues = np.array(sorted(self._put), dtype=np.int64)
        lengths = np.diff(self._starts)
        of_old = np.repeat(np.arange(len(lengths)), lengths)
        replaced = np.zeros(len(lengths), dtype=bool)
        replaced[queues] = True
        kept = np.flatnonzero(~replaced[of_old])
        new = [row for queue in queues.tolist() for row in self._put[queue]]
        of_new = np.repeat(queues, [len(self._put[queue]) for queue in queues.tolist()])
        owner = np.concatenate([of_old[kept], of_new])
        order = np.argsort(owner, kind="stable")
        added = np.array(new, dtype=np.int64).reshape(len(new), len(self.fields))
        self._flat = [np.concatenate([values[kept], added[:, i]])[order] for i, values in enumerate(self._flat)]
        self._starts = np.append(0, np.cumsum(np.bincount(owner, minlength=len(lengths))))
        self._put = {}
