"""Which deliveries of a message came before others, where the clocks of their consumers differ.

Every delivery is dated by its consumer, and clocks differ by up to `CLOCKS_DIFFER_MS`. Receive counts are the broker's. So a
delivery that is dated within that time after a receive with a higher count came before it: it neither brings the message back
after an end nor changes where it is. Later than that, a lower count means that counting has started again, after a redrive that
nobody reported. After one that was reported (`F_WAS_REDRIVEN`), counts are not compared.
"""

from __future__ import annotations

import numpy as np

from streaming.core.clock import CLOCKS_DIFFER_MS
from streaming.core.columns import Array, highest_bit, nonzero
from streaming.core.events.events import DEAD_LETTERED, DROPPED, EXPIRED, EXTENDED, RECEIVED, REDRIVEN, REDRIVEN_IN, RELEASED
from streaming.core.events.flags import SAME_ID
from streaming.core.state.queues import NEVER
from streaming.core.state.rows import (
    F_DEAD_LETTERED,
    F_DELETED,
    F_DROPPED,
    F_EXPIRED,
    F_MOVE_REPORTED,
    F_REDRIVEN,
    F_TIMELINE,
    F_WAS_REDRIVEN,
    F_WINDOW_DEFAULT,
)
from streaming.core.state.state import ShardState
from streaming.core.tracking.segments import Segments

_FLAGS_OF_ENDS = (F_DELETED, F_DEAD_LETTERED, F_REDRIVEN, F_EXPIRED, F_DROPPED)
"""By code, from FIRST_END on."""
_OF_MOVE = 16
"""Marks the code of an outdated end that is the event of a move itself."""


def came_earlier(state: ShardState, seg: Segments) -> Array:
    """Return which receives, extensions and releases came before a receive that is dated earlier, of this step or before it."""
    code, at, count, rows = seg["code"], seg["at"], seg["receive_count"], seg.rows
    result = np.zeros(len(code), dtype=bool)
    numbered = (count > 0) & _is_move(code)
    if not numbered.any():
        return result
    fewest = np.minimum.reduceat(np.where(numbered, count, np.iinfo(np.int32).max), seg.starts)
    live = state.rows
    received = live.at("last_received", rows) > 0
    wanted = received & (live.at("receive_count", rows) > fewest)
    where = nonzero(numbered)
    fell = (count[where][1:] < count[where][:-1]) & (seg.of_event[where][1:] == seg.of_event[where][:-1])
    wanted[seg.of_event[where][1:][fell]] = True
    wanted &= (live.at("flags", rows) & np.uint32(F_REDRIVEN | F_WAS_REDRIVEN)) == 0
    wanted &= ~seg.any((code == REDRIVEN) | returns(seg.columns))
    chosen = nonzero(wanted)
    if not len(chosen):
        return result
    where = where[wanted[seg.of_event[where]]]
    of_known, known = _known_deliveries(state, rows[chosen])
    segment = np.concatenate([seg.of_event[where], chosen[of_known]])
    known_codes, known_at, known_counts = (known[name] for name in ("code", "at", "receive_count"))
    earlier = _came_earlier(
        segment,
        np.concatenate([code[where], known_codes]),
        np.concatenate([at[where], known_at]),
        np.concatenate([count[where], known_counts]),
    )
    result[where] = earlier[: len(where)]
    return result


def returns(columns: dict[str, Array]) -> Array:
    """Return which events are redrives back to the queue under the id that the message had before."""
    result: Array = (columns["code"] == REDRIVEN_IN) & ((columns["flags"] & SAME_ID) != 0)
    return result


def note_restarts(state: ShardState, seg: Segments) -> None:
    """Remember which messages were redriven: their receives may count from one again."""
    restarts = seg.any((seg["code"] == REDRIVEN) | returns(seg.columns))
    if restarts.any():
        rows = seg.rows[restarts]
        state.rows.put("flags", rows, state.rows.at("flags", rows) | np.uint32(F_WAS_REDRIVEN))


