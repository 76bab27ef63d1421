"""Apply events about whole queues, consumers and collectors, such as the broker's reports on a queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streaming.core.columns import Array, nonzero, run_starts
from streaming.core.events.events import Events
from streaming.core.events.flags import COUNTED
from streaming.core.events.late import is_late
from streaming.core.events.queue_events import (
    BATCH,
    CONSUMER_STATE,
    HEARTBEAT,
    OUTLIVED,
    PURGED,
    QUEUE_STATE,
    QueueEvents,
)
from streaming.core.hashing import hash_in_queues, hash_texts, row_key
from streaming.core.settings import Settings
from streaming.core.state.consumer_states import ConsumerState
from streaming.core.state.queue_row import QueueRow
from streaming.core.state.queue_text import read_report
from streaming.core.state.queues import (
    MOST_ATTRIBUTES,
    READ_OF_CONSUMERS,
    T_OUTLIVED,
    Depth,
    Refusals,
    visibility_ms,
)
from streaming.core.state.rows import F_TIMELINE
from streaming.core.state.state import ShardState
from streaming.core.tracking.attempts import count_retried_of, refold
from streaming.core.tracking.dead_letters import withdraw_arrivals
from streaming.core.tracking.dedup import is_new
from streaming.core.tracking.late_work import note_refused_work
from streaming.core.tracking.results import ACCEPTED, DUPLICATE, TOO_LATE, count_results

FAILED_BATCH_MEMORY_MS = 24 * 3_600_000
"""A batch's failure is remembered for as long as a redelivery can be delayed."""
MOST_CONSUMER_STATE_BYTES = 1 << 26
"""Bytes of the names and attributes of all consumers of which brokers report: they are in the shard's report after every step."""


def apply_queue_events(state: ShardState, events: Events, settings: Settings) -> None:
    """Apply the events about queues, consumers and collectors among `events`, each once."""
    for name in events.dead_letter_queues:
        state.queues[state.queue_number(name)].report_dead_letters()
    for name in events.apparent_dead_letter_queues:
        state.queues[state.queue_number(name)].dead_letter_apparent = True
    for name in events.redrive_targets:
        state.queues[state.queue_number(name)].redrive_target = True
    for name in events.ordered_queues:
        state.queues[state.queue_number(name)].ordered = True
    if len(events.about_queues):
        _apply_reports(state, events, settings)
    withdraw_arrivals(state, state.queues.conclude_dead_letter_queues(), settings)


def _apply_reports(state: ShardState, events: Events, settings: Settings) -> None:
    reported = events.about_queues
    new = is_new(state, reported["identity"], reported["at"])
    late = is_late(reported["at"], reported["flags"], state.oldest_timely_at(settings))
    count_results(state, np.where(late, TOO_LATE, np.where(new, ACCEPTED, DUPLICATE)), reported["flags"])
    reported = reported.take(new)
    _hear_collectors(state, reported.take(reported["kind"] == HEARTBEAT))
    # No queue has an empty name.
    named = np.array([bool(name.queue) for name in events.queues])
    reported = reported.take((reported["kind"] != HEARTBEAT) & named[reported["queue"]])
    queues, place = np.unique(reported["queue"], return_inverse=True)
    numbers = np.array([state.queue_number(events.queues[i]) for i in queues.tolist()], dtype=np.int64)[place]
    np.maximum.at(state.queues.column("last_event_at"), numbers, reported["at"])
    kind = reported["kind"]
    _purge(state, numbers[kind == PURGED], reported["at"][kind == PURGED])
    _batches_failed(state, numbers[kind == BATCH], reported.take(kind == BATCH), settings)
    # A late one may be a repetition of one that is forgotten.
    timely = ~is_late(reported["at"], reported["flags"], state.oldest_timely_at(settings))
    refused = (kind == OUTLIVED) & timely
    _refuse(state, numbers[refused], reported.take(refused), settings)
    _hear_consumers(state, numbers[kind == CONSUMER_STATE], reported.take(kind == CONSUMER_STATE))
    _learn(state, numbers[kind == QUEUE_STATE], reported.take(kind == QUEUE_STATE), settings)


