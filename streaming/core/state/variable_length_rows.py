"""A few rows for each of many queues, stored in flat columns; the rows of a single queue can be replaced."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streaming.core.columns import Array, nonzero


class VariableLengthRows:
    """Rows of integers, queue by queue."""

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = tuple(fields)
        self._flat: list[Array] = [np.zeros(0, dtype=np.int64) for _ in self.fields]
        self._starts = np.zeros(1, dtype=np.int64)

    @classmethod
    def of(cls, fields: Sequence[str], rows: Sequence[Sequence[tuple[int, ...]]]) -> VariableLengthRows:
        """Build the rows of all queues from those of each."""
        made = cls(fields)
        flat = np.array([row for of_queue in rows for row in of_queue], dtype=np.int64).reshape(-1, len(made.fields))
        made._flat = list(flat.T.copy())
        made._starts = np.append(0, np.cumsum([len(of_queue) for of_queue in rows], dtype=np.int64))
        return made

    def grow(self, queues: int) -> None:
        """Add this many queues without rows."""
        self._starts = np.append(self._starts, np.full(queues, self._starts[-1]))

    def rows(self, queue: int) -> list[tuple[int, ...]]:
        """Return the rows of one queue, in order."""
        start, stop = int(self._starts[queue]), int(self._starts[queue + 1])
        return list(zip(*(values[start:stop].tolist() for values in self._flat), strict=True))

    def take(self, queues: Array) -> tuple[Array, Array]:
        """Return the rows of some queues (ascending): the queue of each row, and the rows, with a column per field."""
        starts = self._starts[queues]
        lengths = self._starts[queues + 1] - starts
        at = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))
        return np.repeat(queues, lengths), np.stack([values[at] for values in self._flat], axis=1)

    def replace(self, queues: Array, owner: Array, rows: Array) -> None:
        """Replace all rows of some queues. `owner`: the queue of each new row, ascending; `rows`: a column per field."""
        lengths = np.diff(self._starts)
        replaced = np.zeros(len(lengths), dtype=bool)
        replaced[queues] = True
        of_old = np.repeat(np.arange(len(lengths)), lengths)
        kept = nonzero(~replaced[of_old])
        owners = np.concatenate([of_old[kept], owner])
        order = np.argsort(owners, kind="stable")
        self._flat = [np.concatenate([values[kept], rows[:, i]])[order] for i, values in enumerate(self._flat)]
        self._starts = np.append(0, np.cumsum(np.bincount(owners, minlength=len(lengths))))

    def flat(self) -> tuple[Array, ...]:
        """Return the queue of each row, ascending, and the columns."""
        return np.repeat(np.arange(len(self._starts) - 1), np.diff(self._starts)), *self._flat

    def pack(self, prefix: str) -> dict[str, Array]:
        """Return the columns and each queue's number of rows, under names that begin with `prefix`."""
        columns = dict(zip(self.fields, self._flat, strict=True)) | {"lengths": np.diff(self._starts)}
        return {prefix + name: values for name, values in columns.items()}

    @classmethod
    def unpack(cls, fields: Sequence[str], columns: dict[str, Array], prefix: str) -> VariableLengthRows:
        """Rebuild the rows from the columns of `pack`."""
        made = cls(fields)
        made._flat = [columns[prefix + name] for name in made.fields]
        made._starts = np.append(0, np.cumsum(columns[prefix + "lengths"]))
        return made


def pack_lists(name: str, lists: Sequence[Array]) -> dict[str, Array]:
    """Return lists of integers, of different lengths, as two columns for `unpack_lists`."""
    joined = np.concatenate([np.zeros(0, dtype=np.int64), *lists])
    return {name: joined, f"{name}.lengths": np.array([len(one) for one in lists], dtype=np.int64)}


def unpack_lists(name: str, columns: dict[str, Array]) -> list[Array]:
    """Return the lists of `pack_lists`."""
    ends = np.cumsum(columns[f"{name}.lengths"])
    return [columns[name][end - length : end] for end, length in zip(ends, columns[f"{name}.lengths"], strict=True)]
