"""Apply the ends of messages: deletions, dead letters, redrives, expiries and drops."""

from __future__ import annotations

import numpy as np

from streaming.core.clock import CLOCKS_DIFFER_MS
from streaming.core.columns import Array, nonzero
from streaming.core.events.events import (
    DEAD_LETTERED,
    DELETED,
    DROPPED,
    EXPIRED,
    EXTENDED,
    FIRST_END,
    RECEIVED,
    REDRIVEN,
    Events,
)
from streaming.core.events.flags import BY_RECEIVE, PRIMARY
from streaming.core.events.late import is_late
from streaming.core.settings import Settings
from streaming.core.state.queues import (
    NEVER,
    T_DEAD_LETTERED,
    T_DELETED,
    T_DROPPED,
    T_EXPIRED,
    T_FOUND_LATER,
    T_OUTLIVED,
    T_REDRIVEN,
)
from streaming.core.state.rows import (
    F_DEAD_LETTERED,
    F_DELETED,
    F_DROPPED,
    F_ENDED,
    F_EXPIRED,
    F_MOVE_INFERRED,
    F_MOVE_REPORTED,
    F_OUTLIVED,
    F_PURGED,
    F_RECONCILED,
    F_REDRIVEN,
    F_TARGET_UNNAMED,
    F_WINDOW_DEFAULT,
)
from streaming.core.state.state import ShardState
from streaming.core.tracking.dedup import fingerprint, is_new
from streaming.core.tracking.delivery_order import outdated_losses, remember_outdated_ends
from streaming.core.tracking.ends import was_moved_by_receive
from streaming.core.tracking.late_work import note_late_work
from streaming.core.tracking.retention import has_run_out, withdraw
from streaming.core.tracking.segments import Segments, count_rows
from streaming.core.tracking.windows import window_ends

MOST_REASONS = 100_000
"""Of so many lost messages in a shard any reason is remembered; beyond that, reasons that are known already."""
COUNTED_ENDS = (
    (DELETED, F_DELETED, T_DELETED),
    (DEAD_LETTERED, F_DEAD_LETTERED, T_DEAD_LETTERED),
    (REDRIVEN, F_REDRIVEN, T_REDRIVEN),
    (EXPIRED, F_EXPIRED, T_EXPIRED),
    (DROPPED, F_DROPPED, T_DROPPED),
)


