"""Convert the states of all shards to another number of shards. They are consumed; nothing is lost or counted twice.

Messages go to the shard to which `route` will send their next events. The state of a whole queue goes to every shard; what must
be counted once (running totals, holding times) goes to the queue's home shard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from streaming.core.columns import Array, nonzero
from streaming.core.hashing import queue_hash
from streaming.core.maintenance.placement import keep_latest_rows, restore_all, shards_of
from streaming.core.settings import QueueName, Settings
from streaming.core.state.consumer_states import ConsumerState, ConsumerStates
from streaming.core.state.interner import GROUP_COLUMNS, Interner
from streaming.core.state.queue_table import QueueTable
from streaming.core.state.queues import QueueRecord, Reported, keep_latest
from streaming.core.state.rows import ROW_COLUMNS, Rows
from streaming.core.state.state import ATTEMPT_COLUMNS, ShardState


def _latest(found: Sequence[dict[str, Reported]]) -> dict[str, Reported]:
    merged: dict[str, Reported] = {}
    for attributes in found:
        keep_latest(merged, attributes)
    return merged


def _sums(found: Sequence[list[int]]) -> list[int]:
    return [sum(each) for each in zip(*found, strict=True)]


def _counted(found: Sequence[Mapping[int, int]]) -> dict[int, int]:
    total: Counter[int] = Counter()
    for counts in found:
        total.update(counts)
    return dict(total)


def _length_then_content(depths: list[Any]) -> tuple[int, list[Any]]:
    return len(depths), depths


def _longest(found: Sequence[list[Any]]) -> list[Any]:
    return max(found, key=_length_then_content)


SHARED: Final[Mapping[str, Callable[[Any], Any]]] = {
    "attributes": _latest,
    "depths": _longest,
    "empty_from": max,
    "ordered": any,
    "dead_letter": any,
    "dead_letter_reported": any,
    "dead_letter_apparent": any,
    "redrive_target": any,
    "messages_seen": any,
    "purged_at": max,
    "last_event_at": max,
    "last_received_at": max,
    "last_settled_at": max,
    "last_state_at": max,
    "skew_ms": max,
    "youngest_sent_at": max,
    "youngest_received_at": max,
    "left_out_at": max,
    "timeout": max,
}
"""What every shard knows about a queue, and how to combine it from several shards."""
AT_HOME: Final[Mapping[str, Callable[[Any], Any]]] = {"totals": _sums, "durations": _counted}
"""What only the queue's home shard keeps: the sum over all shards."""


NAME_COUNTERS: Final = ("finished", "failed")
"""What is counted by group or consumer: summed, and kept only in the home shard of the name's queue."""
NAME_TIMES: Final = (("time",), ("failed_at",), GROUP_COLUMNS)
"""What is latest of a group or consumer, as columns that are compared together: every shard has the latest of all."""