def forget_outrun(state: ShardState, seg: Segments) -> Array:
    """Replace the latest delivery and window of messages whose recorded ones precede a receive that has only now become known.

    Returns the rows that this changed. Their timelines hold the new deliveries already, and their other columns do not.
    """
    live, rows = state.rows, seg.rows
    counted = (seg["code"] == RECEIVED) & (seg["receive_count"] > 0)
    if not counted.any():
        return np.zeros(0, dtype=np.int64)
    first_at = np.minimum.reduceat(np.where(counted, seg["at"], NEVER), seg.starts)
    flags = live.at("flags", rows)
    comparable = (flags & np.uint32(F_TIMELINE | F_WAS_REDRIVEN)) == F_TIMELINE
    hit: Array = rows[comparable & (live.at("window_at", rows) >= first_at)]
    if not len(hit):
        return hit
    of, known = _known_deliveries(state, hit)
    earlier = _came_earlier(of, known["code"], known["at"], known["receive_count"])
    is_receive = known["code"] == RECEIVED
    its_window = (known["at"] == live.at("window_at", hit)[of]) & (known["code"] == live.at("window_code", hit)[of])
    its_receive = is_receive & (known["at"] == live.at("last_received", hit)[of])
    last, changed = _last_of(of, ~earlier, earlier & its_window, len(hit))
    row, event = hit[changed], last[changed]
    end, code = known["end"][event], known["code"][event]
    live.put("window_at", row, known["at"][event])
    live.put("window_end", row, end)
    live.put("window_code", row, code)
    by_default = (end == 0) & (code != RELEASED)
    flags = live.at("flags", row)
    live.put("flags", row, np.where(by_default, flags | F_WINDOW_DEFAULT, flags & ~np.uint32(F_WINDOW_DEFAULT)))
    last, received = _last_of(of, is_receive & ~earlier, earlier & its_receive, len(hit))
    row, event = hit[received], last[received]
    live.put("last_received", row, known["at"][event])
    for name in ("consumer", "batch"):
        live.put(name, row, known[name][event])
    changed_rows: Array = row
    return changed_rows


def remember_outdated_ends(state: ShardState, rows: Array, at: Array, code: Array, is_move: Array) -> None:
    """Remember the latest end of each message that a later delivery disproves: that delivery may prove to be an earlier one.

    `rows` may repeat. `is_move`: the end is the event of a move itself, not what another event says about it.
    """
    if not len(rows):
        return
    codes = (code.astype(np.int64) | np.where(is_move, _OF_MOVE, 0)).astype(np.uint8)
    order = np.lexsort((codes, at, rows))
    rows, at, codes = rows[order], at[order], codes[order]
    last = np.append(rows[1:] != rows[:-1], True)
    rows, at, codes = rows[last], at[last], codes[last]
    newer = at >= state.rows.at("outdated_end", rows)
    state.rows.put("outdated_end", rows[newer], at[newer])
    state.rows.put("outdated_end_code", rows[newer], codes[newer])


def outdated_losses(state: ShardState, rows: Array) -> Array:
    """Return the code of each message's outdated end if it is a loss, else 0. Its reason is kept, as it may end so again."""
    codes = state.rows.at("outdated_end_code", rows) & ~np.uint8(_OF_MOVE)
    result: Array = np.where((codes == EXPIRED) | (codes == DROPPED), codes, 0)
    return result


def end_again(state: ShardState, rows: Array) -> None:
    """End the messages again, uncounted, of which a delivery after their end has proved to be an earlier one."""
    live = state.rows
    at = live.at("outdated_end", rows)
    rows = rows[(at > 0) & (at >= live.at("last_received", rows)) & (live.at("ended", rows) == 0)]
    if not len(rows):
        return
    codes = live.at("outdated_end_code", rows)
    is_move, code = (codes & _OF_MOVE) != 0, (codes & ~np.uint8(_OF_MOVE)).astype(np.int64)
    reported = np.where(is_move & (code == DEAD_LETTERED), F_MOVE_REPORTED, 0)
    flags = np.array(_FLAGS_OF_ENDS)[code - (RELEASED + 1)] | reported
    live.put("ended", rows, live.at("outdated_end", rows))
    live.put("flags", rows, live.at("flags", rows) | flags.astype(np.uint32))


