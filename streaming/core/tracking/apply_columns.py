"""Apply the events of each message to its row, and count them in the totals.

Every column of a row is a minimum, a maximum, or the value of the latest event, so events may arrive in any order and twice.
"""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array
from streaming.core.events.dedup import fingerprint, is_new
from streaming.core.events.events import (
    ARRIVED,
    BY_RECEIVE,
    DEAD_LETTERED,
    DELETED,
    DROPPED,
    EXPIRED,
    EXTENDED,
    FIRST_END,
    PRIMARY,
    RECEIVED,
    REDRIVEN,
    REDRIVEN_IN,
    RELEASED,
    SENT,
    Events,
)
from streaming.core.hashing import row_key
from streaming.core.settings import Settings
from streaming.core.state.queues import (
    NEVER,
    T_ARRIVED,
    T_DEAD_LETTERED,
    T_DELETED,
    T_DROPPED,
    T_EXPIRED,
    T_OUTLIVED,
    T_RECEIVED,
    T_REDRIVEN,
    T_SENT,
    T_TOUCHED,
    T_TOUCHED_UNSENT,
    T_UNSEEN_RECEIVES,
    hold_bucket,
)
from streaming.core.state.rows import (
    F_ARRIVED,
    F_ARRIVED_BY_RECEIVE,
    F_ARRIVED_INFERRED,
    F_DEAD_LETTERED,
    F_DELETED,
    F_DROPPED,
    F_ENTERED,
    F_EXPIRED,
    F_MOVE_INFERRED,
    F_MOVE_REPORTED,
    F_OUTLIVED,
    F_REDRIVEN,
    F_SENT,
    F_SENT_KNOWN,
    F_TOUCHED,
    F_UNSENT,
    F_WINDOW_DEFAULT,
    Rows,
)
from streaming.core.state.state import ShardState
from streaming.core.tracking import attempts
from streaming.core.tracking.durations import count_durations

COUNTED_ENDS = (
    (DELETED, F_DELETED, T_DELETED),
    (DEAD_LETTERED, F_DEAD_LETTERED, T_DEAD_LETTERED),
    (REDRIVEN, F_REDRIVEN, T_REDRIVEN),
    (EXPIRED, F_EXPIRED, T_EXPIRED),
    (DROPPED, F_DROPPED, T_DROPPED),
)
_COUNTED_RECEIVES = 64
"""Receives up to this number are distinguished by one bit each; later ones by their content."""


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


def apply_segments(state: ShardState, events: Events, seg: Segments, results: Array, settings: Settings) -> Array:
    """Apply one epoch of every message. Returns the results with duplicates (1) filled in."""
    duplicate = np.zeros(len(seg["code"]), dtype=bool)
    _entered(state, seg, duplicate, settings)
    _touched(state, seg)
    accepted_receive = _received(state, seg, duplicate)
    attempts.record(state, seg.columns, seg.starts, seg.rows, ~duplicate, settings)
    _registers(state, seg)
    _touch_queues(state, seg)
    _count(state, seg["queue"][accepted_receive], T_RECEIVED)
    _names(state, seg)
    _ended(state, events, seg, duplicate, settings)
    count_durations(state, seg.rows)
    return np.where(duplicate & (results == 0), 1, results).astype(np.uint8)


