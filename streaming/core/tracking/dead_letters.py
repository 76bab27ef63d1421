"""Messages that appear in dead-letter queues: record their arrival, end the originals and share their send times."""

from __future__ import annotations

from typing import Final

import numpy as np

from streaming.core.clock import CLOCKS_DIFFER_MS
from streaming.core.columns import Array, nonzero
from streaming.core.events.events import Events
from streaming.core.hashing import queue_hash, row_key
from streaming.core.settings import Settings
from streaming.core.state.queue_text import may_name_dead_letter_queue
from streaming.core.state.queues import (
    T_ARRIVED,
    T_DEAD_LETTERED,
    T_TOUCHED_UNSENT,
    dead_letter_queue,
)
from streaming.core.state.rows import (
    DEFAULTS,
    F_ARRIVED,
    F_ARRIVED_BY_RECEIVE,
    F_ARRIVED_INFERRED,
    F_DEAD_LETTERED,
    F_ENDED,
    F_ENTERED,
    F_PURGED,
    F_RECONCILED,
    F_REDRIVEN,
    F_SENT,
    F_SENT_KNOWN,
    F_TOUCHED,
    F_UNSENT,
    F_WAS_REDRIVEN,
)
from streaming.core.state.state import ShardState
from streaming.core.state.tombstones import forgotten, restore_queues, restore_rows
from streaming.core.tracking.apply_deliveries import count_unseen_receives, unseen_receives
from streaming.core.tracking.durations import first_received
from streaming.core.tracking.ends import count_totals, end, find_remembered
from streaming.core.tracking.segments import count_rows

_NONE: Final = np.zeros(0, dtype=np.uint64)


def detect_dead_letters(state: ShardState, settings: Settings) -> Array:
    """Mark every message that appears in a dead-letter queue as arrived there, even without a reported move.

    The application sent it there, or its first receive shows it. It is then no longer in its source queue. Return the keys of the
    new ones.
    """
    dead = state.queues.column("dead_letter")
    if not dead.any():
        return _NONE
    restore_queues(state, dead, settings)
    rows = state.rows
    hit = nonzero(dead[rows["queue"]])
    flags = rows.at("flags", hit)
    known = (flags & (F_ARRIVED | F_REDRIVEN | F_RECONCILED | F_PURGED)) != 0
    seen = ((flags & F_SENT) != 0) | (rows.at("last_received", hit) > 0)
    news = ~known & seen & ~forgotten(state, rows.at("ended", hit), settings)
    hit, flags = hit[news], flags[news]
    if not len(hit):
        return _NONE
    keys: Array = rows.key[hit]
    was_sent = (flags & F_SENT) != 0
    # In an ordered queue the send time that a receive reports is that of the move, which may be days ago.
    renewed = state.queues.is_ordered(settings)[rows.at("queue", hit)] & ((flags & F_SENT_KNOWN) != 0)
    arrived = np.where(was_sent | renewed, rows.at("sent", hit), first_received(state, hit))
    unseen_before = unseen_receives(rows, hit)
    rows.put("arrived", hit, arrived)
    count_unseen_receives(state, hit, unseen_before)
    # The send of a broker's copy has the time at which the message was sent to its source queue: a reported move says more.
    known_by = np.where(was_sent, F_ARRIVED_INFERRED, F_ARRIVED_BY_RECEIVE)
    rows.put("flags", hit, flags | (F_ARRIVED | known_by).astype(np.uint32))
    count_totals(state, hit, T_ARRIVED)
    _end_originals(state, hit[~was_sent], arrived[~was_sent], settings)
    return keys


