"""Apply events to rows: find each event's row, order the events, and count each as accepted, duplicate or late.

All events of a step are processed as whole columns. Only the events of a message that ended and was delivered again are split
into epochs, which are applied one after another.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.core.clock import CLOCKS_DIFFER_MS
from streaming.core.columns import Array, nonzero, run_starts, text_columns
from streaming.core.events.events import (
    ARRIVED,
    DEAD_LETTERED,
    DELETED,
    DROPPED,
    EXPIRED,
    FIRST_END,
    RECEIVED,
    Events,
)
from streaming.core.events.flags import BY_RECEIVE, PRIMARY
from streaming.core.events.late import is_late
from streaming.core.events.order import message_order
from streaming.core.events.packet import Quarantined
from streaming.core.hashing import row_key
from streaming.core.settings import Settings
from streaming.core.state.queues import NEVER, T_FOUND_LATER
from streaming.core.state.rows import (
    F_DELETED,
    F_DROPPED,
    F_ENDED,
    F_EXPIRED,
    F_MOVE_INFERRED,
    F_MOVE_REPORTED,
    F_RECONCILED,
    F_TARGET_UNNAMED,
)
from streaming.core.state.state import ShardState
from streaming.core.state.tombstones import forgotten, restore_rows
from streaming.core.tracking.admission import MOST_CONSUMER_BYTES, MOST_GROUP_BYTES, TOO_MANY_MESSAGES, over_capacity
from streaming.core.tracking.apply_columns import apply_segments
from streaming.core.tracking.apply_deliveries import COUNTED_RECEIVES
from streaming.core.tracking.apply_ends import COUNTED_ENDS
from streaming.core.tracking.dedup import add_fingerprints, fingerprint, is_new
from streaming.core.tracking.delivery_order import came_earlier, outdated_end_of, outdated_losses, remember_outdated_ends, returns
from streaming.core.tracking.ends import find_remembered, forget, forget_losses, was_moved_by_receive
from streaming.core.tracking.placeholder_rows import replace_placeholders
from streaming.core.tracking.results import ACCEPTED, DUPLICATE, NOT_APPLIED, TOO_LATE, count_results
from streaming.core.tracking.retention import has_run_out
from streaming.core.tracking.segments import Segments, count_rows
from streaming.core.tracking.unnamed_targets import name_targets

_SETTLES = frozenset({DELETED, EXPIRED, DROPPED})
REUSED_ID: Final = "reused_id"
MOST_EPOCHS = 200
"""Epochs of one message that are applied in one step. What ends and returns more often than that is not one message, but an id
that a sender uses for all of them."""
REUSED_IDS_NAMED = 10
"""At most so many of them are kept for inspection in a step."""
_GROUP_WITHOUT_ROOM: Final = "group_without_room"
"""The column of the events whose group has a name that does not fit; only where there is one."""


@dataclass(slots=True)
class LeftOut:
    """The events of a step that were not applied: how many, by reason, and some of them for inspection."""

    events: Counter[str] = field(default_factory=Counter)
    examples: list[Quarantined] = field(default_factory=list)


def apply_events(state: ShardState, events: Events, settings: Settings) -> LeftOut:
    """Apply all rows of `events` to `state` (registers, totals, results), adding rows for new messages while there is room."""
    left_out = LeftOut()
    if not len(events):
        return left_out
    events = name_targets(state, events, settings)
    queue_map = _queue_numbers(state, events)
    columns = _without_repetitions_ahead(state, _sorted_by_message(events, queue_map, state))
    columns = _without_moves_to_live_queues(state, columns)
    columns = _without_known_moves(state, columns, settings)
    key = columns["key"]
    if not len(key):
        return left_out
    starts = nonzero(run_starts(key))
    late = is_late(columns["at"], columns["flags"], state.oldest_timely_at(settings))
    keys = key[starts]
    replace_placeholders(state, columns, late)
    restore_rows(state, keys, settings)
    rows, found = state.rows.find(keys)
    alive_news = np.logical_or.reduceat(~late, starts)
    known = found.copy()
    known[found] = ~forgotten(state, state.rows.at("ended", rows[found]), settings)
    gone = found & ~known
    skip = ~known & ~alive_news
    results = np.where(late, TOO_LATE, ACCEPTED).astype(np.uint8)
    id_bytes = _id_bytes(events, columns["text"][starts])
    new = ~found & ~skip
    outside = over_capacity(state, new, columns["at"][starts], id_bytes, settings)
    if _GROUP_WITHOUT_ROOM in columns:
        outside |= new & np.logical_or.reduceat(columns.pop(_GROUP_WITHOUT_ROOM), starts)
    if skip.any() or outside.any():
        lengths = np.diff(np.append(starts, len(key)))
        of_skipped = np.repeat(skip, lengths)
        count_results(state, results[of_skipped], columns["flags"][of_skipped])
        of_outside = np.repeat(outside, lengths)
        left_out.events[TOO_MANY_MESSAGES] = int(((columns["flags"][of_outside] & PRIMARY) != 0).sum())
        np.maximum.at(state.queues.column("left_out_at"), columns["queue"][of_outside], columns["at"][of_outside])
        keep = nonzero(~of_skipped & ~of_outside)
        columns = {name: values[keep] for name, values in columns.items()}
        key, results = columns["key"], results[keep]
        if not len(key):
            return left_out
        skip |= outside
        starts = nonzero(run_starts(key))
        keys, rows, found, gone = keys[~skip], rows[~skip], found[~skip], gone[~skip]
    if gone.any():
        forget(state, rows[gone])
    new = ~found
    if new.any():
        rows = _insert(state, events, columns, starts, keys, rows, new)
    results = _apply_in_epochs(state, events, Segments(columns, starts, rows), results, settings, left_out)
    applied = results != NOT_APPLIED
    count_results(state, results[applied], columns["flags"][applied])
    return left_out


def _insert(
    state: ShardState, events: Events, columns: dict[str, Array], starts: Array, keys: Array, rows: Array, new: Array
) -> Array:
    """Add rows for the messages that are `new`, and return every message's row: `rows` has the places where to insert them."""
    state.rows.insert(rows[new], keys[new])
    rows = rows + np.cumsum(new) - new
    first = starts[new]
    for name in ("hi", "lo", "queue"):
        state.rows.put(name, rows[new], columns[name][first])
    _remember_texts(state, events, rows[new], columns["text"][first])
    return rows