def _entered(state: ShardState, seg: Segments, duplicate: Array, settings: Settings) -> None:
    """Record when a message was sent, arrived in a dead-letter queue, or had its first event."""
    rows, code, at = seg.rows, seg["code"], seg["at"]
    live = state.rows
    flags = live.at("flags", rows)
    ordered = state.queues.is_ordered(settings)[seg["queue"]]
    sent_at = np.where(seg["sent_at"] > 0, seg["sent_at"], np.where((code == SENT) | (code == REDRIVEN_IN), at, NEVER))
    # An ordered dead-letter queue gives a message a new send time when it arrives.
    sent_at = np.where((code == ARRIVED) & ordered, at, sent_at)
    known = np.minimum.reduceat(sent_at, seg.starts)
    before = live.at("sent", rows)
    was_known = (flags & F_SENT_KNOWN) != 0
    first = np.minimum(np.where(before > 0, before, NEVER), at[seg.starts])
    sent = np.where(was_known, np.minimum(before, known), np.where(known < NEVER, known, first))
    live.put("sent", rows, sent)
    flags |= np.where(known < NEVER, F_SENT_KNOWN, 0).astype(np.uint32)
    is_sent = code == SENT
    if is_sent.any():
        first_sent = _firsts(seg, is_sent)
        seen = (flags & F_SENT) != 0
        duplicate |= is_sent & (~first_sent | seen[seg.of_event])
        _count(state, seg["queue"][is_sent & ~duplicate], T_SENT)
        flags |= np.where(seg.any(is_sent), F_SENT, 0).astype(np.uint32)
        delays = np.where(is_sent, seg["end"], 0)
        if delays.any():
            live.put("delay", rows, np.maximum(live.at("delay", rows), np.maximum.reduceat(delays, seg.starts)))
    arrives = code == ARRIVED
    if arrives.any():
        flags = _arrived(state, seg, arrives, flags)
    live.put("flags", rows, flags)
    ahead = seg["sent_at"] - at
    if (ahead > 0).any():
        np.maximum.at(state.queues.column("skew_ms"), seg["queue"], ahead)


def _touched(state: ShardState, seg: Segments) -> None:
    """Count the messages with a reported delivery or end, and those of them without a reported send.

    The share of sends that are reported follows from these. A send that is reported later uncounts its message.
    """
    live, rows, code = state.rows, seg.rows, seg["code"]
    flags = live.at("flags", rows)
    was_touched, was_unsent = (flags & F_TOUCHED) != 0, (flags & F_UNSENT) != 0
    # A move into the queue, reported from its other end, counts as a send.
    entered = ((flags & F_ENTERED) != 0) | seg.any((code == SENT) | (code == REDRIVEN_IN) | (code == ARRIVED))
    touches = ((code == RECEIVED) | (code >= FIRST_END)) & ((seg["flags"] & PRIMARY) != 0)
    touched = was_touched | seg.any(touches)
    unsent = touched & ~entered & (was_unsent | ~was_touched)
    _count_rows(state, rows[touched & ~was_touched], T_TOUCHED)
    _count_rows(state, rows[unsent & ~was_unsent], T_TOUCHED_UNSENT)
    _count_rows(state, rows[was_unsent & ~unsent], T_TOUCHED_UNSENT, sign=-1)
    changed = np.where(touched, F_TOUCHED, 0) | np.where(unsent, F_UNSENT, 0) | np.where(entered, F_ENTERED, 0)
    live.put("flags", rows, (flags & ~np.uint32(F_UNSENT)) | changed.astype(np.uint32))


def _arrived(state: ShardState, seg: Segments, arrives: Array, flags: Array) -> Array:
    """Count each dead letter once; a reported arrival time takes precedence over an inferred one."""
    rows, at = seg.rows, seg["at"]
    live = state.rows
    reported = arrives & ((seg["flags"] & BY_RECEIVE) == 0)
    reported_at = np.minimum.reduceat(np.where(reported, at, NEVER), seg.starts)
    seen_at = np.minimum.reduceat(np.where(arrives, at, NEVER), seg.starts)
    here = np.flatnonzero(seen_at < NEVER)
    before = live.at("arrived", rows[here])
    was = (flags[here] & F_ARRIVED) != 0
    was_reported = was & ((flags[here] & (F_ARRIVED_BY_RECEIVE | F_ARRIVED_INFERRED)) == 0)
    is_reported = reported_at[here] < NEVER
    best_reported = np.minimum(np.where(was_reported, before, NEVER), reported_at[here])
    best_seen = np.minimum(np.where(was, before, NEVER), seen_at[here])
    live.put("arrived", rows[here], np.where(best_reported < NEVER, best_reported, best_seen))
    _count_rows(state, rows[here][~was], T_ARRIVED)
    concluded = F_ARRIVED_BY_RECEIVE | F_ARRIVED_INFERRED
    flags = flags.copy()
    inferred = was & ((flags[here] & F_ARRIVED_INFERRED) != 0)
    by_receive = (~was | inferred) & ~is_reported
    flags[here[inferred]] &= ~np.uint32(F_ARRIVED_INFERRED)
    flags[here] = np.where(is_reported, flags[here] & ~np.uint32(concluded), flags[here]) | np.uint32(F_ARRIVED)
    flags[here[by_receive]] |= np.uint32(F_ARRIVED_BY_RECEIVE)
    last = seg.last(arrives & (seg["peer"] >= 0))
    with_parent = np.flatnonzero(last >= 0)
    peers = seg["peer"][last[with_parent]]
    live.put("origin", rows[with_parent], peers)
    hashes = state.queues.hashes[peers]
    live.put("parent", rows[with_parent], row_key(seg["hi"][last[with_parent]], seg["lo"][last[with_parent]], hashes))
    return flags