def outdated_end_of(flags: Array) -> tuple[Array, Array]:
    """Return the code of the end that the flags of rows record (0: none), and whether the event of a move itself was read."""
    code = np.zeros(len(flags), dtype=np.int64)
    for number, flag in enumerate(_FLAGS_OF_ENDS):
        code = np.where((code == 0) & ((flags & np.uint32(flag)) != 0), RELEASED + 1 + number, code)
    return code, (flags & np.uint32(F_MOVE_REPORTED)) != 0


def _is_move(code: Array) -> Array:
    result: Array = (code == RECEIVED) | (code == EXTENDED) | (code == RELEASED)
    return result


def _known_deliveries(state: ShardState, rows: Array) -> tuple[Array, dict[str, Array]]:
    """Return the receives, extensions and releases of these rows by time: the index in `rows` of each, and its columns."""
    live, table = state.rows, state.attempts
    timeline = (live.at("flags", rows) & np.uint32(F_TIMELINE)) != 0
    several, single = nonzero(timeline), nonzero(~timeline & (live.at("window_code", rows) > 0))
    keys = live.key[rows[several]]
    left, right = np.searchsorted(table["key"], keys, "left"), np.searchsorted(table["key"], keys, "right")
    lengths = right - left
    places = np.repeat(left - np.append(0, np.cumsum(lengths)[:-1])[: len(lengths)], lengths) + np.arange(int(lengths.sum()))
    of = np.concatenate([np.repeat(several, lengths), single])
    row = rows[single]
    # A message of which another delivery than its first is numbered has a timeline.
    counts = np.where(live.at("window_code", row) == RECEIVED, highest_bit(live.at("seen", row)), 0)
    own = {"receive_count": counts} | {
        name: live.at(column, row) for name, column in (("at", "window_at"), ("code", "window_code"), ("end", "window_end"))
    }
    own |= {name: live.at(name, row) for name in ("consumer", "batch")}
    order = np.argsort(of, kind="stable")
    return of[order], {name: np.concatenate([table[name][places], values])[order] for name, values in own.items()}


def _last_of(of: Array, mask: Array, wrong: Array, n: int) -> tuple[Array, Array]:
    """Return, per message, the position of its last delivery in `mask`, and which messages have one, and one in `wrong`."""
    last = np.full(n, -1, dtype=np.int64)
    where = nonzero(mask)
    np.maximum.at(last, of[where], where)
    changed = np.zeros(n, dtype=bool)
    changed[of[wrong]] = True
    return last, nonzero(changed & (last >= 0))


def _came_earlier(segment: Array, code: Array, at: Array, count: Array) -> Array:
    """Return which deliveries are dated at most `CLOCKS_DIFFER_MS` after a receive of the same `segment` with a higher count."""
    result = np.zeros(len(at), dtype=bool)
    if not len(at):
        return result
    # The segments follow each other at such a distance that no two of them are within the tolerance.
    distance = int(at.max() - at.min()) + CLOCKS_DIFFER_MS + 1
    moment = np.unique(segment, return_inverse=True)[1] * distance + (at - at.min())
    order = np.argsort(moment, kind="stable")
    moment, numbers = moment[order], count[order].astype(np.int64)
    received = np.where(code[order] == RECEIVED, numbers, 0)
    earliest, latest = np.searchsorted(moment, moment - CLOCKS_DIFFER_MS, "left"), np.searchsorted(moment, moment, "right")
    highest = _range_maxima(received, earliest, latest)
    result[order] = (numbers > 0) & (highest > numbers)
    return result


def _range_maxima(values: Array, left: Array, right: Array) -> Array:
    """Return the largest of `values[left:right]` for each pair; none is empty."""
    result = np.zeros(len(left), dtype=values.dtype)
    size, width, maxima = right - left, 1, values
    while len(left):
        # `maxima` has the largest of each `width` values in a row.
        hit = nonzero((size >= width) & (size < 2 * width))
        result[hit] = np.maximum(maxima[left[hit]], maxima[right[hit] - width])
        if 2 * width > size.max():
            return result
        maxima = np.maximum(maxima[:-width], maxima[width:])
        width *= 2
    return result