def _apply_in_epochs(
    state: ShardState, events: Events, seg: Segments, results: Array, settings: Settings, left_out: LeftOut
) -> Array:
    """Apply the events of all messages, and return the results. What follows a redelivery of an ended message comes later."""
    columns = seg.columns
    columns["came_earlier"] = came_earlier(state, seg)
    epochs = _epochs(state, columns, seg.starts, seg.rows)
    if epochs is None:
        return apply_segments(state, events, seg, results, settings)
    if int(epochs.max()) >= MOST_EPOCHS:
        epochs = _without_most(state, seg, epochs, left_out)
        results = np.where(epochs < 0, NOT_APPLIED, results).astype(np.uint8)
    per_event_row = np.repeat(seg.rows, seg.lengths)
    for epoch in range(int(epochs.max()) + 1):
        chosen = nonzero(epochs == epoch)
        if not len(chosen):
            continue
        part = {name: values[chosen] for name, values in columns.items()}
        part_starts = nonzero(run_starts(part["key"]))
        part_rows = per_event_row[chosen][part_starts]
        if epoch:
            _reopen(state, part_rows, anew=part["code"][part_starts] != RECEIVED)
        results[chosen] = apply_segments(state, events, Segments(part, part_starts, part_rows), results[chosen], settings)
    return results