def apply_ends(state: ShardState, events: Events, seg: Segments, duplicate: Array, settings: Settings) -> None:
    """Apply ends: each counts once per message and kind; a later one moves the time, one before a delivery ends nothing."""
    code = seg["code"]
    is_end = code >= FIRST_END
    if not is_end.any():
        return
    live, rows, at = state.rows, seg.rows, seg["at"]
    last_received = live.at("last_received", rows)
    # A move that a receive in the dead-letter queue shows is dated by who received it there.
    by_receive = (code == DEAD_LETTERED) & ((seg["flags"] & BY_RECEIVE) != 0)
    stale = is_end & (at + np.where(by_receive, CLOCKS_DIFFER_MS, 0) < last_received[seg.of_event])
    # Another report of a move that has ended the message already, although a delivery is dated later.
    stale &= ~((code == DEAD_LETTERED) & was_moved_by_receive(state, rows)[seg.of_event])
    if stale.any():
        _keep_outdated(state, events, seg, nonzero(stale), duplicate)
    final = is_end & ~stale
    _withdraw_expiries(state, seg, final & (code != EXPIRED))
    flags = live.at("flags", rows)
    taken_for_gone = (flags & np.uint32(F_ENDED)) == F_RECONCILED
    run_out = has_run_out(state, rows)
    assumed = taken_for_gone | run_out | _is_inferred(flags)
    for kind, flag, total in COUNTED_ENDS:
        mask = final & (code == kind)
        if not mask.any():
            continue
        new = ((flags & flag) == 0)[seg.of_event]
        counted = nonzero(seg.firsts(mask) & new)
        state.queues.count(seg["queue"][counted], total)
        if kind == DEAD_LETTERED:
            # An inferred move that is reported later is neither a duplicate nor a second move.
            mask &= (seg["flags"] & PRIMARY) != 0
            new = ((flags & F_MOVE_REPORTED) == 0)[seg.of_event]
            reported = seg.any(mask)
            unnamed = _is_target_unnamed(state, seg, mask, flags, settings)
            flags = np.where(reported, (flags | F_MOVE_REPORTED) & ~np.uint32(F_MOVE_INFERRED), flags).astype(np.uint32)
            flags = np.where(unnamed, flags | F_TARGET_UNNAMED, flags).astype(np.uint32)
        if kind == EXPIRED:
            # Nor is an expiry by time that is reported later.
            new |= run_out[seg.of_event]
        duplicate |= mask & ~(seg.firsts(mask) & new)
        if kind == DELETED:
            _outlived(state, seg, mask, counted, settings)
            flags |= live.at("flags", rows) & np.uint32(F_OUTLIVED)
            holder = live.at("consumer", rows)[seg.of_event[counted]]
            np.maximum.at(state.consumers.time, holder[holder >= 0], at[counted][holder >= 0])
            np.add.at(state.consumers.finished, holder[holder >= 0], 1)
        if kind in (EXPIRED, DROPPED):
            _remember_reasons(state, events, seg, nonzero(seg.firsts(mask) & new))
        flags |= np.where(seg.any(final & (code == kind)), flag, 0).astype(np.uint32)
    live.put("flags", rows, flags)
    end_at = np.maximum.reduceat(np.where(final, at, 0), seg.starts)
    # A message whose end was only presumed ended at the time this late report gives.
    ended = np.where(assumed & (end_at > 0), 0, live.at("ended", rows))
    live.put("ended", rows, np.maximum(ended, end_at))
    count_rows(state, rows[taken_for_gone & (end_at > 0)], T_FOUND_LATER)
    settled_at = np.maximum.reduceat(np.where(is_end, at, 0), seg.starts)
    group = live.at("group", rows)
    grouped = (group >= 0) & (settled_at > 0)
    np.maximum.at(state.groups.time, group[grouped], settled_at[grouped])


def _keep_outdated(state: ShardState, events: Events, seg: Segments, where: Array, duplicate: Array) -> None:
    """Count the ends at `where`, which a later delivery disproves, and remember them: it may prove to be an earlier one."""
    code, at = seg["code"][where], seg["at"][where]
    prints = fingerprint(seg["key"][where], at, code.astype(np.uint64), np.uint64(0))
    duplicate[where] = ~is_new(state, prints, at)
    for kind, _, total in COUNTED_ENDS:
        state.queues.count(seg["queue"][where][(code == kind) & ~duplicate[where]], total)
    is_event = (seg["flags"][where] & PRIMARY) != 0
    of = seg.rows[seg.of_event[where]]
    remember_outdated_ends(state, of, at, code, is_event)
    is_latest = (outdated_losses(state, of) == code) & (state.rows.at("outdated_end", of) == at)
    is_lost = (state.rows.at("flags", of) & np.uint32(F_EXPIRED | F_DROPPED)) != 0
    _remember_reasons(state, events, seg, where[is_latest & ~is_lost & ~duplicate[where]])


def _is_inferred(flags: Array) -> Array:
    """Return which messages ended by a purge of their queue or an inferred move, from the flags of their rows."""
    ends = flags & np.uint32(F_ENDED | F_MOVE_INFERRED)
    result: Array = (ends == F_PURGED) | (ends == F_DEAD_LETTERED | F_MOVE_INFERRED)
    return result


def _withdraw_expiries(state: ShardState, seg: Segments, ends: Array) -> None:
    """Withdraw the expiries, by time alone, of messages that had ended otherwise: before it, and reported only now."""
    rows = seg.rows
    expired = has_run_out(state, rows)
    if expired.any():
        before = seg.any(ends & (seg["at"] <= state.rows.at("ended", rows)[seg.of_event]))
        withdraw(state, rows[expired & before])