def reshard(states: Sequence[ShardState], shards: int, settings: Settings) -> list[ShardState]:
    """Return the same state in `shards` shards, in shard order. `states` are consumed; all must be of the same batch."""
    for state in states:
        restore_all(state)
    keep_latest_rows(states)
    records = _records(states)
    number = {name: place for place, name in enumerate(records)}
    moved_queues = [np.array([number[name] for name in state.queues.names] + [-1], dtype=np.int32) for state in states]
    groups, moved_groups = _names([state.groups for state in states], moved_queues)
    consumers, moved_consumers = _names([state.consumers for state in states], moved_queues)
    texts = [state.texts for state in states]
    rows = _rows(states, moved_queues, moved_groups, moved_consumers)
    ordered = np.array([record.ordered or settings.is_ordered(name) for name, record in records.items()], dtype=bool)
    hashes = np.array([queue_hash(name) for name in records], dtype=np.uint64)
    target = shards_of(rows, ordered, hashes, shards)
    attempts = {
        name: np.concatenate(
            [
                moved_consumers[i][state.attempts[name]] if name == "consumer" else state.attempts[name]
                for i, state in enumerate(states)
            ]
        )
        for name in ATTEMPT_COLUMNS
    }
    fingerprints = _fingerprints(states)
    consumer_states = _consumer_states(states, moved_queues)
    made = []
    for shard in range(shards):
        own = ShardState.empty()
        own.queues = QueueTable.of(_record_for(record, queue_hash(name) % shards == shard) for name, record in records.items())
        home = hashes % np.uint64(shards) == np.uint64(shard)
        own.groups, own.consumers = (_names_for(names, home) for names in (groups, consumers))
        own.rows = rows.some(target == shard)
        own.texts = _own_texts(own.rows, texts)
        own.attempts = _own_attempts(attempts, own.rows.key)
        own.fingerprints = {name: values.copy() for name, values in fingerprints.items()}
        own.failed_batches = {key: at for state in states for key, at in state.failed_batches.items()}
        own.consumer_states = consumer_states
        own.loss_reasons = _own_reasons(states, own.rows.key)
        # Those of messages without rows may belong to any shard, and only those of listed messages are looked up.
        own.refusals = {key: one for state in states for key, one in state.refusals.items()}
        own.high_water = max(state.high_water for state in states)
        own.now = max(state.now for state in states)
        made.append(own)
    for state in states:
        made[0].events_total.update(state.events_total)
        made[0].invalid_total.update(state.invalid_total)
        for collector, at in state.collectors.items():
            made[0].collectors[collector] = max(at, made[0].collectors.get(collector, 0))
    return made


def _records(states: Sequence[ShardState]) -> dict[QueueName, QueueRecord]:
    """Return one record per queue: the combined knowledge of all shards, and the sums of their counts."""
    known: dict[QueueName, list[QueueRecord]] = {}
    for state in states:
        for number, name in enumerate(state.queues.names):
            known.setdefault(name, []).append(state.queues.record(number))
    return {
        name: QueueRecord(
            name,
            **{
                field.name: {**SHARED, **AT_HOME}[field.name]([getattr(record, field.name) for record in found])
                for field in fields(QueueRecord)
                if field.name != "name"
            },
        )
        for name, found in known.items()
    }


def _record_for(record: QueueRecord, at_home: bool) -> QueueRecord:
    """Return a shard's own copy of a record."""
    fresh = QueueRecord(record.name)
    for name in SHARED:
        value = getattr(record, name)
        setattr(fresh, name, value.copy() if isinstance(value, dict | list) else value)
    if at_home:
        for name in AT_HOME:
            setattr(fresh, name, getattr(record, name).copy())
    return fresh


def _names(found: Sequence[Interner], moved_queues: Sequence[Array]) -> tuple[Interner, list[Array]]:
    """Return one table of all names, and per state the new number of each old one; -1 stays."""
    numbers: dict[tuple[int, str], int] = {}
    moved = []
    for names, queues in zip(found, moved_queues, strict=True):
        pairs = zip(queues[names.queue].tolist(), names.texts.to_pylist(), strict=True)
        own = [numbers.setdefault(pair, len(numbers)) for pair in pairs]
        moved.append(np.array([*own, -1], dtype=np.int32))
    queue = np.array([queue for queue, _ in numbers], dtype=np.int32)
    merged = Interner(queue, pa.array([text for _, text in numbers], pa.string()))
    place = np.concatenate([own[:-1] for own in moved])
    for name in NAME_COUNTERS:
        values = np.zeros(len(queue), dtype=np.int64)
        np.add.at(values, place, np.concatenate([getattr(names, name) for names in found]))
        setattr(merged, name, values)
    for compared in NAME_TIMES:
        parts = [np.concatenate([getattr(names, name) for names in found]) for name in compared]
        order = np.lexsort((*reversed(parts), place))
        last = order[np.append(place[order][1:] != place[order][:-1], True)] if len(place) else order
        for name, part in zip(compared, parts, strict=True):
            setattr(merged, name, part[last])  # by ascending place: one for each
    return merged, moved