def _without_most(state: ShardState, seg: Segments, epochs: Array, left_out: LeftOut) -> Array:
    """Leave out all but the first epochs and the last one of messages that have too many; return -1 for the events of the others.

    The last one decides how the message is now. It follows an end, as the one does whose place it takes.
    """
    last = np.maximum.reduceat(epochs, seg.starts)
    kept = (epochs < MOST_EPOCHS - 1) | (epochs == np.repeat(last, seg.lengths))
    primary = (seg["flags"] & PRIMARY) != 0
    left_out.events[REUSED_ID] += int((primary & ~kept).sum())
    reused = nonzero(last >= MOST_EPOCHS)[:REUSED_IDS_NAMED]
    queues = [state.queues.names[number] for number in seg["queue"][seg.starts[reused]].tolist()]
    for name, message_id, times in zip(queues, state.message_ids(seg.rows[reused]), last[reused].tolist(), strict=True):
        detail = (
            f"message {message_id!r} of {name.system} queue {name.queue} ended and came back {times} times within one batch; "
            f"{times + 1 - MOST_EPOCHS} of these are left out: give each message an id of its own"
        )
        left_out.examples.append(Quarantined(REUSED_ID, detail, b"", "", None))
    return np.where(kept, np.minimum(epochs, MOST_EPOCHS - 1), -1)


def _queue_numbers(state: ShardState, events: Events) -> Array:
    """Return the state's number of each of the events' queues; -1 for queues without rows."""
    used = np.zeros(len(events.queues) + 1, dtype=bool)
    used[events.columns["queue"]] = True
    used[events.columns["peer"]] = True
    numbers = [state.queue_number(name) if used[i] else -1 for i, name in enumerate(events.queues)]
    return np.array(numbers, dtype=np.int32)


def _sorted_by_message(events: Events, queue_map: Array, state: ShardState) -> dict[str, Array]:
    """Return the columns ordered by message, time and kind, with `key` added and the state's numbers of queues and names."""
    source = events.columns
    key = events.keys()
    order = message_order(key, source["at"], source["code"], source["end"])
    columns = {name: values[order] for name, values in source.items()}
    columns["key"] = key[order]
    queue = queue_map[columns["queue"]]
    columns["queue"] = queue
    peer = columns["peer"]
    columns["peer"] = np.where(peer < 0, -1, np.append(queue_map, -1)[peer])
    groups = state.groups.numbers(queue, columns["group"], events.groups, MOST_GROUP_BYTES)
    without_room = (columns["group"] >= 0) & (groups < 0)
    if without_room.any():
        columns[_GROUP_WITHOUT_ROOM] = without_room
    columns["group"] = groups
    columns["consumer"] = state.consumers.numbers(queue, columns["consumer"], events.consumers, MOST_CONSUMER_BYTES)
    return columns


def _without_repetitions_ahead(state: ShardState, columns: dict[str, Array]) -> dict[str, Array]:
    """Leave out the repetitions of events that were dated in the future.

    Each copy was moved back to its own arrival, so only the time as it was reported shows that they are one event.
    """
    moved_back = columns["moved_back"]
    if not moved_back.any():
        return columns
    where = nonzero(moved_back)
    at, code, end, by = (columns[name][where] for name in ("at", "code", "end", "moved_back"))
    # An end that would be before 1970 was set to 1.
    reported_end = np.where(end > 1, end + by, end)
    # All others have the fingerprint that a copy which is ahead no more has: that one carries no number of its own either.
    count = columns["receive_count"][where].astype(np.int64)
    reported_end = reported_end + np.where((code == RECEIVED) & (count <= COUNTED_RECEIVES), count, 0)
    prints = fingerprint(columns["key"][where], at + by, code.astype(np.uint64), reported_end.astype(np.uint64))
    repeated = where[~is_new(state, prints, at)]
    if not len(repeated):
        return columns
    flags = columns["flags"][repeated]
    count_results(state, np.full(len(repeated), DUPLICATE, dtype=np.uint8), flags)
    keep = np.ones(len(moved_back), dtype=bool)
    keep[repeated] = False
    return {name: values[keep] for name, values in columns.items()}


