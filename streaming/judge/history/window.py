"""Some samples of one queue as rules read them: a row per time, a column per field."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NARROW = (
    "present",
    "received",
    "settled",
    "departed",
    "deleted",
    "retried",
    "sent",
    "touched",
    "touched_unsent",
    "unseen_receives",
    "failed",
    "outlived",
    "arrived",
    "unsettled",
    "tracked_visible",
    "tracked_in_flight",
    "tracked_delayed",
    "counted_visible",
    "counted_in_flight",
    "counted_delayed",
    "processed",
)
"""Numbers of messages, which nearly always fit in 32 bits."""
WIDE = ("oldest_visible_at", "counted_at", "processing_ms")
FIELDS = (*NARROW, *WIDE)
"""Columns of a sample. Running totals: `received` to `arrived` (`settled`: every end; `departed`: every end but reconciliations),
`processed` and `processing_ms` (deleted messages of known processing time, and the sum of these times). Gauges: `unsettled`,
`tracked_*`, `oldest_visible_at` (0: nothing visible). The broker's latest count and its time (0: none yet). Times are epoch
milliseconds."""
COLUMN = {name: i for i, name in enumerate(FIELDS)}


class Window:
    """Some samples of one queue, oldest first: `at` (epoch milliseconds) and a column per field."""

    __slots__ = ("_peak", "_times", "at", "values")

    def __init__(self, at: Ints, values: Ints, times: list[int] | None = None, peak: int | None = None) -> None:
        """`times`, `peak`: the same as a list, and the largest backlog, where they are known already."""
        self.at, self.values, self._times, self._peak = at, values, times, peak

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, field: str) -> Ints:
        return self.values[:, COLUMN[field]]

    @property
    def times(self) -> list[int]:
        """The times as a list: looking up one time takes a tenth of what it takes in an array."""
        if self._times is None:
            self._times = self.at.tolist()
        return self._times

    @property
    def peak(self) -> int:
        """The largest backlog, 0 without a sample."""
        if self._peak is None:
            self._peak = max(self["unsettled"].tolist(), default=0)
        return self._peak

    def value(self, field: str, i: int) -> int:
        """Return one field of the sample of index `i`; -1 is the latest."""
        return self.values.item(i, COLUMN[field])

    def column(self, field: str, chosen: Sequence[int]) -> Ints:
        """Return one field of the chosen samples as a column: see `History.stretch`."""
        return self.values[list(chosen), COLUMN[field], None]

    def since(self, at: int) -> Window:
        """Return the samples at `at` or later."""
        first = bisect_left(self.times, at)
        return Window(self.at[first:], self.values[first:], self.times[first:])

    def until(self, at: int) -> Window:
        """Return the samples at `at` or earlier."""
        end = self.last_before(at) + 1
        return Window(self.at[:end], self.values[:end], self.times[:end])

    def last_before(self, at: int) -> int:
        """Return the index of the latest sample at `at` or earlier, -1 for none."""
        return bisect_right(self.times, at) - 1

    def change(self, field: str, since: int) -> int:
        """Return the growth of a running total since the latest sample at or before `since`, or else the oldest sample.

        A window that begins later than `since` counts less: choose it with `Context.samples_of`.
        """
        if not len(self.at):
            return 0
        column = COLUMN[field]
        return self.values.item(-1, column) - self.values.item(max(self.last_before(since), 0), column)