def _names_for(names: Interner, home: Array) -> Interner:
    """Return a shard's own copy; `home` marks the queues it is the home of."""
    own = Interner(names.queue.copy(), names.texts)
    for name in chain(*NAME_TIMES):
        setattr(own, name, getattr(names, name).copy())
    for name in NAME_COUNTERS:
        setattr(own, name, np.where(home[names.queue], getattr(names, name), 0))
    return own


def _rows(states: Sequence[ShardState], queues: Sequence[Array], groups: Sequence[Array], consumers: Sequence[Array]) -> Rows:
    """Return all rows in key order, with the numbers of the common tables."""
    moved: Mapping[str, Sequence[Array]] = {"queue": queues, "origin": queues, "group": groups, "consumer": consumers}
    offsets = np.cumsum([0, *(len(state.texts) for state in states)])
    columns: dict[str, Array | None] = dict.fromkeys(ROW_COLUMNS)
    for name in ROW_COLUMNS:
        if name == "id_at" or not any(state.rows.has(name) for state in states):
            continue  # The ids are written again.
        parts = []
        for i, state in enumerate(states):
            values = state.rows[name]
            if name in moved:
                values = moved[name][i][values]
            elif name == "text":
                values = np.where(values < 0, -1, values + offsets[i]).astype(np.int32)
            parts.append(values)
        columns[name] = np.concatenate(parts)
    key = np.concatenate([state.rows.key for state in states])
    rows = Rows(key, columns)
    return rows.some(np.argsort(key))


def _own_texts(rows: Rows, texts: Sequence[pa.Array]) -> pa.Array:
    """Return the ids that `rows` refer to, and renumber them there. All shards' together may exceed one array."""
    number, found = rows["text"].copy(), []
    offset = count = 0
    for part in texts:
        mine = nonzero((number >= offset) & (number < offset + len(part)))
        found.append(part.take(pa.array(number[mine] - offset)))
        rows.put("text", mine, (count + np.arange(len(mine))).astype(np.int32))
        offset, count = offset + len(part), count + len(mine)
    return pa.concat_arrays(found)


def _fingerprints(states: Sequence[ShardState]) -> dict[str, Array]:
    """Give every shard all fingerprints: the event behind one cannot be recovered from it, and they are only looked up."""
    hashes = np.concatenate([state.fingerprints["hash"] for state in states])
    at = np.concatenate([state.fingerprints["at"] for state in states])
    order = np.lexsort((at, hashes))
    last = np.append(hashes[order][1:] != hashes[order][:-1], True) if len(hashes) else np.zeros(0, dtype=bool)
    return {"hash": hashes[order][last], "at": at[order][last]}


def _consumer_states(states: Sequence[ShardState], moved_queues: Sequence[Array]) -> ConsumerStates:
    """Return the latest report about each consumer: every shard knows it, because its messages may be in any."""
    found: dict[tuple[int, str], ConsumerState] = {}
    for state, moved in zip(states, moved_queues, strict=True):
        for (queue, consumer), reported in state.consumer_states.items():
            key = int(moved[queue]), consumer
            if key not in found or reported.at > found[key].at:
                found[key] = reported
    return ConsumerStates.of(found)


def _own_attempts(attempts: Mapping[str, Array], keys: Array) -> dict[str, Array]:
    own = np.isin(attempts["key"], keys)
    order = np.lexsort((attempts["code"][own], attempts["at"][own], attempts["key"][own]))
    return {name: values[own][order] for name, values in attempts.items()}


def _own_reasons(states: Sequence[ShardState], keys: Array) -> dict[int, str]:
    reasons = {key: reason for state in states for key, reason in state.loss_reasons.items()}
    asked = np.array(list(reasons), dtype=np.uint64)
    return {key: reasons[key] for key in asked[np.isin(asked, keys)].tolist()}