def _without_moves_to_live_queues(state: ShardState, columns: dict[str, Array]) -> dict[str, Array]:
    """Leave out the moves that receives show in queues that are no dead-letter queues: of messages that were redriven there."""
    by_receive = nonzero((columns["flags"] & BY_RECEIVE) != 0)
    if not len(by_receive):
        return columns
    arrives = columns["code"][by_receive] == ARRIVED
    there = np.where(arrives, columns["queue"][by_receive], columns["peer"][by_receive])
    keep = np.ones(len(columns["key"]), dtype=bool)
    # A dead-letter queue that is not tracked has no number.
    keep[by_receive] = (there < 0) | state.queues.column("dead_letter")[there]
    return columns if keep.all() else {name: values[keep] for name, values in columns.items()}


def _without_known_moves(state: ShardState, columns: dict[str, Array], settings: Settings) -> dict[str, Array]:
    """Leave out the moves that follow from receives of dead letters whose arrival is known, once their source has forgotten them.

    Each receive in a dead-letter queue names the source queue, however long ago the move was: it would count as another move.
    """
    hit = nonzero((columns["code"] == DEAD_LETTERED) & ((columns["flags"] & BY_RECEIVE) != 0))
    if not len(hit) or not state.rows.has("arrived"):
        return columns
    rows = state.rows
    there, found = rows.find(row_key(columns["hi"][hit], columns["lo"][hit], state.queues.hashes[columns["peer"][hit]]))
    hit, there = hit[found], there[found]
    hit = hit[(rows.at("arrived", there) > 0) & (rows.at("ended", there) == 0)]
    # Ended messages may be compacted.
    restore_rows(state, np.unique(columns["key"][hit]), settings)
    _, remembered = find_remembered(state, columns["key"][hit], settings)
    if remembered.all():
        return columns
    keep = np.ones(len(columns["key"]), dtype=bool)
    keep[hit[~remembered]] = False
    return {name: values[keep] for name, values in columns.items()}


def _id_bytes(events: Events, text: Array) -> Array:
    """Return the length in bytes of each message's id, 0 for those that are not stored as text."""
    if not len(events.texts):
        return np.zeros(len(text), dtype=np.int64)
    lengths, _ = text_columns(events.texts)
    return np.where(text >= 0, lengths[text], 0)


def _remember_texts(state: ShardState, events: Events, rows: Array, text: Array) -> None:
    has_text = text >= 0
    if has_text.any():
        state.rows.put("text", rows[has_text], (len(state.texts) + np.arange(has_text.sum())).astype(np.int32))
        state.texts = pa.concat_arrays([state.texts, events.texts.take(pa.array(text[has_text]))])


