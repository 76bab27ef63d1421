"""Correct events dated in the future: one sender's fast clock must not move time for everyone.

A time beyond `now` by more than the skew allowance is moved back before anything else reads it. The event counts as having
happened when it arrived; how far it was ahead is kept only for the skew metric, and to recognise its repetitions.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.columns import Array, int_column

AHEAD_MS = "ahead_ms"
"""The column with the milliseconds an event was ahead, 0 where it was not. A table without it has no such event."""
MOVED_BACK_MS = "moved_back_ms"
"""The column with the milliseconds by which the time of an event itself was moved back. It is there if `AHEAD_MS` is."""

_PAST = ("at", "sent_at", "first_received_at")
"""Times of something that has already happened."""
_ENDS = ("invisible_until", "visible_at")
"""Times that lie in the future by nature; they move with their event."""


def clamp_future_times(table: pa.Table, now: int | Array, allowance_ms: int | Array) -> pa.Table:
    """Move times of a wire-format table that are more than `allowance_ms` ahead back to `now`.

    `now` and the allowance are one value for all rows, or one per row. An event's other times are shifted by the same amount.
    Returns the table unchanged when no time is ahead.
    """
    if not len(table):
        return table
    latest = int(np.min(now + allowance_ms))
    if all(_latest(table, name) <= latest for name in _PAST):
        return table
    limit = np.broadcast_to(np.asarray(now, dtype=np.int64), (len(table),))
    times = {name: int_column(table.column(name)) for name in _PAST}
    beyond = {name: np.where(values > limit + allowance_ms, values - limit, 0) for name, values in times.items()}
    ahead_ms = np.maximum.reduce(list(beyond.values()))
    hit = ahead_ms > 0
    if not hit.any():
        return table
    shift = beyond["at"]
    at = times["at"] - shift
    table = _put(table, "at", at, np.ones(len(table), dtype=bool))
    for name in ("sent_at", "first_received_at"):
        # A fast sender's clock shifts all times it writes; times the broker wrote by its own clock may be right.
        back = np.where(beyond[name] > 0, times[name] - shift, times[name])
        back = np.where(hit & (back > limit + allowance_ms), at, back)
        table = _put(table, name, back, times[name] > 0)
    for name in _ENDS:
        ends = int_column(table.column(name))
        table = _put(table, name, np.maximum(ends - shift, 1), ends > 0)
    return table.append_column(AHEAD_MS, pa.array(ahead_ms)).append_column(MOVED_BACK_MS, pa.array(shift))


def _latest(table: pa.Table, name: str) -> int:
    column = table.column(name)
    return 0 if column.null_count == len(column) else int(pc.max(column).as_py())


def _put(table: pa.Table, name: str, values: Array, present: Array) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), pa.array(values, mask=~present))
