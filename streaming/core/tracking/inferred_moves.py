"""Infer unreported moves to a dead-letter queue from exhausted receives and falling counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from streaming.core.columns import Array, nonzero
from streaming.core.events.events import RELEASED
from streaming.core.hashing import queue_hash
from streaming.core.settings import Settings
from streaming.core.state.queue_row import QueueRow
from streaming.core.state.queues import (
    NEVER,
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
    F_ENTERED,
    F_MOVE_INFERRED,
    F_PLACEHOLDER,
    F_RECONCILED,
    F_REDRIVEN,
    F_SENT_KNOWN,
    keys_of,
)
from streaming.core.state.state import ShardState
from streaming.core.state.tombstones import restore_rows
from streaming.core.tracking.admission import has_capacity
from streaming.core.tracking.ends import count_totals, end, forget
from streaming.core.tracking.windows import window_ends


def infer_moves(state: ShardState, now: int, settings: Settings) -> None:
    """Dead-letter messages whose receives are used up, whose window is over and whose queue's depth has fallen.

    SQS moves a message at the receive that would be one too many, and reports it to no one. The broker's own counts show that
    such a receive happened. They reach every shard, while the receives of other messages may be known only in other shards.

    A late report of a deletion would contradict that, so it waits for two visibility timeouts, at least a minute, unless the
    counts of the dead-letter queue show the move too. In an ordered queue a later message of the group that is settled after the
    window shows it as well: it is received only once those before it are gone.
    """
    while _infer_more(state, now, settings):
        # The moves may show that of another message of their group.
        pass


def _infer_more(state: ShardState, now: int, settings: Settings) -> bool:
    """Infer the moves that can be seen now. Returns True when any dead letters were added."""
    rows = state.rows
    queues = state.queues
    limits = queues.limit("max_receive_count", settings)
    suspects = (limits > 0) & (queues.column("counted_at") > 0) & (queues.limit("dead_letter_queue", settings) > 0)
    if not suspects.any():
        return False
    # Few messages are received as often as the lowest limit.
    candidates = nonzero((rows["receive_count"] >= limits[limits > 0].min()) & (rows["ended"] == 0))
    queue = rows.at("queue", candidates)
    used_up = rows.at("receive_count", candidates) >= limits[queue]
    candidates = candidates[used_up & suspects[queue]]
    if not len(candidates):
        return False
    candidates = candidates[np.argsort(rows.at("queue", candidates), kind="stable")]
    over = window_ends(state, settings, candidates)
    queue, group = rows.at("queue", candidates), rows.at("group", candidates)
    # One that was given back may be from the same batch as a later message that is settled after that.
    kept_order = state.queues.keeps_order(settings)[queue] & (group >= 0) & (rows.at("window_code", candidates) != RELEASED)
    followed = kept_order & (np.append(state.groups.time, 0)[group] > over)
    moved: list[tuple[QueueRow, Array, Array]] = []
    for in_queue in np.split(np.arange(len(queue)), nonzero(np.diff(queue)) + 1):
        record = state.queues[int(queue[in_queue[0]])]
        wait_ms = max(2 * min(visibility_ms(record, settings), 3_600_000), 60_000)
        # The broker's counts give the same answer for all messages whose windows ended between two of them.
        between = np.searchsorted([depth.at for depth in record.depths], over[in_queue], side="right")
        left = _left_from(record.depths)
        waited = (now - over[in_queue] >= wait_ms) | (over[in_queue] < min(_shown_until(state, record, settings), now))
        hit = in_queue[waited & (left[between] | followed[in_queue])]
        end(state, candidates[hit], over[hit], F_DEAD_LETTERED | F_MOVE_INFERRED, T_DEAD_LETTERED)
        record.last_settled_at = max(record.last_settled_at, int(over[hit].max(initial=0)))
        moved.append((record, rows.key[candidates[hit]], over[hit]))
    # Not earlier: inserting rows moves the candidates.
    added = [add_dead_letters(state, record, keys, arrived, settings) for record, keys, arrived in moved]
    return any(added)


def add_dead_letters(state: ShardState, source: QueueRow, keys: Array, arrived: Array, settings: Settings) -> bool:
    """Add messages with an inferred move to the dead-letter queue, with its expiry time. Returns True when any were added.

    An ordered queue may be in another shard: there, placeholders are added (see `placeholder_rows`).
    """
    name = dead_letter_queue(source, settings)
    if not name or not len(keys) or not has_capacity(state, source.name.sibling(name), settings):
        return False
    target = state.queue_number(source.name.sibling(name))
    there = state.queues[target]
    ordered = state.queues.is_ordered(settings)
    apart = np.uint32(F_PLACEHOLDER if ordered[source.place] or ordered[target] else 0)
    there.report_dead_letters()
    rows = state.rows
    at, _ = rows.find(keys)
    copied = {column: rows.at(column, at) for column in ("hi", "lo", "sent", "flags", "receive_count")}
    texts = rows.at("text", at)
    if ordered[target]:
        # An ordered dead-letter queue gives a message a new send time when it arrives.
        copied["sent"], copied["flags"] = arrived, copied["flags"] | np.uint32(F_SENT_KNOWN)
    new = keys_of(copied["hi"], copied["lo"], np.full(len(at), queue_hash(there.name), dtype=np.uint64), apart)
    order = np.argsort(new)
    restore_rows(state, new[order], settings)
    place, found = rows.find(new[order])
    # One that had left the dead-letter queue comes again: by a redrive, or it was not there. It was seen there last if more of
    # its deliveries were counted there: SQS goes on counting after a move.
    ended, flags = rows.at("ended", place[found]), rows.at("flags", place[found])
    returned = (flags & np.uint32(F_REDRIVEN)) != 0
    was_not_there = (flags & np.uint32(F_RECONCILED)) != 0
    was_not_there &= rows.at("receive_count", place[found]) <= copied["receive_count"][order[found]]
    comes = ~found
    comes[found] = (ended > 0) & (ended <= arrived[order[found]]) & (returned | was_not_there)
    order, place, found = order[comes], place[comes], found[comes]
    if not len(order):
        return False
    forget(state, place[found])
    rows.insert(place[~found], new[order[~found]])
    here, _ = rows.find(new[order])
    for column in ("hi", "lo", "sent", "receive_count"):
        rows.put(column, here, copied[column][order])
    known = copied["flags"][order] & np.uint32(F_SENT_KNOWN)
    rows.put("queue", here, target)
    rows.put("flags", here, known | np.uint32(F_ARRIVED | F_ARRIVED_INFERRED | F_ENTERED) | apart)
    rows.put("arrived", here, arrived[order])
    rows.put("parent", here, keys[order])
    rows.put("origin", here, source.place)
    _copy_texts(state, here, texts[order])
    count_totals(state, here, T_ARRIVED)
    there.messages_seen = True
    there.last_event_at = max(there.last_event_at, int(arrived.max()))
    return True


def _copy_texts(state: ShardState, here: Array, texts: Array) -> None:
    """Give new rows their own ids: a text belongs to one row."""
    with_text = nonzero(texts >= 0)
    if len(with_text):
        copied = state.texts.take(pa.array(texts[with_text]))
        state.rows.put("text", here[with_text], (len(state.texts) + np.arange(len(with_text))).astype(np.int32))
        state.texts = pa.concat_arrays([state.texts, copied])


def _shown_until(state: ShardState, source: QueueRow, settings: Settings) -> int:
    """Return the time (epoch milliseconds) before which a window must have ended for the counts of both queues to show the move.

    They show it if the dead-letter queue was deeper afterwards than ever before, and nothing was visible in the source: a
    message that is neither in flight nor visible is gone.
    """
    name = dead_letter_queue(source, settings)
    target = state.queues.index.get(source.name.sibling(name)) if name else None
    depths = [] if target is None else state.queues[target].depths
    deepest = accumulate((depth.unsettled for depth in depths), max)
    risen_at = max((depth.at for depth, before in zip(depths[1:], deepest, strict=False) if depth.unsettled > before), default=0)
    return min(risen_at, max((depth.at for depth in source.depths if depth.visible == 0), default=0))


def _left_from(depths: Sequence[Depth]) -> Array:
    """Return, for each count by the broker and for none after the last, whether consumers received and messages left since.

    That is so when nothing is visible any more, or less than before (deletions do not change that), and at that count or a later
    one there are fewer messages than at the count before.

    One count that meets this is enough, whatever later counts say: the inference must not depend on which counts had arrived
    when it was drawn.
    """
    visible = np.array([depth.visible for depth in depths], dtype=np.int64)
    unsettled = np.array([depth.unsettled for depth in depths], dtype=np.int64)
    left = np.zeros(len(depths) + 1, dtype=bool)
    if len(depths) < 2:
        return left
    # The fewest of each count and those after it, and the first count at or after each that shows a receive by itself.
    fewest = np.append(np.minimum.accumulate(unsettled[::-1])[::-1], NEVER)
    fell = np.append(False, visible[1:] < visible[:-1]) | (visible == 0)
    places = np.where(fell, np.arange(len(depths)), len(depths))
    shown = np.append(np.minimum.accumulate(places[::-1])[::-1], len(depths))
    # A fall to the first count may have been before the window ended.
    first = np.where(visible == 0, np.arange(len(depths)), shown[1:])
    left[1:-1] = fewest[first[1:]] < unsettled[:-1]
    return left
