"""Apply the events of each message to its row, and count them in the totals.

Every column of a row is a minimum, a maximum, or the value of the latest event, so events may arrive in any order and twice.
"""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.events.events import ARRIVED, FIRST_END, RECEIVED, REDRIVEN_IN, SENT, Events
from streaming.core.events.flags import BY_RECEIVE, PRIMARY
from streaming.core.hashing import row_key
from streaming.core.settings import Settings
from streaming.core.state.queues import NEVER, T_ARRIVED, T_RECEIVED, T_SENT, T_TOUCHED, T_TOUCHED_UNSENT
from streaming.core.state.rows import (
    F_ARRIVED,
    F_ARRIVED_BY_RECEIVE,
    F_ARRIVED_INFERRED,
    F_ENTERED,
    F_SENT,
    F_SENT_KNOWN,
    F_TOUCHED,
    F_UNSENT,
)
from streaming.core.state.state import ShardState
from streaming.core.tracking import attempts
from streaming.core.tracking.apply_deliveries import apply_deliveries, apply_windows, count_unseen_receives, unseen_receives
from streaming.core.tracking.apply_ends import apply_ends
from streaming.core.tracking.delivery_order import end_again, forget_outrun, note_restarts
from streaming.core.tracking.durations import count_durations
from streaming.core.tracking.overtaken import note_reached
from streaming.core.tracking.results import ACCEPTED, DUPLICATE
from streaming.core.tracking.retention import withdraw_disproved
from streaming.core.tracking.segments import Segments, count_rows


def apply_segments(state: ShardState, events: Events, seg: Segments, results: Array, settings: Settings) -> Array:
    """Apply one epoch of every message. Returns the results with duplicates filled in."""
    duplicate = np.zeros(len(seg["code"]), dtype=bool)
    _entered(state, seg, duplicate, settings)
    _touched(state, seg)
    accepted_receive = apply_deliveries(state, seg, duplicate)
    attempts.record(state, seg.columns, seg.starts, seg.rows, ~duplicate, settings)
    note_restarts(state, seg)
    outrun = forget_outrun(state, seg)
    apply_windows(state, seg)
    end_again(state, outrun)
    withdraw_disproved(state, seg.rows, settings)
    _touch_queues(state, seg)
    state.queues.count(seg["queue"][accepted_receive], T_RECEIVED)
    _names(state, seg)
    note_reached(state, seg.rows)
    apply_ends(state, events, seg, duplicate, settings)
    count_durations(state, seg.rows)
    return np.where(duplicate & (results == ACCEPTED), DUPLICATE, results).astype(np.uint8)


def _entered(state: ShardState, seg: Segments, duplicate: Array, settings: Settings) -> None:
    """Record when a message was sent, arrived in a dead-letter queue, or had its first event."""
    rows, code, at = seg.rows, seg["code"], seg["at"]
    live = state.rows
    flags = live.at("flags", rows)
    ordered = state.queues.is_ordered(settings)[seg["queue"]]
    sent_at = np.where(seg["sent_at"] > 0, seg["sent_at"], np.where((code == SENT) | (code == REDRIVEN_IN), at, NEVER))
    # An ordered dead-letter queue gives a message a new send time when it arrives. A receive there does not show when that was.
    renewed = (code == ARRIVED) & ordered & ((seg["flags"] & BY_RECEIVE) == 0)
    sent_at = np.where(renewed, at, sent_at)
    known = np.minimum.reduceat(sent_at, seg.starts)
    before = live.at("sent", rows)
    was_known = (flags & F_SENT_KNOWN) != 0
    first = np.minimum(np.where(before > 0, before, NEVER), at[seg.starts])
    received_at = seg["first_received_at"]
    if received_at.any():
        first_received = np.minimum.reduceat(np.where(received_at > 0, received_at, NEVER), seg.starts)
        first = np.minimum(first, first_received)
        earlier = live.at("first_received", rows)
        first_received = np.minimum(first_received, np.where(earlier > 0, earlier, NEVER))
        live.put("first_received", rows, np.where(first_received < NEVER, first_received, 0))
    sent = np.where(was_known, np.minimum(before, known), np.where(known < NEVER, known, first))
    live.put("sent", rows, sent)
    flags |= np.where(known < NEVER, F_SENT_KNOWN, 0).astype(np.uint32)
    is_sent = code == SENT
    if is_sent.any():
        first_sent = seg.firsts(is_sent)
        seen = (flags & F_SENT) != 0
        duplicate |= is_sent & (~first_sent | seen[seg.of_event])
        state.queues.count(seg["queue"][is_sent & ~duplicate], T_SENT)
        flags |= np.where(seg.any(is_sent), F_SENT, 0).astype(np.uint32)
        delays = np.where(is_sent, seg["end"], 0)
        # One that a collector finds after its retention is still there: like a delayed one, it has an event after its send.
        kept_ms = state.queues.limit("retention_ms", settings)[seg["queue"]]
        found = is_sent & (seg["sent_at"] > 0) & (at >= seg["sent_at"] + kept_ms)
        delays = np.where(found, np.maximum(delays, at), delays)
        if delays.any():
            live.put("delay", rows, np.maximum(live.at("delay", rows), np.maximum.reduceat(delays, seg.starts)))
    arrives = code == ARRIVED
    if arrives.any():
        flags = _arrived(state, seg, arrives, flags, ordered)
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
    # A move into the queue, reported from its other end, counts as a send. One that a receive shows does not: nothing is known of
    # those that were not received.
    moved_in = (code == ARRIVED) & ((seg["flags"] & BY_RECEIVE) == 0)
    entered = ((flags & F_ENTERED) != 0) | seg.any((code == SENT) | (code == REDRIVEN_IN) | moved_in)
    touches = ((code == RECEIVED) | (code >= FIRST_END)) & ((seg["flags"] & PRIMARY) != 0)
    touched = was_touched | seg.any(touches)
    unsent = touched & ~entered & (was_unsent | ~was_touched)
    count_rows(state, rows[touched & ~was_touched], T_TOUCHED)
    count_rows(state, rows[unsent & ~was_unsent], T_TOUCHED_UNSENT)
    count_rows(state, rows[was_unsent & ~unsent], T_TOUCHED_UNSENT, sign=-1)
    changed = np.where(touched, F_TOUCHED, 0) | np.where(unsent, F_UNSENT, 0) | np.where(entered, F_ENTERED, 0)
    live.put("flags", rows, (flags & ~np.uint32(F_UNSENT)) | changed.astype(np.uint32))


