"""Moves to a dead-letter queue that nobody reported, concluded from receives that are used up and counts that fell."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streaming.core.columns import Array
from streaming.core.events.events import queue_hash
from streaming.core.hashing import row_key
from streaming.core.settings import Settings
from streaming.core.state.frozen import thaw
from streaming.core.state.queue_table import QueueRow
from streaming.core.state.queues import (
    T_ARRIVED,
    T_DEAD_LETTERED,
    Depth,
    dead_letter_queue,
    visibility_ms,
)
from streaming.core.state.rows import (
    F_ARRIVED,
    F_ARRIVED_INFERRED,
    F_DEAD_LETTERED,
    F_MOVE_INFERRED,
    F_SENT_KNOWN,
)
from streaming.core.state.state import ShardState
from streaming.core.tracking.ends import count_totals, end, find_remembered
from streaming.core.tracking.windows import window_ends


def conclude_moves(state: ShardState, now: int, settings: Settings) -> None:
    """Dead-lettered though nobody said so: its receives are used up, its window is over, and the queue's depth has fallen.

    SQS moves a message at the receive that would be one too many and tells nobody. The broker's own counts show that such a
    receive happened: they reach every shard, while the receives of others may be known to others only.
    """
    rows = state.rows
    queues = state.queues
    limits = queues.limit("max_receive_count", settings)
    suspects = (limits > 0) & (queues.column("counted_at") > 0) & (queues.limit("dead_letter_queue", settings) > 0)
    if not suspects.any():
        return
    # Few messages are received as often as the lowest limit.
    candidates = np.flatnonzero((rows["receive_count"] >= limits[limits > 0].min()) & (rows["ended"] == 0))
    queue = rows.at("queue", candidates)
    used_up = rows.at("receive_count", candidates) >= limits[queue]
    candidates = candidates[used_up & suspects[queue]]
    if not len(candidates):
        return
    candidates = candidates[np.argsort(rows.at("queue", candidates), kind="stable")]
    over = window_ends(state, settings)[candidates]
    queue = rows.at("queue", candidates)
    for mine in np.split(np.arange(len(queue)), np.flatnonzero(np.diff(queue)) + 1):
        record = state.queues[int(queue[mine[0]])]
        wait_ms = max(2 * min(visibility_ms(record, settings), 3_600_000), 60_000)
        # The broker's word is the same on all whose windows ended between two of its counts.
        between = np.searchsorted([depth.at for depth in record.depths], over[mine], side="right")
        left = np.array([_left_between(record.depths[:n], record.depths[n:]) for n in range(len(record.depths) + 1)])
        hit = mine[(now - over[mine] >= wait_ms) & left[between]]
        end(state, candidates[hit], over[hit], F_DEAD_LETTERED | F_MOVE_INFERRED, T_DEAD_LETTERED)
        record.last_settled_at = max(record.last_settled_at, int(over[hit].max(initial=0)))
        keys, arrived = rows.key[candidates[hit]], over[hit]
        if _add_dead_letters(state, record, keys, arrived, settings):
            # Rows were inserted: the other queues' candidates stand elsewhere now.
            conclude_moves(state, now, settings)
            return


def _add_dead_letters(state: ShardState, source: QueueRow, keys: Array, arrived: Array, settings: Settings) -> bool:
    """Messages whose move was concluded become rows of the dead-letter queue, with its expiry clock. True when any did.

    Ordered queues are left out: the two may be in different shards.
    """
    name = dead_letter_queue(source, settings)
    if not name or not len(keys):
        return False
    target = state.queue_number(source.name.sibling(name))
    there = state.queues[target]
    ordered = state.queues.is_ordered(settings)
    if ordered[source.place] or ordered[target]:
        return False
    there.dead_letter = True
    rows = state.rows
    at, _ = rows.find(keys)
    copied = {column: rows.at(column, at) for column in ("hi", "lo", "sent", "flags", "receive_count", "group")}
    texts = rows.at("text", at)
    new = row_key(copied["hi"], copied["lo"], np.full(len(at), queue_hash(there.name), dtype=np.uint64))
    order = np.argsort(new)
    thaw(state, new[order], settings)
    place, found = find_remembered(state, new[order], settings)
    order, place = order[~found], place[~found]
    _, stale = rows.find(new[order])
    order, place = order[~stale], place[~stale]
    if not len(order):
        return False
    rows.insert(place, new[order])
    here = place + np.arange(len(order))
    for column in ("hi", "lo", "sent", "receive_count"):
        rows.put(column, here, copied[column][order])
    known = copied["flags"][order] & np.uint32(F_SENT_KNOWN)
    rows.put("queue", here, target)
    rows.put("flags", here, known | np.uint32(F_ARRIVED | F_ARRIVED_INFERRED))
    rows.put("arrived", here, arrived[order])
    rows.put("parent", here, keys[order])
    rows.put("origin", here, source.place)
    _copy_texts(state, here, texts[order])
    count_totals(state, here, T_ARRIVED)
    there.messages_seen = True
    there.last_event_at = max(there.last_event_at, int(arrived.max()))
    return True


def _copy_texts(state: ShardState, here: Array, texts: Array) -> None:
    """Give new rows ids of their own: a text belongs to one row."""
    told = np.flatnonzero(texts >= 0)
    if len(told):
        copied = state.texts.take(pa.array(texts[told]))
        state.rows.put("text", here[told], (len(state.texts) + np.arange(len(told))).astype(np.int32))
        state.texts = pa.concat_arrays([state.texts, copied])


def _left_between(before: list[Depth], after: list[Depth]) -> bool:
    """Whether somebody received between these counts of the broker, and messages went: nothing is visible any more, or less than
    was (deletions change nothing there); and it counted fewer than when it last counted before.

    One count after which this held is enough, whatever was counted later: what is concluded must not depend on which counts had
    come in when it was asked.
    """
    if not before or not after:
        return False
    received, visible = False, after[0].visible
    for depth in after:
        received = received or depth.visible == 0 or depth.visible < visible
        visible = depth.visible
        if received and depth.unsettled < before[-1].unsettled:
            return True
    return False