def _epochs(state: ShardState, columns: dict[str, Array], starts: Array, rows: Array) -> Array | None:
    """Return, per event, how often its message was redelivered after an end before it, or None when no message was."""
    code, at = columns["code"], columns["at"]
    is_end = code >= FIRST_END
    # A message that has a new id was redriven once: a later report of that is another one of the same redrive.
    enters = ((code == RECEIVED) & ~columns["came_earlier"]) | (code == ARRIVED) | returns(columns)
    ended = state.rows.at("ended", rows)
    has_end = np.logical_or.reduceat(is_end, starts) | (ended > 0)
    lengths = np.diff(np.append(starts, len(code)))
    candidates = nonzero(np.repeat(has_end, lengths) & (is_end | enters))
    if not len(candidates):
        return None
    segment = np.repeat(np.arange(len(starts)), lengths)
    epochs = np.zeros(len(code), dtype=np.int64)
    reopened = False
    by_receive = (code == DEAD_LETTERED) & ((columns["flags"] & BY_RECEIVE) != 0)
    was_shown, was_settled = was_moved_by_receive(state, rows), _was_settled_here(state, rows)
    current, last_end, open_end, shown, settled = -1, 0, False, False, False
    # Few messages are delivered again after they end in a step; this loop sees only events of such messages.
    quick = _may_reopen(segment[candidates], at[candidates], is_end[candidates], ended)
    for i in candidates[quick].tolist():
        if segment[i] != current:
            current = int(segment[i])
            last_end = int(ended[current])
            open_end = last_end > 0
            shown, settled = bool(was_shown[current]), bool(was_settled[current])
        if is_end[i]:
            shown = bool(by_receive[i]) and (shown or not open_end)
            settled = int(code[i]) in _SETTLES and (settled or not open_end)
            last_end, open_end = max(last_end, int(at[i])), True
        elif open_end and at[i] > last_end + _tolerance(int(code[i]), shown=shown, settled=settled):
            reopened = True
            epochs[i] += 1
            open_end = False
    if not reopened:
        return None
    totals = np.cumsum(epochs)
    before = totals[starts] - epochs[starts]
    result: Array = totals - np.repeat(before, lengths)
    return result


def _tolerance(code: int, *, shown: bool, settled: bool) -> int:
    """Return how long after its end a delivery or an arrival may be dated that was before it, by another clock.

    `shown`: the end is a move that a receive in the dead-letter queue showed, dated by who received it there. `settled`: the
    message was settled or lost here and not redriven. If this is a dead-letter queue, its arrival may be reported later.
    """
    return CLOCKS_DIFFER_MS if (code == RECEIVED and shown) or (code == ARRIVED and settled) else 0


def _was_settled_here(state: ShardState, rows: Array) -> Array:
    """Return which messages were settled or lost in their queue, and not moved."""
    flags = state.rows.at("flags", rows) & np.uint32(F_ENDED)
    result: Array = (flags != 0) & ((flags & ~np.uint32(F_DELETED | F_EXPIRED | F_DROPPED)) == 0)
    return result


def _may_reopen(segment: Array, at: Array, is_end: Array, ended: Array) -> Array:
    """Select, among ends and entries, those of messages that have an entry after an end."""
    latest_entry = np.zeros(len(ended), dtype=np.int64)
    np.maximum.at(latest_entry, segment[~is_end], at[~is_end])
    first_end = np.where(ended > 0, ended, NEVER)
    np.minimum.at(first_end, segment[is_end], at[is_end])
    result: Array = (latest_entry > first_end)[segment]
    return result


def _reopen(state: ShardState, rows: Array, *, anew: Array) -> None:
    """Reopen ended messages that were delivered again: they are live, and may end and be counted again.

    A message that was moved back here (`anew`) starts over: its receives count from one.
    """
    live = state.rows
    flags = live.at("flags", rows)
    was_presumed = ((flags & np.uint32(F_ENDED)) == F_RECONCILED) | has_run_out(state, rows)
    count_rows(state, rows[was_presumed], T_FOUND_LATER)
    # Remember the former end by its time before its flag is cleared: its event may be repeated.
    ended = live.at("ended", rows)
    for code, flag, _ in COUNTED_ENDS:
        was = (flags & flag) != 0
        if was.any():
            add_fingerprints(state, fingerprint(live.key[rows[was]], ended[was], np.uint64(code), np.uint64(0)), ended[was])
    kind, is_move = outdated_end_of(flags)
    known = kind > 0
    remember_outdated_ends(state, rows[known], ended[known], kind[known], is_move[known])
    live.put("ended", rows, 0)
    live.put("ended_noticed", rows, 0)
    live.put("flags", rows, flags & ~np.uint32(F_ENDED | F_MOVE_REPORTED | F_MOVE_INFERRED | F_TARGET_UNNAMED))
    forget_losses(state, live.key[rows[outdated_losses(state, rows) == 0]])
    if anew.any():
        forget(state, rows[anew])
