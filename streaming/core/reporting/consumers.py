"""What a shard knows of the consumers of its queues: what each holds, when it acknowledged, how its deliveries ended."""

from __future__ import annotations

from typing import Any

import numpy as np

from streaming.core.columns import Array, nonzero, run_starts
from streaming.core.events.events import EXTENDED
from streaming.core.hashing import bits_to_uuid
from streaming.core.reporting.queue_columns import NamedColumns, nothing_named
from streaming.core.reporting.ranking import in_order, place_in_queue
from streaming.core.reporting.report import ConsumerHolds
from streaming.core.settings import Settings
from streaming.core.state.interner import Interner, text_of
from streaming.core.state.state import SILENT_MEMORY_MS, ShardState
from streaming.core.tracking.holds import held_since
from streaming.core.tracking.windows import Windows


def held_by_consumers(state: ShardState, w: Windows, settings: Settings) -> NamedColumns:
    """Return what each consumer holds, the longest held of each queue first, as `holder_of` reads it.

    Of messages dispatched to it at once, it works on the one that was sent first: that one is its oldest. Those of a batch that
    is reported as failed are in flight until their windows end, but nobody works on them.
    """
    rows = state.rows
    held = nonzero(w.in_flight & (rows["consumer"] >= 0)) if rows.has("consumer") else np.zeros(0, dtype=np.int64)
    if len(held) and state.failed_batches:
        failed = np.fromiter(state.failed_batches, dtype=np.uint64, count=len(state.failed_batches))
        held = held[~np.isin(rows.at("batch", held), failed)]
    if not len(held):
        return nothing_named()
    since = held_since(state, held, settings)
    consumer = rows.at("consumer", held)
    ranks = [since, *(rows.at(name, held) for name in ("sent", "seq_hi", "seq_lo")), rows.key[held]]
    order = np.lexsort((*reversed(ranks), consumer))
    held, since, consumer = held[order], since[order], consumer[order]
    first = nonzero(run_starts(consumer))
    messages = np.diff(np.append(first, len(held)))
    number = consumer[first]
    queue = state.consumers.queue[number]
    at_count = np.add.reduceat(since <= np.repeat(_counted_at(state, number), messages), first)
    places = in_order((queue, since[first]), state.consumers, number)
    places = places[place_in_queue(queue[places]) < settings.consumers_per_report]
    oldest = held[first[places]]
    texts, groups = text_of(state.texts, rows.at("text", oldest)), state.groups.taken(rows.at("group", oldest))
    ids = texts, rows.at("hi", oldest), rows.at("lo", oldest)
    extended = rows.at("window_code", oldest) == EXTENDED
    of_oldest = (column[order[first[places]]] for column in ranks)
    values = (messages[places], *ids, groups, extended, at_count[places], *of_oldest)
    return NamedColumns(queue[places], state.consumers.taken(number[places]), values)


def holder_of(values: tuple[Any, ...]) -> ConsumerHolds:
    """Return one row of `held_by_consumers`, name first, as an object."""
    consumer, messages, text, hi, lo, group, extended, held_at_count, *rank = values
    return ConsumerHolds(
        consumer=consumer,
        messages=messages,
        since=rank[0],
        message_id=text if text is not None else bits_to_uuid(hi, lo),
        group=group,
        extended=extended,
        held_at_count=held_at_count,
        rank=tuple(rank),
    )


def _counted_at(state: ShardState, consumers: Array) -> Array:
    """Return when the broker last counted what each of these consumers holds (epoch milliseconds), 0 where it never did."""
    counted_at = np.zeros(len(consumers), dtype=np.int64)
    if len(state.consumer_states):
        named = zip(state.consumers.queue[consumers].tolist(), state.consumers.words(consumers), strict=True)
        keys = [(queue, name or "") for queue, name in named]
        known = state.consumer_states.find(keys)
        rows = [known.get(key, -1) for key in keys]
        counted_at = np.where(np.array(rows) >= 0, state.consumer_states.dispatched_at[rows], 0)
    return counted_at


def last_acks(state: ShardState, settings: Settings) -> NamedColumns:
    """Return when consumers last acknowledged a message: the latest of each queue, none older than a day."""
    names = state.consumers
    known = nonzero((names.time > 0) & (names.time >= state.high_water - SILENT_MEMORY_MS))
    chosen = _first_of_each_queue(names, known, -names.time[known], settings.consumers_per_report)
    return NamedColumns(names.queue[chosen], names.taken(chosen), (names.time[chosen],))


def consumer_results(state: ShardState, settings: Settings) -> NamedColumns:
    """Return how the deliveries of consumers ended, for those of the last day with the most failed deliveries of each queue."""
    names = state.consumers
    lately = names.active_at >= max(state.high_water - SILENT_MEMORY_MS, 1)
    known = nonzero(lately & ((names.finished > 0) | (names.failed > 0)))
    chosen = _first_of_each_queue(names, known, -names.failed[known], settings.consumers_per_report)
    return NamedColumns(names.queue[chosen], names.taken(chosen), (names.finished[chosen], names.failed[chosen]))


def _first_of_each_queue(names: Interner, candidates: Array, rank: Array, most: int) -> Array:
    """Return the `candidates` with the lowest ranks, at most `most` per queue, queue by queue."""
    if len(candidates) <= 1:
        return candidates
    candidates = candidates[np.lexsort((rank, names.queue[candidates]))]
    result: Array = candidates[place_in_queue(names.queue[candidates]) < most]
    return result