def _hear_collectors(state: ShardState, heartbeats: QueueEvents) -> None:
    for name, at in zip(heartbeats.names("consumer"), heartbeats["at"].tolist(), strict=True):
        state.collectors[name] = max(state.collectors.get(name, 0), at)


def _purge(state: ShardState, numbers: Array, at: Array) -> None:
    for column in ("purged_at", "last_settled_at"):
        np.maximum.at(state.queues.column(column), numbers, at)


def _refuse(state: ShardState, numbers: Array, refused: QueueEvents, settings: Settings) -> None:
    """Count deliveries whose settlement was refused because their window had ended, for their queues and their messages."""
    if not len(refused):
        return
    state.queues.count(numbers, T_OUTLIVED)
    keys = row_key(refused["hi"], refused["lo"], state.queues.hashes[numbers])
    note_refused_work(state, keys, refused["at"], refused.names("consumer"), settings)
    for key, at in zip(keys.tolist(), refused["at"].tolist(), strict=True):
        before = state.refusals.get(key, Refusals(0, 0))
        state.refusals[key] = Refusals(before.times + 1, max(before.last_at, at))


def _batches_failed(state: ShardState, numbers: Array, batches: QueueEvents, settings: Settings) -> None:
    failed: dict[tuple[int, str], int] = {}
    named = zip(numbers.tolist(), batches.names("batch"), batches["attributes"].tolist(), batches["at"].tolist(), strict=True)
    for number, batch_id, attributes, at in named:
        if batch_id and read_report(batches.attributes[attributes]).get("failed"):
            failed[number, batch_id] = max(at, failed.get((number, batch_id), 0))
    if not failed:
        return
    # There may be thousands of ids, and hashing them together takes hardly longer than hashing one.
    ids = hash_texts(pa.array([batch_id for _, batch_id in failed], pa.string()))
    hashed = hash_in_queues(ids, state.queues.hashes[[number for number, _ in failed]]).tolist()
    new = set(hashed) - state.failed_batches.keys()
    for batch, at in zip(hashed, failed.values(), strict=True):
        state.failed_batches[batch] = max(at, state.failed_batches.get(batch, 0))
    if new:
        count_retried_of(state, new, settings)


def _hear_consumers(state: ShardState, numbers: Array, states: QueueEvents) -> None:
    """Apply reports on consumers, in order of time. One that comes late adds what later ones left out."""
    texts = [states.attributes[i] for i in states["attributes"].tolist()]
    reports = sorted(zip(states["at"].tolist(), texts, states.names("consumer"), numbers.tolist(), strict=True))
    rows = state.consumer_states.find((number, consumer) for _, _, consumer, number in reports)
    latest = {key: state.consumer_states.state(row) for key, row in rows.items()}
    changed: set[tuple[int, str]] = set()
    for at, text, consumer, number in reports:
        key, reported = (number, consumer), read_report(text)
        known = latest.get(key, _NO_REPORT)
        merged = {**known.attributes, **reported} if at >= known.at else {**reported, **known.attributes}
        dispatched_at = known.dispatched_at
        if "dispatched" in reported and at >= dispatched_at:
            merged["dispatched"], dispatched_at = reported["dispatched"], at
        if len(merged) > MOST_ATTRIBUTES:
            kept = sorted(merged, key=lambda name: (name not in READ_OF_CONSUMERS, name))[:MOST_ATTRIBUTES]
            merged = {name: merged[name] for name in kept}
        if key not in rows or merged != known.attributes:
            changed.add(key)
        latest[key] = ConsumerState(max(at, known.at), merged, dispatched_at)
    heard = {row: latest[key] for key, row in rows.items() if key not in changed}
    known_now = state.consumer_states.heard(heard).replaced({key: latest[key] for key in changed})
    state.consumer_states = known_now.fitting(MOST_CONSUMER_STATE_BYTES)


_NO_REPORT = ConsumerState(0, {})


