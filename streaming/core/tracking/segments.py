"""The events of one step, sorted by message and time, with the row of each message."""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array, nonzero, run_starts
from streaming.core.state.state import ShardState


class Segments:
    """Events sorted by message and time: `columns`, the start of each message's events, and the row of each message."""

    def __init__(self, columns: dict[str, Array], starts: Array, rows: Array) -> None:
        self.columns = columns
        self.starts = starts
        self.rows = rows
        self.lengths = np.diff(np.append(starts, len(columns["code"])))
        self.of_event = np.repeat(np.arange(len(starts)), self.lengths)

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def last(self, mask: Array) -> Array:
        """Return, per message, the position of its last event in `mask`, -1 for none."""
        return np.maximum.reduceat(np.where(mask, np.arange(len(mask)), -1), self.starts)

    def any(self, mask: Array) -> Array:
        """Return, per message, whether any of its events is in `mask`."""
        return np.logical_or.reduceat(mask, self.starts)

    def firsts(self, mask: Array) -> Array:
        """Return the mask of each message's first event among those in `mask`."""
        where = nonzero(mask)
        out = np.zeros(len(mask), dtype=bool)
        segment = self.of_event[where]
        if len(where):
            out[where[run_starts(segment)]] = True
        return out


def count_rows(state: ShardState, rows: Array, total: int, sign: int = 1) -> None:
    """Add one to a total of each row's queue, or subtract it."""
    if len(rows):
        state.queues.count(state.rows.at("queue", rows), total, sign)