def _is_target_unnamed(state: ShardState, seg: Segments, moves: Array, flags: Array, settings: Settings) -> Array:
    """Return which messages have a reported move among `moves`, and nothing so far that says where to; `flags` are their rows'.

    A receive that names the source of a dead letter says it too. The flag of those of which it is said later is cleared: the
    dead letter has a row of its own, perhaps in another shard, and must not get a placeholder as well.
    """
    named = seg.any((seg["code"] == DEAD_LETTERED) & (seg["peer"] >= 0))
    flags[named] &= ~np.uint32(F_TARGET_UNNAMED)
    timely = moves & ~is_late(seg["at"], seg["flags"], state.oldest_timely_at(settings))
    known = (flags & np.uint32(F_MOVE_REPORTED)) != 0
    known |= (flags & np.uint32(F_DEAD_LETTERED | F_MOVE_INFERRED)) == F_DEAD_LETTERED
    result: Array = seg.any(timely) & ~named & ~known
    return result


def _outlived(state: ShardState, seg: Segments, deleted: Array, counted: Array, settings: Settings) -> None:
    """Count messages whose processing outlived their visibility window.

    They were deleted after its end, by another consumer than the one that has them now, or a second time after a redelivery.
    """
    live = state.rows
    event = nonzero(deleted)
    of = seg.of_event[event]
    row = seg.rows[of]
    first = np.zeros(len(deleted), dtype=bool)
    first[counted] = True
    code, end = live.at("window_code", row), window_ends(state, settings, row)
    late = ((code == RECEIVED) | (code == EXTENDED)) & (end > 0) & (seg["at"][event] > end)
    # Where the timeout can only be assumed, a late deletion may mean that it is longer.
    by_default = (live.at("flags", row) & F_WINDOW_DEFAULT) != 0
    late &= ~by_default | (state.queues.limit("visibility_known", settings)[seg["queue"][event]] > 0)
    # SQS deletes no message of a FIFO queue after its window: the window of one that it deleted was extended, unreported.
    late &= ~state.queues.keeps_order(settings)[seg["queue"][event]]
    holder = live.at("consumer", row)
    redelivered = live.at("receive_count", row) > 1
    # Of a single delivery it only means that one process receives and another deletes.
    stolen = (seg["consumer"][event] >= 0) & (holder >= 0) & (seg["consumer"][event] != holder) & redelivered
    ended = live.at("ended", row)
    ended = np.where(ended > 0, ended, np.minimum.reduceat(np.where(deleted, seg["at"], NEVER), seg.starts)[of])
    again = ~first[event] & (seg["at"][event] > ended) & redelivered
    new = (live.at("flags", row) & F_OUTLIVED) == 0
    is_hit = (late & first[event] | stolen | again) & new
    hit = np.unique(row[is_hit])
    if len(hit):
        note_late_work(state, row[is_hit], seg["at"][event[is_hit]], seg["consumer"][event[is_hit]], settings)
        live.put("flags", hit, live.at("flags", hit) | np.uint32(F_OUTLIVED))
        count_rows(state, hit, T_OUTLIVED)


def _remember_reasons(state: ShardState, events: Events, seg: Segments, counted: Array) -> None:
    """Remember why messages were lost, even if no reason is given: a loss without an entry is one that no event reported.

    With very many of them, only reasons that others have too: a sender may put the id of each message into them.
    """
    is_full = len(counted) > 0 and len(state.loss_reasons) >= MOST_REASONS
    known = set(state.loss_reasons.values()) if is_full else None
    for i in counted.tolist():
        number = int(seg["reason"][i])
        reason = events.reasons[number] if number >= 0 else ""
        state.loss_reasons[int(seg["key"][i])] = reason if known is None or reason in known else ""
