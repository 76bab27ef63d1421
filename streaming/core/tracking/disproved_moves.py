"""Moves to a dead-letter queue that a later delivery disproves, or shows to have happened again."""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array, nonzero
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


def drop_disproved(state: ShardState, heard_of: Array, settings: Settings) -> None:
    """Drop the dead letters whose latest delivery was in their source queue, after they arrived, and that were not moved again.

    `heard_of` are the keys, ascending, of the messages with events in this step: only they and their dead letters can be
    concerned. A purge of the dead-letter queue did not remove such a message: it was not there.
    """
    rows = state.rows
    hit, originals = _with_originals(state, heard_of, settings)
    is_open = (rows.at("ended", hit) == 0) | ((rows.at("flags", hit) & np.uint32(F_ENDED)) == F_PURGED)
    received = rows.at("last_received", originals)
    # The latest move of one that was moved several times may be later than the arrival, the first that is known.
    moved = (rows.at("flags", originals) & np.uint32(F_ENDED)) == F_DEAD_LETTERED
    gone = is_open & ~moved & (received > rows.at("arrived", hit)) & (received > rows.at("last_received", hit))
    end(state, hit[gone], received[gone], F_RECONCILED, T_RECONCILED)


def repeat_moves(state: ShardState, heard_of: Array, settings: Settings) -> None:
    """Move the messages again that were back in their source queue and were delivered in the dead-letter queue since.

    Nobody reported that move. `heard_of` are the keys, ascending, of the messages with events in this step.
    """
    rows = state.rows
    hit, originals = _with_originals(state, heard_of, settings)
    back = np.maximum(rows.at("last_received", originals), rows.at("sent", originals))
    seen = rows.at("last_received", hit)
    again = (rows.at("ended", originals) == 0) & (back > rows.at("arrived", hit)) & (seen > back)
    hit, originals, seen = hit[again], originals[again], seen[again]
    end(state, originals, seen, F_DEAD_LETTERED, T_DEAD_LETTERED)
    # A redrive renews the send time.
    sent_known = (rows.at("flags", originals) & np.uint32(F_SENT_KNOWN)) != 0
    rows.put("sent", hit[sent_known], rows.at("sent", originals[sent_known]))
    rows.put("arrived", hit, seen)
    rows.put("arrived_noticed", hit, 0)
    rows.put("flags", hit, (rows.at("flags", hit) & ~np.uint32(F_ARRIVED_INFERRED)) | np.uint32(F_ARRIVED_BY_RECEIVE))
    count_totals(state, hit, T_ARRIVED)


def _with_originals(state: ShardState, heard_of: Array, settings: Settings) -> tuple[Array, Array]:
    """Return the dead letters among the messages `heard_of`, or whose originals are, with the rows of those."""
    rows = state.rows
    if not len(heard_of) or not rows.has("parent"):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
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
