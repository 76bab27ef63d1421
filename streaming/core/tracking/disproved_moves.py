"""Moves to a dead-letter queue that a later delivery disproves, or shows to have happened again."""

from __future__ import annotations

import numpy as np

from streaming.core.clock import CLOCKS_DIFFER_MS
from streaming.core.columns import Array, nonzero
from streaming.core.events.events import Events
from streaming.core.settings import Settings
from streaming.core.state.queues import T_ARRIVED, T_DEAD_LETTERED, T_RECONCILED
from streaming.core.state.rows import (
    F_ARRIVED_BY_RECEIVE,
    F_ARRIVED_INFERRED,
    F_DEAD_LETTERED,
    F_ENDED,
    F_PLACEHOLDER,
    F_PURGED,
    F_RECONCILED,
    F_SENT_KNOWN,
)
from streaming.core.state.state import ShardState
from streaming.core.tracking.ends import count_totals, end, find_remembered


def correct_moves(state: ShardState, events: Events, found: Array, settings: Settings) -> None:
    """Drop the dead letters that are in their source queue, and move those again that were back there and came again.

    `events` are those of this step; `found` are the keys of the dead letters that it made known. Only messages of which something
    became known can be concerned, and their dead letters.
    """
    if not (len(events) or len(found)) or not state.rows.has("parent"):
        return
    heard_of = np.unique(np.concatenate([events.keys(), found]))
    dead_letters, originals = _with_originals(state, heard_of, settings)
    if len(dead_letters):
        _drop_disproved(state, dead_letters, originals)
        _move_again(state, dead_letters, originals)


def _drop_disproved(state: ShardState, dead_letters: Array, originals: Array) -> None:
    """Drop the dead letters whose latest delivery was in their source queue, after they arrived, and that were not moved again.

    A purge of the dead-letter queue did not remove such a message: it was not there.
    """
    rows = state.rows
    flags, seen = rows.at("flags", dead_letters), rows.at("last_received", dead_letters)
    is_open = (rows.at("ended", dead_letters) == 0) | ((flags & np.uint32(F_ENDED)) == F_PURGED)
    received = rows.at("last_received", originals)
    later = received > np.maximum(rows.at("arrived", dead_letters), seen) + CLOCKS_DIFFER_MS
    # SQS goes on counting after a move: the higher count is that of the later delivery, whatever the clocks say.
    later &= (seen == 0) | (rows.at("receive_count", dead_letters) <= rows.at("receive_count", originals))
    # The latest move of one that was moved several times may be later than the arrival, the first that is known.
    moved = (rows.at("flags", originals) & np.uint32(F_ENDED)) == F_DEAD_LETTERED
    gone = is_open & ~moved & later
    end(state, dead_letters[gone], received[gone], F_RECONCILED, T_RECONCILED)


def _move_again(state: ShardState, dead_letters: Array, originals: Array) -> None:
    """Move the messages again that were back in their source queue and were delivered in the dead-letter queue since.

    Nobody reported that move.
    """
    rows = state.rows
    arrived, seen = rows.at("arrived", dead_letters), rows.at("last_received", dead_letters)
    sent_known = (rows.at("flags", originals) & np.uint32(F_SENT_KNOWN)) != 0
    received, sent = rows.at("last_received", originals), np.where(sent_known, rows.at("sent", originals), 0)
    # A redrive that was reported renews the send time.
    was_back = (sent > arrived) | (received > arrived + CLOCKS_DIFFER_MS)
    again = (rows.at("ended", originals) == 0) & was_back & (seen > np.maximum(received, sent))
    renewed = again & sent_known
    rows.put("sent", dead_letters[renewed], sent[renewed])
    dead_letters, originals, seen = dead_letters[again], originals[again], seen[again]
    end(state, originals, seen, F_DEAD_LETTERED, T_DEAD_LETTERED)
    rows.put("arrived", dead_letters, seen)
    rows.put("arrived_noticed", dead_letters, 0)
    flags = rows.at("flags", dead_letters) & ~np.uint32(F_ARRIVED_INFERRED)
    rows.put("flags", dead_letters, flags | np.uint32(F_ARRIVED_BY_RECEIVE))
    count_totals(state, dead_letters, T_ARRIVED)


def _with_originals(state: ShardState, heard_of: Array, settings: Settings) -> tuple[Array, Array]:
    """Return the dead letters among the messages `heard_of` (ascending), or whose originals are, with the rows of those."""
    rows = state.rows
    hit = nonzero(rows["parent"])
    hit = hit[_among(heard_of, rows.at("parent", hit)) | _among(heard_of, rows.key[hit])]
    # An ordered queue is in another shard: only a placeholder is in the shard of its original.
    ordered = state.queues.is_ordered(settings)
    is_placeholder = (rows.at("flags", hit) & np.uint32(F_PLACEHOLDER)) != 0
    hit = hit[is_placeholder | ~(ordered[rows.at("queue", hit)] | ordered[rows.at("origin", hit)])]
    originals, found = find_remembered(state, rows.at("parent", hit), settings)
    return hit[found], originals[found]


def _among(keys: Array, wanted: Array) -> Array:
    """Return which of `wanted` are among `keys`, which ascend."""
    found: Array = keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted
    return found