def _received(state: ShardState, seg: Segments, duplicate: Array) -> Array:
    """Update receive counts and find the new receives, extensions and releases. Returns the mask of new receives."""
    rows, code = seg.rows, seg["code"]
    live = state.rows
    is_receive = code == RECEIVED
    count = seg["receive_count"]
    unseen_before = _unseen_receives(live, rows) if is_receive.any() else np.zeros(0, dtype=np.int64)
    numbered = is_receive & (count > 0) & (count <= _COUNTED_RECEIVES)
    if numbered.any():
        bit = np.where(numbered, np.uint64(1) << np.maximum(count - 1, 0).astype(np.uint64), np.uint64(0))
        seen = live.at("seen", rows)
        first = np.zeros(len(code), dtype=bool)
        where = np.flatnonzero(numbered)
        pairs = seg.of_event[where] * (_COUNTED_RECEIVES + 1) + count[where]
        first[where[np.unique(pairs, return_index=True)[1]]] = True
        duplicate |= numbered & (~first | ((seen[seg.of_event] & bit) != 0))
        live.put("seen", rows, seen | np.bitwise_or.reduceat(bit, seg.starts))
    other = (is_receive & ~numbered) | (code == EXTENDED) | (code == RELEASED)
    if other.any():
        where = np.flatnonzero(other)
        prints = fingerprint(
            seg["key"][where], seg["at"][where], code[where].astype(np.uint64), seg["end"][where].astype(np.uint64)
        )
        duplicate[where] = ~is_new(state, prints, seg["at"][where])
    accepted: Array = is_receive & ~duplicate
    uncounted = accepted & ~numbered
    if uncounted.any():
        more = np.add.reduceat(uncounted.astype(np.int32), seg.starts)
        live.put("seen_uncounted", rows, live.at("seen_uncounted", rows) + more)
    if is_receive.any():
        known = np.maximum(live.at("receive_count", rows), np.maximum.reduceat(np.where(is_receive, count, 0), seg.starts))
        seen_ones = np.bitwise_count(live.at("seen", rows)) + live.at("seen_uncounted", rows)
        live.put("receive_count", rows, np.maximum(known, seen_ones).astype(np.int32))
        more_unseen = _unseen_receives(live, rows) - unseen_before
        for sign in (1, -1):
            changed_rows = np.repeat(rows, np.maximum(sign * more_unseen, 0))
            _count_rows(state, changed_rows, T_UNSEEN_RECEIVES, sign=sign)
    return accepted


def _unseen_receives(live: Rows, rows: Array) -> Array:
    """Count the deliveries of each message that are known only from a later receive count.

    A dead letter's count continues from its source queue, so it is not used here.
    """
    seen = np.bitwise_count(live.at("seen", rows)) + live.at("seen_uncounted", rows)
    unseen = np.maximum(live.at("receive_count", rows).astype(np.int64) - seen, 0)
    result: Array = np.where(live.at("arrived", rows) > 0, 0, unseen)
    return result


def _registers(state: ShardState, seg: Segments) -> None:
    """Update the latest receive, and the window set by the latest receive, extension or release."""
    rows, code, at = seg.rows, seg["code"], seg["at"]
    live = state.rows
    last = seg.last(code == RECEIVED)
    here = np.flatnonzero(last >= 0)
    if len(here):
        event, row = last[here], rows[here]
        newer = at[event] >= live.at("last_received", row)
        event, row = event[newer], row[newer]
        live.put("last_received", row, at[event])
        for name in ("consumer", "batch"):
            live.put(name, row, seg[name][event])
    last = seg.last((code == RECEIVED) | (code == EXTENDED) | (code == RELEASED))
    here = np.flatnonzero(last >= 0)
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