def _arrived(state: ShardState, seg: Segments, arrives: Array, flags: Array, ordered: Array) -> Array:
    """Count each dead letter once; a reported arrival time takes precedence over an inferred one."""
    rows, at = seg.rows, seg["at"]
    live = state.rows
    reported = arrives & ((seg["flags"] & BY_RECEIVE) == 0)
    # In an ordered queue the send time that a receive reports is that of the move, which may be days ago.
    renewed = arrives & ~reported & ordered & (seg["sent_at"] > 0)
    at = np.where(renewed, np.minimum(at, seg["sent_at"]), at)
    reported_at = np.minimum.reduceat(np.where(reported, at, NEVER), seg.starts)
    seen_at = np.minimum.reduceat(np.where(arrives, at, NEVER), seg.starts)
    here = nonzero(seen_at < NEVER)
    before = live.at("arrived", rows[here])
    was = (flags[here] & F_ARRIVED) != 0
    was_reported = was & ((flags[here] & (F_ARRIVED_BY_RECEIVE | F_ARRIVED_INFERRED)) == 0)
    is_reported = reported_at[here] < NEVER
    best_reported = np.minimum(np.where(was_reported, before, NEVER), reported_at[here])
    best_seen = np.minimum(np.where(was, before, NEVER), seen_at[here])
    unseen_before = unseen_receives(live, rows[here])
    live.put("arrived", rows[here], np.where(best_reported < NEVER, best_reported, best_seen))
    count_unseen_receives(state, rows[here], unseen_before)
    count_rows(state, rows[here][~was], T_ARRIVED)
    not_reported = F_ARRIVED_BY_RECEIVE | F_ARRIVED_INFERRED
    flags = flags.copy()
    # A receive says no more than a send that was reported.
    inferred = was & ((flags[here] & (F_ARRIVED_INFERRED | F_SENT)) == F_ARRIVED_INFERRED)
    by_receive = (~was | inferred) & ~is_reported
    flags[here[inferred]] &= ~np.uint32(F_ARRIVED_INFERRED)
    flags[here] = np.where(is_reported, flags[here] & ~np.uint32(not_reported), flags[here]) | np.uint32(F_ARRIVED)
    flags[here[by_receive]] |= np.uint32(F_ARRIVED_BY_RECEIVE)
    last = seg.last(arrives & (seg["peer"] >= 0))
    with_parent = nonzero(last >= 0)
    peers = seg["peer"][last[with_parent]]
    live.put("origin", rows[with_parent], peers)
    hashes = state.queues.hashes[peers]
    live.put("parent", rows[with_parent], row_key(seg["hi"][last[with_parent]], seg["lo"][last[with_parent]], hashes))
    return flags


def _names(state: ShardState, seg: Segments) -> None:
    """Set a message's group and position from whichever event reports them."""
    live = state.rows
    for reported, names in ((seg["group"] >= 0, ("group",)), (seg["seq_kind"] > 0, ("seq_kind", "seq_hi", "seq_lo"))):
        if reported.any():
            last = seg.last(reported)
            here = nonzero(last >= 0)
            for name in names:
                live.put(name, seg.rows[here], seg[name][last[here]])
    # An end may have arrived before any event reported the group of its message.
    ended, group = live.at("ended", seg.rows), live.at("group", seg.rows)
    known = (ended > 0) & (group >= 0)
    np.maximum.at(state.groups.time, group[known], ended[known])


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
    received = nonzero((live.at("last_received", rows) > 0) & ((live.at("flags", rows) & F_SENT_KNOWN) != 0))
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
