"""End a message's row, for whatever reason, find the rows that count as remembered, and forget them."""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array
from streaming.core.settings import Settings
from streaming.core.state.rows import (
    F_DEAD_LETTERED,
    F_DROPPED,
    F_ENDED,
    F_EXPIRED,
    F_MOVE_INFERRED,
    F_MOVE_REPORTED,
    F_WAS_REDRIVEN,
)
from streaming.core.state.state import ShardState
from streaming.core.state.tombstones import forgotten


def find_remembered(state: ShardState, keys: Array, settings: Settings) -> tuple[Array, Array]:
    """Return for each key the row where it is or would be inserted, and whether it exists and does not count as forgotten."""
    at, found = state.rows.find(keys)
    found[found] = ~forgotten(state, state.rows.at("ended", at[found]), settings)
    return at, found


def was_moved_by_receive(state: ShardState, rows: Array) -> Array:
    """Return which messages ended by a move that only a receive in the dead-letter queue shows.

    It is dated by who received the message there. One that was redriven may have come back at once.
    """
    flags = state.rows.at("flags", rows) & np.uint32(F_ENDED | F_MOVE_REPORTED | F_MOVE_INFERRED | F_WAS_REDRIVEN)
    result: Array = flags == F_DEAD_LETTERED
    return result


def end(state: ShardState, rows: Array, at: Array, flag: int, total: int | None = None) -> None:
    """Mark messages as ended at these times, record how (`flag`), and count them in a total."""
    if not len(rows):
        return
    live = state.rows
    live.put("ended", rows, at)
    if flag & (F_EXPIRED | F_DROPPED):
        # The reason of an outdated loss is none of this one.
        forget_losses(state, live.key[rows])
    flags = live.at("flags", rows)
    live.put("flags", rows, flags | np.uint32(flag))
    group = live.at("group", rows)
    np.maximum.at(state.groups.time, group[group >= 0], at[group >= 0])
    if total is not None:
        count_totals(state, rows, total)


def count_totals(state: ShardState, rows: Array, total: int) -> None:
    """Count these rows' messages in one of their queues' running totals."""
    state.queues.count(state.rows.at("queue", rows), total)


def forget(state: ShardState, rows: Array) -> None:
    """Reset rows, in ascending order, with all that is kept of them elsewhere: their messages start over."""
    keys = state.rows.key[rows]
    state.rows.reset(rows)
    state.drop_timelines(keys)
    forget_losses(state, keys)


def forget_losses(state: ShardState, keys: Array) -> None:
    """Forget why these messages were lost."""
    for key in keys.tolist() if state.loss_reasons else ():
        state.loss_reasons.pop(key, None)