def withdraw_arrivals(state: ShardState, queues: Array, settings: Settings) -> None:
    """Forget that messages arrived in these queues (row numbers), which turned out to be no dead-letter queues.

    None of these arrivals was reported: a reported one would show a dead-letter queue. The ends of their originals stay counted.
    """
    if not len(queues):
        return
    chosen = np.zeros(len(state.queues), dtype=bool)
    chosen[queues] = True
    restore_queues(state, chosen, settings)
    rows = state.rows
    hit = nonzero(chosen[rows["queue"]])
    hit = hit[(rows.at("flags", hit) & np.uint32(F_ARRIVED)) != 0]
    flags = rows.at("flags", hit)
    # An inferred arrival counts as an entry into the queue, like a send.
    entered = (flags & np.uint32(F_ENTERED | F_SENT)) == F_ENTERED
    unsent = entered & ((flags & np.uint32(F_TOUCHED)) != 0)
    count_rows(state, hit[unsent], T_TOUCHED_UNSENT)
    flags &= ~np.where(entered, F_ENTERED, 0).astype(np.uint32)
    flags |= np.where(unsent, F_UNSENT, 0).astype(np.uint32)
    rows.put("flags", hit, flags & ~np.uint32(F_ARRIVED | F_ARRIVED_BY_RECEIVE | F_ARRIVED_INFERRED))
    for name in ("arrived", "arrived_noticed", "parent", "origin"):
        rows.put(name, hit, DEFAULTS[name])
    state.queues.totals[queues, T_ARRIVED] = 0
    count_unseen_receives(state, hit, 0)


def end_originals_of_redriven(state: ShardState, settings: Settings) -> None:
    """End the originals of messages that left a dead-letter queue although nothing showed that they had arrived there.

    SQS reports no moves. The redrive proves the move, whether it is read before or after the events of the source queue: an
    original that was not found is looked up again in the next steps.
    """
    dead = state.queues.column("dead_letter")
    if not dead.any():
        return
    rows = state.rows
    hit = nonzero((rows["flags"] & np.uint32(F_REDRIVEN | F_ARRIVED | F_SENT)) == F_REDRIVEN)
    hit = hit[dead[rows.at("queue", hit)] & (rows.at("parent", hit) == 0) & ~forgotten(state, rows.at("ended", hit), settings)]
    received = rows.at("last_received", hit) > 0
    left_by = np.where(received, first_received(state, hit), rows.at("ended", hit))
    _end_originals(state, hit, left_by, settings, redriven=True)


def end_originals_read_later(state: ShardState, events: Events, settings: Settings) -> None:
    """End the originals of messages that were received in a dead-letter queue before any event of their source queue was read.

    `events` are those of this step: only they can make an original known, or a queue the source of another.
    """
    rows = state.rows
    if not rows.has("arrived"):
        return
    index = state.queues.index
    numbers = np.unique(np.array([index[name] for name in events.queues if name in index], dtype=np.int64))
    sources = numbers[state.queues.limit("dead_letter_queue", settings)[numbers] > 0]
    if not len(sources):
        return
    flags = rows["flags"] & np.uint32(F_ARRIVED_BY_RECEIVE | F_SENT)
    hit = nonzero((flags == F_ARRIVED_BY_RECEIVE) & (rows["parent"] == 0) & (rows["arrived"] >= state.oldest_timely_at(settings)))
    hit = hit[~forgotten(state, rows.at("ended", hit), settings)]
    _end_originals(state, hit, rows.at("arrived", hit), settings, sources)


