"""The values of all samples, stored once where several samples have the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from streaming.core.columns import Array
from streaming.judge.history.window import COLUMN, FIELDS, NARROW, WIDE, Ints


@dataclass(slots=True)
class Sample:
    """The values of all queues at one time."""

    at: int
    """Epoch milliseconds."""
    rows: Array
    """The row of each queue known then, in the table of rows."""
    delay_ms: int = 0
    """How much later than they happened the latest events had been read."""
    packed: bytes = b""
    """Stored as the difference from the previous sample."""


_ROW: Final = np.dtype([("narrow", np.int32, len(NARROW)), ("wide", np.int64, len(WIDE))], align=True)
_WIDE_ROW: Final = np.dtype([("narrow", np.int64, len(NARROW)), ("wide", np.int64, len(WIDE))])
_INT32: Final = np.iinfo(np.int32)


class SampleRows:
    """The rows of all samples. Of a queue to which nothing happened, several samples have the same row."""

    def __init__(self) -> None:
        self.table: Array = np.zeros(0, dtype=_ROW)
        """Of `_ROW`, or of `_WIDE_ROW` once a value did not fit."""
        self._used = 0
        self._most = 0
        """Rows that no sample has any more are dropped when there are more than this."""

    def __len__(self) -> int:
        return self._used

    def add(self, values: Ints, before: Array, values_before: Ints) -> Array:
        """Store the rows that differ from those of the sample before, and return the row of each queue."""
        rows = np.empty(len(values), dtype=np.int32)
        shared = min(len(before), len(values))
        differs = np.ones(len(values), dtype=bool)
        differs[:shared] = (values[:shared] != values_before[:shared]).any(axis=1)
        rows[:shared] = before[:shared]
        new = _stored(values[differs])
        if new.dtype != self.table.dtype:
            self.table, new = self.table.astype(_WIDE_ROW), new.astype(_WIDE_ROW)
        if self._used + len(new) > len(self.table):
            room = (self._used + len(new)) * 9 // 8
            table = np.zeros(room, dtype=self.table.dtype)
            table[: self._used] = self.table[: self._used]
            self.table = table
        self.table[self._used : self._used + len(new)] = new
        rows[differs] = np.arange(self._used, self._used + len(new))
        self._used += len(new)
        return rows

    def drop_unused(self, samples: Sequence[Sample]) -> None:
        """Drop rows that none of the samples has, if there are many."""
        if self._used <= self._most:
            return
        used = np.zeros(self._used, dtype=bool)
        for sample in samples:
            used[sample.rows] = True
        moved = np.cumsum(used, dtype=np.int32) - np.int32(1)
        for sample in samples:
            sample.rows = moved[sample.rows]
        # A quarter more than are needed now: they come one by one.
        kept = int(moved[-1]) + 1
        self.table, self._used, self._most = self.table[: self._used][used], kept, kept + kept // 4


def _stored(values: Ints) -> Array:
    """Convert rows of FIELDS to rows of the table, narrow ones if the values fit."""
    narrow = values[:, : len(NARROW)]
    fits = int(narrow.max(initial=0)) <= _INT32.max and int(narrow.min(initial=0)) >= _INT32.min
    rows = np.empty(len(values), dtype=_ROW if fits else _WIDE_ROW)
    rows["narrow"], rows["wide"] = narrow, values[:, len(NARROW) :]
    return rows


def read_rows(rows: Array) -> Ints:
    """Convert rows of the table to rows of FIELDS."""
    values = np.empty((*rows.shape, len(FIELDS)), dtype=np.int64)
    values[..., : len(NARROW)], values[..., len(NARROW) :] = rows["narrow"], rows["wide"]
    return values


def field_of(table: Array, field: str) -> Ints:
    """Return one field of all rows of the table."""
    column = COLUMN[field]
    found: Ints = table["narrow"][:, column] if column < len(NARROW) else table["wide"][:, column - len(NARROW)]
    return found
