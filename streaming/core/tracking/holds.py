"""Since when messages in flight are held without a break, extended or not.

Their latest receive shows it. Where only extensions are reported, the first of those does that follow each other: one after the
end of the window before it may be of another delivery.
"""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.events.events import EXTENDED
from streaming.core.settings import Settings
from streaming.core.state.rows import F_TIMELINE
from streaming.core.state.state import ShardState
from streaming.core.tracking.windows import default_ends


def held_since(state: ShardState, rows: Array, settings: Settings) -> Array:
    """Return since when these messages, which are in flight, have been held without a break."""
    live = state.rows
    since = live.at("last_received", rows)
    unreceived = nonzero(since == 0)
    if not len(unreceived):
        return since
    since[unreceived] = live.at("window_at", rows[unreceived])
    extended = unreceived[(live.at("flags", rows[unreceived]) & np.uint32(F_TIMELINE)) != 0]
    if not len(extended):
        return since
    keys, table = live.key[rows[extended]], state.attempts
    left, right = (np.searchsorted(table["key"], keys, side) for side in ("left", "right"))
    lengths = right - left
    starts = np.cumsum(lengths) - lengths
    attempts = np.repeat(left - starts, lengths) + np.arange(int(lengths.sum()))
    goes_on = go_on(state, attempts, np.repeat(live.at("queue", rows[extended]), lengths), settings)
    since[extended] = np.maximum.reduceat(np.where(goes_on, 0, table["at"][attempts]), starts)
    return since


def go_on(state: ShardState, attempts: Array, queue: Array, settings: Settings) -> Array:
    """Return which of these attempts extend a window that an extension just before them had opened, and that had not ended.

    `attempts` are places in the timelines, message by message; `queue` is that of the message of each.
    """
    key, code, at = (state.attempts[name][attempts] for name in ("key", "code", "at"))
    end = window_ends_of(state, attempts, queue, settings)
    result = np.zeros(len(attempts), dtype=bool)
    result[1:] = (key[1:] == key[:-1]) & (code[1:] == EXTENDED) & (code[:-1] == EXTENDED) & (at[1:] <= end[:-1])
    return result


def window_ends_of(state: ShardState, attempts: Array, queue: Array, settings: Settings) -> Array:
    """Return when the windows end that these attempts opened."""
    at, end = (state.attempts[name][attempts] for name in ("at", "end"))
    ends: Array = np.where(end > 0, end, default_ends(state, queue, at, settings))
    return ends