def _learn(state: ShardState, numbers: Array, states: QueueEvents, settings: Settings) -> None:
    """Apply the broker's reports on queues, each with the row number of its queue."""
    if not len(states):
        return
    order = np.lexsort((states["at"], numbers))
    number, attributes, at = numbers[order], states["attributes"][order], states["at"][order]
    # A report that repeats the one before it only has a later time.
    first = nonzero(run_starts(number, attributes))
    end = np.append(first[1:], len(at))
    number, attributes = number[first], attributes[first]
    opening = nonzero(run_starts(number))
    texts = [states.attributes[i].encode() for i in attributes[opening].tolist()]
    changes = np.ones(len(number), dtype=bool)
    changes[opening] = ~state.queues.repeat(number[opening], at[first[opening]], at[end[opening] - 1], texts)
    some = nonzero(changes)
    reports = [read_report(states.attributes[i]) for i in attributes[some].tolist()]
    _add_named(state, number[some], reports, settings)
    windows: set[int] = set()
    for i, reported in zip(some.tolist(), reports, strict=True):
        _configure(state, int(number[i]), at[first[i] : end[i]].tolist(), reported, settings, windows)
    _count(state, numbers, states, settings)
    if windows:
        chosen = np.isin(state.rows["queue"], sorted(windows)) & ((state.rows["flags"] & F_TIMELINE) != 0)
        refold(state, state.rows.key[chosen], settings)


def _add_named(state: ShardState, numbers: Array, reports: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Add the queues that these reports name, as far as they can be tracked: together, because adding copies the table.

    In the order of their names: it decides which of them are tracked.
    """
    known, names = state.queues.index, state.queues.names
    named = zip(numbers.tolist(), reports, strict=True)
    siblings = {names[number].sibling(other) for number, attributes in named for other in _named(attributes) if other}
    new = sorted(siblings - known.keys())
    room = max(0, settings.max_queues - len(state.queues))
    if new and room:
        state.queues.add(new[:room])


def _count(state: ShardState, numbers: Array, states: QueueEvents, settings: Settings) -> None:
    """Apply the broker's counts in its reports on queues, each with the row number of its queue."""
    queues = np.unique(numbers)
    keep_ms = np.maximum(settings.lateness_ms, state.queues.limit("reconcile_after_ms", settings)[queues])
    counted = (states["flags"] & COUNTED) != 0
    counts = np.stack([states[name] for name in Depth._fields], axis=1)
    state.queues.add_depths(queues, state.high_water - keep_ms, numbers[counted], counts[counted])


def _configure(
    state: ShardState, number: int, times: Sequence[int], attributes: dict[str, Any], settings: Settings, windows: set[int]
) -> None:
    """Apply the broker's report on a queue where it differs from the previous one; `times` (ascending): when it came."""
    record = state.queues[number]
    before = _timeouts(record, settings)
    record.learn(times[-1], attributes, times[:-1])
    if str(attributes.get("kind", "")) == "fifo":
        record.ordered = True
    if _is_dead_letter_queue(attributes):
        record.report_dead_letters()
    if _timeouts(record, settings) != before:
        windows.add(number)
    there, redriven_to = (state.queues.index.get(record.name.sibling(other)) for other in _named(attributes))
    if there is not None:
        state.queues[there].report_dead_letters()
    if redriven_to is not None:
        state.queues[redriven_to].redrive_target = True


def _named(attributes: dict[str, Any]) -> tuple[str, str]:
    """Return the dead-letter queue and the target of the redrive task that a report names; empty where it names none."""
    task = attributes.get("redrive_task")
    named = attributes.get("dead_letter_queue"), task.get("to_queue") if isinstance(task, dict) else None
    there, redriven_to = (other if isinstance(other, str) else "" for other in named)
    return there, redriven_to


def _timeouts(record: QueueRow, settings: Settings) -> tuple[int, int, int]:
    """Return what decides when the windows of a queue end that were not reported."""
    change = record.timeout
    return visibility_ms(record, settings), change.until, change.before_ms


def _is_dead_letter_queue(attributes: dict[str, Any]) -> bool:
    """Whether the report on a queue itself shows that it is a dead-letter queue. Its source queues may not be watched.

    It says so, or names them, or a redrive task: SQS accepts one only for a queue that is another's dead-letter queue.
    """
    if attributes.get("is_dead_letter_queue") is True:
        return True
    sources, task = attributes.get("dead_letter_sources"), attributes.get("redrive_task")
    return (isinstance(sources, list) and bool(sources)) or (isinstance(task, dict) and bool(task.get("status")))
