"""Messages that turn up in dead-letter queues: that they arrived, what ends with it, and when they were sent."""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array
from streaming.core.events.events import queue_hash
from streaming.core.hashing import row_key
from streaming.core.settings import Settings
from streaming.core.state.frozen import forgotten, thaw, thaw_queues
from streaming.core.state.queues import (
    T_ARRIVED,
    T_DEAD_LETTERED,
)
from streaming.core.state.rows import (
    F_ARRIVED,
    F_ARRIVED_BY_RECEIVE,
    F_DEAD_LETTERED,
    F_PURGED,
    F_RECONCILED,
    F_REDRIVEN,
    F_SENT,
    F_SENT_KNOWN,
)
from streaming.core.state.state import ShardState
from streaming.core.tracking.durations import first_received
from streaming.core.tracking.ends import count_totals, end, find_remembered


def notice_dead_letters(state: ShardState, settings: Settings) -> None:
    """Whatever turns up in a dead-letter queue arrived there, though nobody reported the move: it was sent there by an
    application, or is seen at its first receive. Where it came from it is no more."""
    dead = state.queues.column("dead_letter")
    if not dead.any():
        return
    thaw_queues(state, np.flatnonzero(dead).tolist(), settings)
    rows = state.rows
    hit = np.flatnonzero(dead[rows["queue"]])
    flags = rows.at("flags", hit)
    known = (flags & (F_ARRIVED | F_REDRIVEN | F_RECONCILED | F_PURGED)) != 0
    seen = ((flags & F_SENT) != 0) | (rows.at("last_received", hit) > 0)
    news = ~known & seen & ~forgotten(state, rows.at("ended", hit), settings)
    hit, flags = hit[news], flags[news]
    if not len(hit):
        return
    was_sent = (flags & F_SENT) != 0
    arrived = np.where(was_sent, rows.at("sent", hit), first_received(state, hit))
    rows.put("arrived", hit, arrived)
    rows.put("flags", hit, flags | np.where(was_sent, F_ARRIVED, F_ARRIVED | F_ARRIVED_BY_RECEIVE).astype(np.uint32))
    count_totals(state, hit, T_ARRIVED)
    _end_originals(state, hit[~was_sent], arrived[~was_sent], settings)


def _end_originals(state: ShardState, hit: Array, arrived: Array, settings: Settings) -> None:
    """End what is left of these dead letters in the queues that name their queue as dead-letter queue."""
    rows = state.rows
    hit_keys = rows.key[hit]
    if not len(hit):
        return
    ordered = state.queues.is_ordered(settings)
    for number in np.flatnonzero(state.queues.limit("dead_letter_queue", settings)).tolist():
        source = state.queues[number]
        there = source.attribute("dead_letter_queue")
        target = state.queues.index.get(source.name.sibling(there)) if isinstance(there, str) else None
        if target is None or ordered[number] or ordered[target]:
            # An ordered queue is in a shard of its own: what became of a message in the other cannot be told here.
            continue
        mine = np.flatnonzero(rows.at("queue", hit) == target)
        keys = row_key(
            rows.at("hi", hit[mine]), rows.at("lo", hit[mine]), np.full(len(mine), queue_hash(source.name), dtype=np.uint64)
        )
        if thaw(state, np.unique(keys), settings):
            hit, _ = rows.find(hit_keys)
        originals, found = find_remembered(state, keys, settings)
        mine, originals, keys = mine[found], originals[found], keys[found]
        rows.put("parent", hit[mine], keys)
        rows.put("origin", hit[mine], np.full(len(mine), number, dtype=np.int32))
        open_ = (rows.at("ended", originals) == 0) & (rows.at("last_received", originals) <= arrived[mine])
        end(state, originals[open_], arrived[mine][open_], F_DEAD_LETTERED, T_DEAD_LETTERED)


def share_send_times(state: ShardState, settings: Settings) -> None:
    """A dead letter was sent when its original was: looked up in the queue it came from, while that is remembered."""
    rows = state.rows
    if not rows.has("parent"):
        return
    thaw(state, np.unique(rows["parent"][_with_original(state, settings)]), settings)
    here = _with_original(state, settings)
    if not len(here):
        return
    there, found = find_remembered(state, rows["parent"][here], settings)
    here, there = here[found], there[found]
    told = (rows.at("flags", there) & F_SENT_KNOWN) != 0
    here, there = here[told], there[told]
    flags = rows.at("flags", here)
    sent = rows.at("sent", there)
    known = (flags & F_SENT_KNOWN) != 0
    rows.put("sent", here, np.where(known, np.minimum(rows.at("sent", here), sent), sent))
    rows.put("flags", here, flags | np.uint32(F_SENT_KNOWN))


def _with_original(state: ShardState, settings: Settings) -> Array:
    """Rows of dead letters of late whose originals can be looked up."""
    rows = state.rows
    ordered = state.queues.is_ordered(settings)
    moved = np.flatnonzero(rows["parent"])
    young = rows.at("arrived", moved) >= state.high_water - settings.lateness_ms
    # An ordered queue is in a shard of its own: what it knows of a message cannot be looked up from another.
    apart = ordered[rows.at("queue", moved)] | ordered[rows.at("origin", moved)]
    result: Array = moved[young & ~apart]
    return result
