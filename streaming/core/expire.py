"""What ends without an event: retention, purges, moves nobody saw, messages the broker no longer has."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streaming.core.beyond_counts import beyond_counts
from streaming.core.columns import Array
from streaming.core.durations import first_received
from streaming.core.events import queue_hash
from streaming.core.failures import count_failures
from streaming.core.frozen import forgotten, thaw, thaw_queues
from streaming.core.hashing import row_key
from streaming.core.queue_table import QueueRow
from streaming.core.queues import (
    T_ARRIVED,
    T_DEAD_LETTERED,
    T_EXPIRED,
    T_RECONCILED,
    Depth,
    dead_letter_queue,
    visibility_ms,
)
from streaming.core.rows import (
    F_ARRIVED,
    F_ARRIVED_BY_RECEIVE,
    F_ARRIVED_INFERRED,
    F_DEAD_LETTERED,
    F_DROPPED,
    F_EXPIRED,
    F_MOVE_INFERRED,
    F_PURGED,
    F_RECONCILED,
    F_REDRIVEN,
    F_SENT,
    F_SENT_KNOWN,
)
from streaming.core.settings import Settings
from streaming.core.state import ShardState
from streaming.core.windows import window_ends


def find_remembered(state: ShardState, keys: Array, settings: Settings) -> tuple[Array, Array]:
    """For each key the row it is or would be at, and whether it is there and not as good as forgotten."""
    at, found = state.rows.find(keys)
    found[found] = ~forgotten(state, state.rows.at("ended", at[found]), settings)
    return at, found


def settle_by_time(state: ShardState, now: int, settings: Settings) -> None:
    """End what ended without an event, as of `now`."""
    if not state.messages:
        return
    _notice_dead_letters(state, settings)
    _share_send_times(state, settings)
    _purge(state)
    _conclude_moves(state, now, settings)
    _run_out(state, now, settings)
    _reconcile(state, settings)
    _forget_beyond_counts(state)
    count_failures(state, now, settings)
    _notice(state, now)


def _notice_dead_letters(state: ShardState, settings: Settings) -> None:
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
        _end(state, originals[open_], arrived[mine][open_], F_DEAD_LETTERED, T_DEAD_LETTERED)


def _share_send_times(state: ShardState, settings: Settings) -> None:
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


def _purge(state: ShardState) -> None:
    purged = state.queues.column("purged_at")
    if not purged.any():
        return
    rows = state.rows
    at = purged[rows["queue"]]
    hit = np.flatnonzero((at > 0) & (rows["ended"] == 0) & (rows["sent"] <= at) & (rows["last_received"] <= at))
    _end(state, hit, at[hit], F_PURGED)


def _run_out(state: ShardState, now: int, settings: Settings) -> None:
    """Retention. It runs from the original send; in an ordered dead-letter queue from the arrival there."""
    rows = state.rows
    if not len(rows):
        return
    shortest = int(state.queues.limit("retention_ms", settings).min())
    old = rows["sent"] + shortest <= now
    if rows.has("arrived"):
        old |= rows["arrived"] > 0
    hit = np.flatnonzero(old & (rows["ended"] == 0))
    expires = expiry(state, hit, settings)
    over = expires <= now
    _end(state, hit[over], expires[over], F_EXPIRED, T_EXPIRED)


def expiry(state: ShardState, rows: Array, settings: Settings) -> Array:
    """When the retention of some rows' messages runs out."""
    live = state.rows
    queue, base = live.at("queue", rows), live.at("sent", rows)
    if live.has("arrived"):
        arrived = live.at("arrived", rows)
        base = np.where((arrived > 0) & state.queues.is_ordered(settings)[queue], arrived, base)
    result: Array = base + state.queues.limit("retention_ms", settings)[queue]
    return result


def _reconcile(state: ShardState, settings: Settings) -> None:
    """The broker has counted nothing for long enough: what was last heard of before that is not there any more."""
    queues = state.queues
    after_ms = queues.limit("reconcile_after_ms", settings)
    since, until = queues.column("empty_since"), queues.column("counted_at")
    long_empty = (since >= 0) & (until - since >= after_ms)
    if not long_empty.any():
        return
    # Most queues of a shard may be empty, and most of its rows in the others: one pass finds the few rows it is about.
    until = np.where(long_empty, until, 0)
    delayed_told = queues.column("counted_delayed") >= 0
    rows = state.rows
    mine = np.flatnonzero((until > 0)[rows["queue"]] & (rows["ended"] == 0))
    queue = rows.at("queue", mine)
    heard = np.maximum.reduce([rows.at(name, mine) for name in ("sent", "last_received", "window_at", "arrived")])
    # Where the broker did not say how many are delayed, a delayed one may well be there.
    gone = delayed_told[queue] | (rows.at("delay", mine) <= until[queue])
    hit = mine[gone & (until[queue] - heard >= after_ms[queue])]
    _end(state, hit, until[rows.at("queue", hit)], F_RECONCILED, T_RECONCILED)


def _conclude_moves(state: ShardState, now: int, settings: Settings) -> None:
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
        _end(state, candidates[hit], over[hit], F_DEAD_LETTERED | F_MOVE_INFERRED, T_DEAD_LETTERED)
        record.last_settled_at = max(record.last_settled_at, int(over[hit].max(initial=0)))
        keys, arrived = rows.key[candidates[hit]], over[hit]
        if _add_dead_letters(state, record, keys, arrived, settings):
            # Rows were inserted: the other queues' candidates stand elsewhere now.
            _conclude_moves(state, now, settings)
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


def _forget_beyond_counts(state: ShardState) -> None:
    """Let go of messages that were only ever sent and that the broker's counts leave no room for."""
    gone, at = beyond_counts(state)
    _end(state, gone, at, F_RECONCILED, T_RECONCILED)


def _notice(state: ShardState, now: int) -> None:
    """Date what a signal of its own will be about: it may have happened long before it was known."""
    rows = state.rows
    hit = [("ended_noticed", (rows["flags"] & (F_EXPIRED | F_DROPPED | F_MOVE_INFERRED)) != 0)]
    if rows.has("arrived"):
        hit.append(("arrived_noticed", rows["arrived"] > 0))
    for column, happened in hit:
        at = np.flatnonzero(happened)
        rows.put(column, at[rows.at(column, at) == 0], now)


def _end(state: ShardState, rows: Array, at: Array, flag: int, total: int | None = None) -> None:
    if not len(rows):
        return
    live = state.rows
    live.put("ended", rows, at)
    flags = live.at("flags", rows)
    live.put("flags", rows, flags | np.uint32(flag))
    group = live.at("group", rows)
    np.maximum.at(state.groups.time, group[group >= 0], at[group >= 0])
    if total is not None:
        count_totals(state, rows, total)


def count_totals(state: ShardState, rows: Array, total: int) -> None:
    """Count these rows' messages in one of the running totals of their queues."""
    state.queues.count(state.rows.at("queue", rows), total)
