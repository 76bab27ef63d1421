"""A few rows for each of many queues, in flat columns; those of single queues may be replaced."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streaming.core.columns import Array


class Ragged:
    """Rows of whole numbers, queue by queue. Only the queues that were put are ever made objects of."""

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = tuple(fields)
        self._flat = [np.zeros(0, dtype=np.int64) for _ in self.fields]
        self._starts = np.zeros(1, dtype=np.int64)
        self._put: dict[int, list[tuple[int, ...]]] = {}

    def grow(self, queues: int) -> None:
        """So many further queues, without rows."""
        self._starts = np.append(self._starts, np.full(queues, self._starts[-1]))

    def rows(self, queue: int) -> list[tuple[int, ...]]:
        """The rows of one queue, in order."""
        put = self._put.get(queue)
        if put is not None:
            return list(put)
        start, stop = int(self._starts[queue]), int(self._starts[queue + 1])
        return list(zip(*(values[start:stop].tolist() for values in self._flat), strict=True))

    def put(self, queue: int, rows: Sequence[tuple[int, ...]]) -> None:
        """The rows of one queue from now on."""
        self._put[queue] = list(rows)

    def add(self, queue: Array, key: Array, count: Array) -> None:
        """Add `count` to the second field where the first is `key`; a row of its own where there is none. Of two fields only."""
        self._settle()
        owner = np.repeat(np.arange(len(self._starts) - 1), np.diff(self._starts))
        pairs = np.concatenate([owner << 32 | self._flat[0], queue << 32 | key])
        distinct, place = np.unique(pairs, return_inverse=True)
        total = np.bincount(place, weights=np.concatenate([self._flat[1], count]), minlength=len(distinct)).astype(np.int64)
        self._flat = [distinct & 0xFFFFFFFF, total]
        self._starts = np.searchsorted(distinct >> 32, np.arange(len(self._starts)))

    def flat(self) -> tuple[Array, ...]:
        """The queue of each row, ascending, and the columns."""
        self._settle()
        return np.repeat(np.arange(len(self._starts) - 1), np.diff(self._starts)), *self._flat

    def pack(self, prefix: str) -> dict[str, Array]:
        """The columns, and how many rows each queue has; their names begin with `prefix`."""
        self._settle()
        columns = dict(zip(self.fields, self._flat, strict=True)) | {"lengths": np.diff(self._starts)}
        return {prefix + name: values for name, values in columns.items()}

    @classmethod
    def unpack(cls, fields: Sequence[str], columns: dict[str, Array], prefix: str) -> Ragged:
        """The rows of `pack`."""
        ragged = cls(fields)
        ragged._flat = [columns[prefix + name] for name in ragged.fields]
        ragged._starts = np.append(0, np.cumsum(columns[prefix + "lengths"]))
        return ragged

    def _settle(self) -> None:
        """Bring what was put into the columns."""
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