def _end_originals(
    state: ShardState, hit: Array, arrived: Array, settings: Settings, sources: Array | None = None, *, redriven: bool = False
) -> None:
    """End the rows of these dead letters in the queues whose dead-letter queue is theirs: in all, or in `sources`.

    `redriven`: they have left since. `sources`: events of these were read after the dead letters, and maybe after their redrive.
    Messages that came back under their own ids are not the originals any more.
    """
    rows = state.rows
    hit_keys = rows.key[hit]
    if not len(hit):
        return
    ordered = state.queues.is_ordered(settings)
    # An ordered queue is in another shard: the message's row there is out of reach.
    targets = np.unique(rows.at("queue", hit))
    targets = targets[~ordered[targets]]
    some = _sources_of(state, targets, settings)
    some = some[~ordered[some]]
    if sources is not None:
        some = np.intersect1d(some, sources)
    known = set(targets.tolist())
    for number in some.tolist():
        source = state.queues[number]
        there = dead_letter_queue(source, settings)
        target = state.queues.index.get(source.name.sibling(there)) if there else None
        if target not in known:
            continue
        here = nonzero(rows.at("queue", hit) == target)
        keys = row_key(
            rows.at("hi", hit[here]), rows.at("lo", hit[here]), np.full(len(here), queue_hash(source.name), dtype=np.uint64)
        )
        if restore_rows(state, np.unique(keys), settings):
            hit, _ = rows.find(hit_keys)
        originals, found = find_remembered(state, keys, settings)
        here, originals, keys = here[found], originals[found], keys[found]
        rows.put("parent", hit[here], keys)
        rows.put("origin", hit[here], np.full(len(here), number, dtype=np.int32))
        tolerance_ms = 0 if redriven else CLOCKS_DIFFER_MS
        open_ = (rows.at("ended", originals) == 0) & (rows.at("last_received", originals) <= arrived[here] + tolerance_ms)
        if sources is not None:
            open_ &= (rows.at("flags", originals) & np.uint32(F_WAS_REDRIVEN)) == 0
        if redriven:
            # What left the dead-letter queue was not removed by a purge of its source.
            open_ |= (rows.at("flags", originals) & np.uint32(F_ENDED)) == F_PURGED
            open_ &= rows.at("sent", originals) < arrived[here]
        flag = F_DEAD_LETTERED | F_WAS_REDRIVEN if redriven else F_DEAD_LETTERED
        end(state, originals[open_], arrived[here][open_], flag, T_DEAD_LETTERED)


def _sources_of(state: ShardState, targets: Array, settings: Settings) -> Array:
    """Return the queues whose dead-letter queue may be one of these (row numbers): parsing the attributes of all takes long."""
    sources = nonzero(state.queues.limit("dead_letter_queue", settings))
    names = {state.queues.names[target].queue for target in targets.tolist()}
    if any(rule.dead_letter_queue in names for rule in settings.rules):
        return sources
    result: Array = sources[may_name_dead_letter_queue(state.queues.attribute_texts(), names)[sources]]
    return result


def share_send_times(state: ShardState, settings: Settings) -> None:
    """Give each dead letter the send time of its original, looked up in the source queue while that is remembered."""
    rows = state.rows
    if not rows.has("parent"):
        return
    here = _with_original(state, settings)
    if not len(here):
        return
    if restore_rows(state, np.unique(rows["parent"][here]), settings):
        here = _with_original(state, settings)
    there, found = find_remembered(state, rows["parent"][here], settings)
    here, there = here[found], there[found]
    sent_known = (rows.at("flags", there) & F_SENT_KNOWN) != 0
    here, there = here[sent_known], there[sent_known]
    flags = rows.at("flags", here)
    sent = rows.at("sent", there)
    known = (flags & F_SENT_KNOWN) != 0
    rows.put("sent", here, np.where(known, np.minimum(rows.at("sent", here), sent), sent))
    rows.put("flags", here, flags | np.uint32(F_SENT_KNOWN))


def _with_original(state: ShardState, settings: Settings) -> Array:
    """Return the rows of recent dead letters whose originals can be looked up."""
    rows = state.rows
    ordered = state.queues.is_ordered(settings)
    moved = nonzero(rows["parent"])
    young = rows.at("arrived", moved) >= state.oldest_timely_at(settings)
    # An ordered queue is in another shard: its messages cannot be looked up from here.
    apart = ordered[rows.at("queue", moved)] | ordered[rows.at("origin", moved)]
    result: Array = moved[young & ~apart]
    return result
