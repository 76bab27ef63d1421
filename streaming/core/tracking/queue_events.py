"""Apply events about whole queues, consumers and collectors, such as the broker's reports on a queue."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streaming.core.events.dedup import is_new
from streaming.core.events.events import Events, QueueEvent
from streaming.core.hashing import hash_texts
from streaming.core.settings import Settings
from streaming.core.state.queue_text import read_report
from streaming.core.state.queues import ConsumerState, Depth, visibility_ms
from streaming.core.state.rows import F_TIMELINE
from streaming.core.state.state import ShardState
from streaming.core.tracking.admission import has_room
from streaming.core.tracking.attempts import count_retried_of, refold

FAILED_BATCH_MEMORY_MS = 24 * 3_600_000
"""A batch's failure is remembered for as long as a redelivery can be delayed."""


def apply_queue_events(state: ShardState, events: Events, settings: Settings) -> None:
    """Apply the queue events of `events`, each once."""
    for name in events.dead_letter_queues:
        state.queues[state.queue_number(name)].dead_letter = True
    for name in events.ordered_queues:
        state.queues[state.queue_number(name)].ordered = True
    if not events.facts:
        return
    prints = np.array([fact.identity for fact in events.facts], dtype=np.uint64)
    times = np.array([fact.at for fact in events.facts], dtype=np.int64)
    fresh = is_new(state, prints, times)
    windows: set[int] = set()
    failed: dict[str, int] = {}
    heard: list[tuple[int, int]] = []
    counted: list[tuple[int, QueueEvent]] = []
    for fact, new in zip(events.facts, fresh.tolist(), strict=True):
        if fact.primary:
            late = fact.at < state.high_water - settings.lateness_ms
            result = "late" if late else "duplicate" if not new else "ahead" if fact.ahead else "accepted"
            state.events_total[result] += 1
        if not new:
            continue
        if fact.type == "heartbeat":
            state.collectors[fact.consumer] = max(state.collectors.get(fact.consumer, 0), fact.at)
        elif fact.queue.queue:
            # A heartbeat may come without a queue: the collector is alive, but no queue has an empty name.
            number = state.queue_number(fact.queue)
            heard.append((number, fact.at))
            _apply_one(state, number, fact, settings, windows, failed)
            if fact.type == "queue_state":
                counted.append((number, fact))
    _hear(state, heard)
    _count(state, counted, settings)
    _batches_failed(state, failed)
    if windows:
        chosen = np.isin(state.rows["queue"], sorted(windows)) & ((state.rows["flags"] & F_TIMELINE) != 0)
        refold(state, state.rows.key[chosen], settings)


def _hear(state: ShardState, heard: Sequence[tuple[int, int]]) -> None:
    """Record the latest event of each queue, given its row number and the event's time."""
    if heard:
        number, at = np.array(heard, dtype=np.int64).T
        np.maximum.at(state.queues.column("last_event_at"), number, at)


def _batches_failed(state: ShardState, failed: dict[str, int]) -> None:
    if not failed:
        return
    # There may be thousands of ids, and hashing them together takes hardly longer than hashing one.
    hashed = hash_texts(pa.array(list(failed), pa.string())).tolist()
    new = set(hashed) - state.failed_batches.keys()
    for batch, at in zip(hashed, failed.values(), strict=True):
        state.failed_batches[batch] = max(at, state.failed_batches.get(batch, 0))
    if new:
        count_retried_of(state, new)


def _apply_one(
    state: ShardState, number: int, fact: QueueEvent, settings: Settings, windows: set[int], failed: dict[str, int]
) -> None:
    if fact.type == "queue_state":
        if not state.queues.repeat(number, fact.at, fact.attributes.encode()):
            _configure(state, number, fact, settings, windows)
    elif fact.type == "purged":
        record = state.queues[number]
        record.purged_at = max(record.purged_at, fact.at)
        record.last_settled_at = max(record.last_settled_at, fact.at)
    elif fact.type == "batch":
        if fact.batch_id and read_report(fact.attributes).get("failed"):
            failed[fact.batch_id] = max(fact.at, failed.get(fact.batch_id, 0))
    elif fact.type == "consumer_state":
        key = (number, fact.consumer)
        known = state.consumer_states.get(key)
        if known is None or fact.at >= known.at:
            merged = {**(known.attributes if known else {}), **read_report(fact.attributes)}
            state.consumer_states[key] = ConsumerState(fact.at, merged)


def _count(state: ShardState, states: Sequence[tuple[int, QueueEvent]], settings: Settings) -> None:
    """Apply the counts of these queue_state events, each with the row number of its queue."""
    if not states:
        return
    queues = np.unique([number for number, _ in states])
    keep_ms = np.maximum(settings.lateness_ms, state.queues.limit("reconcile_after_ms", settings)[queues])
    found = [(number, fact.at, *fact.counts) for number, fact in states if fact.counts is not None]
    counts = np.array(found, dtype=np.int64).reshape(len(found), 1 + len(Depth._fields))
    state.queues.add_depths(queues, state.high_water - keep_ms, counts[:, 0], counts[:, 1:])


def _configure(state: ShardState, number: int, fact: QueueEvent, settings: Settings, windows: set[int]) -> None:
    """Apply the broker's report on a queue where it differs from the previous one."""
    record, attributes = state.queues[number], read_report(fact.attributes)
    window = visibility_ms(record, settings)
    record.learn(fact.at, attributes)
    if str(attributes.get("kind", "")) == "fifo":
        record.ordered = True
    if visibility_ms(record, settings) != window:
        windows.add(number)
    dead_letters = attributes.get("dead_letter_queue")
    if isinstance(dead_letters, str) and dead_letters and has_room(state, fact.queue.sibling(dead_letters), settings):
        state.queues[state.queue_number(fact.queue.sibling(dead_letters))].dead_letter = True