def _names(state: ShardState, seg: Segments) -> None:
    """Set a message's group and position from whichever event reports them."""
    live = state.rows
    for reported, names in ((seg["group"] >= 0, ("group",)), (seg["seq_kind"] > 0, ("seq_kind", "seq_hi", "seq_lo"))):
        if reported.any():
            last = seg.last(reported)
            here = np.flatnonzero(last >= 0)
            for name in names:
                live.put(name, seg.rows[here], seg[name][last[here]])
    # An end may have arrived before any event reported the group of its message.
    ended, group = live.at("ended", seg.rows), live.at("group", seg.rows)
    known = (ended > 0) & (group >= 0)
    np.maximum.at(state.groups.time, group[known], ended[known])


def _ended(state: ShardState, events: Events, seg: Segments, duplicate: Array, settings: Settings) -> None:
    """Apply ends: each counts once per message and kind; a later one moves the time, one before a delivery ends nothing."""
    code = seg["code"]
    is_end = code >= FIRST_END
    if not is_end.any():
        return
    live, rows, at = state.rows, seg.rows, seg["at"]
    last_received = live.at("last_received", rows)
    stale = is_end & (at < last_received[seg.of_event])
    if stale.any():
        where = np.flatnonzero(stale)
        prints = fingerprint(seg["key"][where], at[where], code[where].astype(np.uint64), np.uint64(0))
        duplicate[where] = ~is_new(state, prints, at[where])
        for kind, _, total in COUNTED_ENDS:
            _count(state, seg["queue"][where][(code[where] == kind) & ~duplicate[where]], total)
    final = is_end & ~stale
    flags = live.at("flags", rows)
    for kind, flag, total in COUNTED_ENDS:
        mask = final & (code == kind)
        if not mask.any():
            continue
        new = ((flags & flag) == 0)[seg.of_event]
        counted = np.flatnonzero(_firsts(seg, mask) & new)
        _count(state, seg["queue"][counted], total)
        if kind == DEAD_LETTERED:
            # An inferred move that is reported later is neither a duplicate nor a second move.
            mask &= (seg["flags"] & PRIMARY) != 0
            new = ((flags & F_MOVE_REPORTED) == 0)[seg.of_event]
            reported = seg.any(mask)
            flags = np.where(reported, (flags | F_MOVE_REPORTED) & ~np.uint32(F_MOVE_INFERRED), flags).astype(np.uint32)
        duplicate |= mask & ~(_firsts(seg, mask) & new)
        if kind == DELETED:
            _outlived(state, seg, mask, counted, settings)
            flags |= live.at("flags", rows) & np.uint32(F_OUTLIVED)
            held = at[counted] - last_received[seg.of_event[counted]]
            _count_holds(state, seg["queue"][counted], held, last_received[seg.of_event[counted]] > 0)
            holder = live.at("consumer", rows)[seg.of_event[counted]]
            np.maximum.at(state.consumers.time, holder[holder >= 0], at[counted][holder >= 0])
            np.add.at(state.consumers.finished, holder[holder >= 0], 1)
        if kind in (EXPIRED, DROPPED):
            _remember_reasons(state, events, seg, counted)
        flags |= np.where(seg.any(final & (code == kind)), flag, 0).astype(np.uint32)
    live.put("flags", rows, flags)
    end_at = np.maximum.reduceat(np.where(final, at, 0), seg.starts)
    live.put("ended", rows, np.maximum(live.at("ended", rows), end_at))
    settled_at = np.maximum.reduceat(np.where(is_end, at, 0), seg.starts)
    group = live.at("group", rows)
    grouped = (group >= 0) & (settled_at > 0)
    np.maximum.at(state.groups.time, group[grouped], settled_at[grouped])


