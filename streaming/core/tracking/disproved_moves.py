"""Moves to a dead-letter queue that a later delivery in the source queue disproves."""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.settings import Settings
from streaming.core.state.queues import T_RECONCILED
from streaming.core.state.rows import F_DEAD_LETTERED, F_ENDED, F_PLACEHOLDER, F_PURGED, F_RECONCILED
from streaming.core.state.state import ShardState
from streaming.core.tracking.ends import end, find_remembered


def drop_disproved(state: ShardState, heard_of: Array, settings: Settings) -> None:
    """Drop the dead letters whose latest delivery was in their source queue, after they arrived, and that were not moved again.

    `heard_of` are the keys, ascending, of the messages with events in this step: only they and their dead letters can be
    concerned. A purge of the dead-letter queue did not remove such a message: it was not there.
    """
    rows = state.rows
    if not len(heard_of) or not rows.has("parent"):
        return
    hit = nonzero(rows["parent"])
    hit = hit[_among(heard_of, rows.at("parent", hit)) | _among(heard_of, rows.key[hit])]
    flags = rows.at("flags", hit)
    is_open = (rows.at("ended", hit) == 0) | ((flags & np.uint32(F_ENDED)) == F_PURGED)
    # An ordered queue is in another shard: only a placeholder is in the shard of its original.
    ordered = state.queues.is_ordered(settings)
    apart = (ordered[rows.at("queue", hit)] | ordered[rows.at("origin", hit)]) & ((flags & np.uint32(F_PLACEHOLDER)) == 0)
    hit = hit[is_open & ~apart]
    originals, found = find_remembered(state, rows.at("parent", hit), settings)
    hit, originals = hit[found], originals[found]
    received = rows.at("last_received", originals)
    # The latest move of one that was moved several times may be later than the arrival, the first that is known.
    moved = (rows.at("flags", originals) & np.uint32(F_ENDED)) == F_DEAD_LETTERED
    gone = ~moved & (received > rows.at("arrived", hit)) & (received > rows.at("last_received", hit))
    end(state, hit[gone], received[gone], F_RECONCILED, T_RECONCILED)


def _among(keys: Array, wanted: Array) -> Array:
    """Return which of `wanted` are among `keys`, which ascend."""
    found: Array = keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted
    return found
