"""Reported moves to a dead-letter queue that do not say to which: it is the one that the source queue is known to have."""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.events.events import DEAD_LETTERED, Events
from streaming.core.events.flags import PRIMARY
from streaming.core.events.moves import with_targets
from streaming.core.settings import QueueName, Settings
from streaming.core.state.queues import dead_letter_queue
from streaming.core.state.rows import (
    F_ARRIVED_INFERRED,
    F_PLACEHOLDER,
    F_SENT_KNOWN,
    F_TARGET_UNNAMED,
    keys_of,
)
from streaming.core.state.state import ShardState
from streaming.core.state.tombstones import forgotten
from streaming.core.tracking.inferred_moves import add_dead_letters


def name_targets(state: ShardState, events: Events, settings: Settings) -> Events:
    """Complete the moves of which the dead-letter queue is known, as if their events named it.

    Not those from or to an ordered queue, whose messages are in another shard: see `add_unnamed_dead_letters`.
    """
    columns = events.columns
    hit = nonzero((columns["code"] == DEAD_LETTERED) & ((columns["flags"] & PRIMARY) != 0) & (columns["peer"] < 0))
    if not len(hit):
        return events
    sources = {queue: state.queue_number(events.queues[queue]) for queue in np.unique(columns["queue"][hit]).tolist()}
    # Not earlier: some of the sources may be new.
    ordered = state.queues.is_ordered(settings)
    targets: dict[int, str] = {}
    for queue, source in sources.items():
        there = _target(state, source, settings)
        if there is not None and not ordered[source] and not ordered[state.queues.index[there]]:
            targets |= dict.fromkeys(hit[columns["queue"][hit] == queue].tolist(), there.queue)
    return with_targets(events, targets) if targets else events


def add_unnamed_dead_letters(state: ShardState, settings: Settings) -> None:
    """Add the dead letters of the other reported moves, once their dead-letter queue is known, as those of inferred moves."""
    rows = state.rows
    hit = nonzero((rows["flags"] & np.uint32(F_TARGET_UNNAMED)) != 0)
    if not len(hit):
        return
    hit = hit[(rows.at("ended", hit) > 0) & ~forgotten(state, rows.at("ended", hit), settings)]
    moved: list[tuple[int, Array, Array]] = []
    for source in np.unique(rows.at("queue", hit)).tolist():
        if _target(state, source, settings) is not None:
            here = hit[rows.at("queue", hit) == source]
            rows.put("flags", here, rows.at("flags", here) & ~np.uint32(F_TARGET_UNNAMED))
            moved.append((source, rows.key[here], rows.at("ended", here)))
    # Not earlier: inserting rows moves them.
    for source, keys, arrived in moved:
        add_dead_letters(state, state.queues[source], keys, arrived, settings)
        _report_arrivals(state, source, keys, arrived, settings)


def _report_arrivals(state: ShardState, source: int, keys: Array, arrived: Array, settings: Settings) -> None:
    """Record that the arrival of these messages, so far inferred, was reported, and when."""
    there = _target(state, source, settings)
    assert there is not None, "only moves with a known dead-letter queue are added"
    rows, target = state.rows, state.queues.index[there]
    ordered = state.queues.is_ordered(settings)
    apart = np.uint32(F_PLACEHOLDER if ordered[source] or ordered[target] else 0)
    at, _ = rows.find(keys)
    hashes = np.full(len(at), state.queues.hashes[target], dtype=np.uint64)
    here, found = rows.find(keys_of(rows.at("hi", at), rows.at("lo", at), hashes, apart))
    here, arrived = here[found], arrived[found]
    flags = rows.at("flags", here)
    inferred = (flags & np.uint32(F_ARRIVED_INFERRED)) != 0
    here, arrived, flags = here[inferred], arrived[inferred], flags[inferred]
    rows.put("arrived", here, arrived)
    if ordered[target]:
        rows.put("sent", here, arrived)
        flags |= np.uint32(F_SENT_KNOWN)
    rows.put("flags", here, flags & ~np.uint32(F_ARRIVED_INFERRED))


def _target(state: ShardState, source: int, settings: Settings) -> QueueName | None:
    """Return the known dead-letter queue of a queue, if it is tracked."""
    record = state.queues[source]
    name = dead_letter_queue(record, settings)
    there = record.name.sibling(name) if name else None
    return there if there in state.queues.index else None
