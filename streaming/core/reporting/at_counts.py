"""What was tracked at the times of the broker's latest counts: exact, where samples of a busy queue are seconds off.

A step's own events say what changed since each count: the numbers of now, less what these changed, are those of its time.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.events.events import EXTENDED, RECEIVED, RELEASED
from streaming.core.reporting.views import STATES
from streaming.core.settings import Settings
from streaming.core.state.rows import F_TIMELINE
from streaming.core.state.state import ShardState
from streaming.core.state.tombstones import JUST_ENDED_MS
from streaming.core.tracking.windows import Windows, default_ends, window_ends

LATEST_COUNTS = 30
"""For so many of a queue's counts of one step it is exact; older ones, when the job catches up, are compared with samples."""
_VISIBLE, _IN_FLIGHT, _DELAYED, _NONE = range(4)


def tracked_at_counts(
    state: ShardState,
    w: Windows,
    depths: tuple[Array, ...],
    numbers: Mapping[str, Array],
    now: int,
    before: int,
    settings: Settings,
) -> tuple[Array, ...]:
    """Return the counts since the step before (`before`) and, for each, what is tracked at its time.

    The columns are queue (ascending), at, and the fields of TrackedAtCount: the broker may have counted before or after what
    happened in the same millisecond. A count slightly older than the step before is among them: it may have arrived only now, and
    so may events about its time. Older ones are not, because ends of that time may have been compacted.
    """
    queue, at, *_ = depths
    some = nonzero((at > before - JUST_ENDED_MS) & (at <= now))
    queue, at = queue[some], at[some]
    if not len(queue):
        return (queue, at) + (queue,) * (2 * len(STATES))
    newer = np.searchsorted(queue, queue, side="right") - 1 - np.arange(len(queue))
    latest = newer < LATEST_COUNTS
    queue, at, newer = queue[latest], at[latest], newer[latest]
    tracked = np.stack([numbers[name][queue] for name in STATES], axis=1)
    just_before = tracked.copy()
    # One count of each queue at a time: a step may have many, and each changed row is looked at for every one of its queue.
    for nth in range(newer.max(initial=-1) + 1):
        chosen = nonzero(newer == nth)
        row, of_count = _changed_since(state, w, queue[chosen], at[chosen] - 1, now)
        of_count = chosen[of_count]
        states_now, time = _states_now(w, row), at[of_count]
        for numbers_then, ms in ((tracked, time), (just_before, time - 1)):
            for states, change in ((states_now, -1), (_states_at(state, w, row, ms, settings), 1)):
                counted = states != _NONE
                np.add.at(numbers_then, (of_count[counted], states[counted]), change)
    return queue, at, *tracked.T, *just_before.T


def _changed_since(state: ShardState, w: Windows, queue: Array, at: Array, now: int) -> tuple[Array, Array]:
    """Return the rows that may have changed since the count of their queue, and for each the index of that count.

    `queue`: those with a count, each once; `at`: when it was made.
    """
    rows = state.rows
    first = int(at.min())
    lately = (rows["sent"] > first) | (rows["ended"] > first) | (rows["window_at"] > first)
    lately |= (w.window_end > first) & (w.window_end <= now)
    lately |= w.delay_end > first
    if rows.has("arrived"):
        lately |= rows["arrived"] > first
    row = nonzero(lately)
    count_of = np.full(len(state.queues), -1)
    count_of[queue] = np.arange(len(queue))
    of_count = count_of[rows.at("queue", row)]
    counted = of_count >= 0
    return row[counted], of_count[counted]


def _states_now(w: Windows, row: Array) -> Array:
    states = np.full(len(row), _NONE)
    for number, of_state in ((_VISIBLE, w.visible), (_IN_FLIGHT, w.in_flight), (_DELAYED, w.delayed)):
        states[of_state[row]] = number
    return states


def _states_at(state: ShardState, w: Windows, row: Array, at: Array, settings: Settings) -> Array:
    """Return the state each row had at a time of its own."""
    rows = state.rows
    ended = rows.at("ended", row)
    exists = (np.maximum(rows.at("sent", row), rows.at("arrived", row)) <= at) & ((ended == 0) | (ended > at))
    code, end = _latest_windows(state, row, at, settings)
    held = ((code == RECEIVED) | (code == EXTENDED)) & (at < end)
    delayed = (at < end) & (code == RELEASED) | (code == 0) & (at < w.delay_end[row])
    states: Array = np.select([~exists, held, delayed], [_NONE, _IN_FLIGHT, _DELAYED], _VISIBLE)
    return states


def _latest_windows(state: ShardState, row: Array, at: Array, settings: Settings) -> tuple[Array, Array]:
    """Return the code and the end of the latest receive, extension or release of each row at a time of its own."""
    rows = state.rows
    code, end = rows.at("window_code", row), window_ends(state, settings, row)
    later = nonzero(rows.at("window_at", row) > at)
    # A row without a timeline has had no other window.
    code[later], end[later] = 0, 0
    timed = later[(rows.at("flags", row[later]) & np.uint32(F_TIMELINE)) != 0]
    table = state.attempts
    key = rows.key[row[timed]]
    first, last = (np.searchsorted(table["key"], key, side=side) for side in ("left", "right"))
    lengths = last - first
    timed, first, lengths = timed[lengths > 0], first[lengths > 0], lengths[lengths > 0]
    if not len(timed):
        return code, end
    starts = np.cumsum(lengths) - lengths
    attempt = np.repeat(first - starts, lengths) + np.arange(int(lengths.sum()))
    # The attempts of a row are in order of time.
    latest = np.maximum.reduceat(np.where(table["at"][attempt] <= np.repeat(at[timed], lengths), attempt, -1), starts)
    timed, latest = timed[latest >= 0], latest[latest >= 0]
    ends = default_ends(state, rows.at("queue", row[timed]), table["at"][latest], settings)
    by_default = (table["end"][latest] == 0) & (table["code"][latest] != RELEASED)
    code[timed] = table["code"][latest]
    end[timed] = np.where(by_default, ends, table["end"][latest])
    return code, end
