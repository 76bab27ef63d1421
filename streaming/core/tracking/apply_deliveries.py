"""Apply receives, extensions and releases: receive counts, and the visibility window that holds now."""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array, highest_bit, nonzero
from streaming.core.events.events import EXTENDED, RECEIVED, RELEASED, SENT
from streaming.core.state.queues import T_UNSEEN_RECEIVES
from streaming.core.state.rows import F_WINDOW_DEFAULT, Rows
from streaming.core.state.state import ShardState
from streaming.core.tracking.dedup import fingerprint, is_new
from streaming.core.tracking.segments import Segments

COUNTED_RECEIVES = 64
"""Receives up to this number are distinguished by one bit each; later ones by their content."""


def apply_deliveries(state: ShardState, seg: Segments, duplicate: Array) -> Array:
    """Update receive counts and find the new receives, extensions and releases. Returns the mask of new receives."""
    rows, code = seg.rows, seg["code"]
    live = state.rows
    is_receive = code == RECEIVED
    count = seg["receive_count"]
    # A producer that resends a message may report any count; other events come from a consumer that received it, or the broker.
    reported = np.where(code == SENT, 0, count)
    any_news = bool(is_receive.any() or reported.any())
    unseen_before = unseen_receives(live, rows) if any_news else np.zeros(0, dtype=np.int64)
    numbered = is_receive & (count > 0) & (count <= COUNTED_RECEIVES)
    if numbered.any():
        bit = np.where(numbered, np.uint64(1) << np.maximum(count - 1, 0).astype(np.uint64), np.uint64(0))
        seen = live.at("seen", rows)
        first = np.zeros(len(code), dtype=bool)
        where = nonzero(numbered)
        pairs = seg.of_event[where] * (COUNTED_RECEIVES + 1) + count[where]
        first[where[np.unique(pairs, return_index=True)[1]]] = True
        duplicate |= numbered & (~first | ((seen[seg.of_event] & bit) != 0))
        live.put("seen", rows, seen | np.bitwise_or.reduceat(bit, seg.starts))
    other = (is_receive & ~numbered) | (code == EXTENDED) | (code == RELEASED)
    if other.any():
        where = nonzero(other)
        prints = fingerprint(
            seg["key"][where], seg["at"][where], code[where].astype(np.uint64), seg["end"][where].astype(np.uint64)
        )
        duplicate[where] = ~is_new(state, prints, seg["at"][where])
    accepted: Array = is_receive & ~duplicate
    uncounted = accepted & ~numbered
    if uncounted.any():
        more = np.add.reduceat(uncounted.astype(np.int32), seg.starts)
        live.put("seen_uncounted", rows, live.at("seen_uncounted", rows) + more)
    if any_news:
        known = np.maximum(live.at("receive_count", rows), np.maximum.reduceat(reported, seg.starts))
        seen_ones = np.bitwise_count(live.at("seen", rows)) + live.at("seen_uncounted", rows)
        live.put("receive_count", rows, np.maximum(known, seen_ones).astype(np.int32))
        count_unseen_receives(state, rows, unseen_before)
    return accepted


def count_unseen_receives(state: ShardState, rows: Array, before: Array | int) -> None:
    """Count the deliveries of some messages that are known only from a later receive count; `before`: those counted already."""
    more = unseen_receives(state.rows, rows) - before
    # A count may be any number: a row per receive would take gigabytes.
    np.add.at(state.queues.totals[:, T_UNSEEN_RECEIVES], state.rows.at("queue", rows), more)


def unseen_receives(live: Rows, rows: Array) -> Array:
    """Count the deliveries of each message that are known only from the count of a later receive.

    A dead letter's count continues from its source queue, so it is not used here. Nor is a count that only another event reports:
    a JMS client may deliver a message many times without the broker, which then counts all of them as it moves the message.
    """
    result = np.zeros(len(rows), dtype=np.int64)
    bits, count = live.at("seen", rows), live.at("receive_count", rows).astype(np.int64)
    beyond = live.at("seen_uncounted", rows)
    seen = np.bitwise_count(bits).astype(np.int64) + beyond
    # Of most messages every delivery was reported.
    some = nonzero((count > seen) & (live.at("arrived", rows) == 0))
    if len(some):
        # Which receives beyond the bits' range were the highest is not kept, if there were any.
        highest = np.where((count[some] > COUNTED_RECEIVES) & (beyond[some] > 0), count[some], highest_bit(bits[some]))
        result[some] = np.maximum(highest - seen[some], 0)
    return result


def apply_windows(state: ShardState, seg: Segments) -> None:
    """Update the latest receive, and the window set by the latest receive, extension or release."""
    rows, code, at, counts = seg.rows, seg["code"], seg["at"], ~seg["came_earlier"]
    live = state.rows
    last = seg.last((code == RECEIVED) & counts)
    here = nonzero(last >= 0)
    if len(here):
        event, row = last[here], rows[here]
        newer = at[event] >= live.at("last_received", row)
        event, row = event[newer], row[newer]
        live.put("last_received", row, at[event])
        for name in ("consumer", "batch"):
            live.put(name, row, seg[name][event])
    last = seg.last(((code == RECEIVED) | (code == EXTENDED) | (code == RELEASED)) & counts)
    here = nonzero(last >= 0)
    if not len(here):
        return
    event, row = last[here], rows[here]
    end = seg["end"][event]
    before_at, before_code = live.at("window_at", row), live.at("window_code", row)
    newer = (at[event] > before_at) | ((at[event] == before_at) & (code[event] >= before_code))
    same = (at[event] == before_at) & (code[event] == before_code)
    end = np.where(same, np.maximum(end, live.at("window_end", row)), end)
    event, row, end = event[newer], row[newer], end[newer]
    live.put("window_at", row, at[event])
    live.put("window_end", row, end)
    live.put("window_code", row, code[event])
    flags = live.at("flags", row)
    by_default = (end == 0) & (code[event] != RELEASED)
    live.put("flags", row, np.where(by_default, flags | F_WINDOW_DEFAULT, flags & ~np.uint32(F_WINDOW_DEFAULT)))