def _outlived(state: ShardState, seg: Segments, deleted: Array, counted: Array, settings: Settings) -> None:
    """Count messages whose processing outlived their visibility window.

    They were deleted after its end, by another consumer than the one that has them now, or a second time after a redelivery.
    """
    live = state.rows
    event = np.flatnonzero(deleted)
    of = seg.of_event[event]
    row = seg.rows[of]
    first = np.zeros(len(deleted), dtype=bool)
    first[counted] = True
    code, end = live.at("window_code", row), live.at("window_end", row)
    by_default = (live.at("flags", row) & F_WINDOW_DEFAULT) != 0
    visibility = state.queues.limit("visibility_ms", settings)[seg["queue"][event]]
    end = np.where(by_default, np.minimum(live.at("window_at", row) + visibility, NEVER), end)
    late = ((code == RECEIVED) | (code == EXTENDED)) & (end > 0) & (seg["at"][event] > end)
    holder = live.at("consumer", row)
    stolen = (seg["consumer"][event] >= 0) & (holder >= 0) & (seg["consumer"][event] != holder)
    ended = live.at("ended", row)
    ended = np.where(ended > 0, ended, np.minimum.reduceat(np.where(deleted, seg["at"], NEVER), seg.starts)[of])
    again = ~first[event] & (seg["at"][event] > ended) & (live.at("receive_count", row) > 1)
    new = (live.at("flags", row) & F_OUTLIVED) == 0
    hit = np.unique(row[(late & first[event] | stolen | again) & new])
    if len(hit):
        live.put("flags", hit, live.at("flags", hit) | np.uint32(F_OUTLIVED))
        _count_rows(state, hit, T_OUTLIVED)


def _remember_reasons(state: ShardState, events: Events, seg: Segments, counted: Array) -> None:
    for i in counted[seg["reason"][counted] >= 0].tolist():
        state.loss_reasons[int(seg["key"][i])] = events.reasons[int(seg["reason"][i])]


def _touch_queues(state: ShardState, seg: Segments) -> None:
    """Record when each queue last had an event, a delivery and a settlement."""
    code, at, queue = seg["code"], seg["at"], seg["queue"]
    queues = state.queues
    queues.column("messages_seen")[queue] = True
    np.maximum.at(queues.column("last_event_at"), queue, at)
    for column, mask in (("last_received_at", code == RECEIVED), ("last_settled_at", code >= FIRST_END)):
        np.maximum.at(queues.column(column), queue[mask], at[mask])
    _note_youngest(state, seg)


def _note_youngest(state: ShardState, seg: Segments) -> None:
    """Record the youngest message received from each queue: groups whose older head still waits were passed over."""
    live, rows = state.rows, seg.rows
    received = np.flatnonzero((live.at("last_received", rows) > 0) & ((live.at("flags", rows) & F_SENT_KNOWN) != 0))
    if not len(received):
        return
    rows = rows[received]
    queue, sent, at = live.at("queue", rows), live.at("sent", rows), live.at("last_received", rows)
    order = np.lexsort((at, sent, queue))
    last = order[np.append(queue[order][1:] != queue[order][:-1], True)]
    queue, sent, at = queue[last], sent[last], at[last]
    youngest, when = state.queues.column("youngest_sent_at"), state.queues.column("youngest_received_at")
    younger = (sent > youngest[queue]) | ((sent == youngest[queue]) & (at > when[queue]))
    youngest[queue[younger]], when[queue[younger]] = sent[younger], at[younger]


def _count_holds(state: ShardState, queue: Array, held_ms: Array, known: Array) -> None:
    if not known.any():
        return
    state.queues.add_holds(queue[known], hold_bucket(held_ms[known]))


def _firsts(seg: Segments, mask: Array) -> Array:
    """Return the first event of each message among those in `mask`."""
    where = np.flatnonzero(mask)
    out = np.zeros(len(mask), dtype=bool)
    segment = seg.of_event[where]
    if len(where):
        out[where[np.append(True, segment[1:] != segment[:-1])]] = True
    return out


def _count(state: ShardState, queue: Array, total: int, sign: int = 1) -> None:
    state.queues.count(queue, total, sign)


def _count_rows(state: ShardState, rows: Array, total: int, sign: int = 1) -> None:
    if len(rows):
        _count(state, state.rows.at("queue", rows), total, sign)
