"""Convert a table of the wire format to the rows and queue events of `Events`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.columns import Array, distinct, plain
from streaming.core.events.ahead import AHEAD_MS
from streaming.core.events.attributes import read_attributes
from streaming.core.events.events import AHEAD, EXTENDED, MESSAGE_TYPES, PRIMARY, RECEIVED, RELEASED, Events, QueueEvent
from streaming.core.events.moves import expand_moves
from streaming.core.events.sequences import read_sequences
from streaming.core.hashing import hash_texts, ids_to_bits, text_hash
from streaming.core.settings import QueueName
from streaming.core.state.queue_text import report_text

REMEMBERED_CHARS = 2048
"""Attributes of at most this length are parsed once for all events that repeat them. Longer ones are rare, and take memory."""


def prepare(table: pa.Table) -> Events:
    """Convert a wire-format table (the contract's columns, `attributes` as JSON text). Keeps the order."""
    table = table.combine_chunks()
    n = table.num_rows
    codes = _codes(table["type"])
    queues, queue_index = _queues(table)
    ahead_ms = _ints(table[AHEAD_MS]) if AHEAD_MS in table.column_names else None
    facts = _queue_events(table, np.flatnonzero(codes == 0), queues, queue_index, ahead_ms)
    ids = plain(table["message_id"])
    hi, lo, is_uuid = ids_to_bits(ids)
    # Most events are about a message: build columns of all rows and drop the few others at the end.
    is_row = codes != 0
    text_rows = np.flatnonzero(~is_uuid & is_row)
    text = np.full(n, -1, dtype=np.int32)
    text[text_rows] = np.arange(len(text_rows))
    groups, group = _dictionary(table["group"])
    consumers, consumer = _dictionary(table["consumer"])
    reasons, reason = _dictionary(table["reason"])
    seq_kind, seq_hi, seq_lo = read_sequences(plain(table["sequence"]))
    batch = plain(table["batch_id"])
    at = _ints(table["at"])
    end = np.where((codes == RECEIVED) | (codes == EXTENDED), _ints(table["invisible_until"]), _ints(table["visible_at"]))
    sent_at = _ints(table["sent_at"])
    if table["first_received_at"].null_count < n:
        # A message was sent no later than it was first received.
        sent_at = np.where(sent_at > 0, sent_at, _ints(table["first_received_at"]))
    columns: dict[str, Array] = {
        "code": codes,
        "at": at,
        "queue": queue_index,
        "hi": hi,
        "lo": lo,
        "sent_at": sent_at,
        "receive_count": _ints(table["receive_count"]).astype(np.int32),
        "end": np.where(codes == RELEASED, np.maximum(end, at), end),
        "group": group,
        "seq_kind": seq_kind,
        "seq_hi": seq_hi,
        "seq_lo": seq_lo,
        "consumer": consumer,
        "batch": hash_texts(batch) if batch.null_count < n else np.zeros(n, dtype=np.uint64),
        "peer": np.full(n, -1, dtype=np.int32),
        "reason": reason,
        "text": text,
        "flags": np.full(n, PRIMARY, dtype=np.uint8),
    }
    texts = ids.take(pa.array(text_rows)) if len(text_rows) else pa.array([], pa.string())
    events = Events(columns, queues, groups, consumers, reasons, texts.cast(pa.string()), facts)
    if ahead_ms is not None:
        columns["flags"][ahead_ms > 0] |= AHEAD
        for row in np.flatnonzero(ahead_ms).tolist():
            queue = queues[queue_index[row]]
            events.skews[queue] = max(int(ahead_ms[row]), events.skews.get(queue, 0))
    _learn_ordered(events, table["ordered"])
    expand_moves(events, table)
    if facts:
        events.columns = events.take(np.flatnonzero(events.columns["code"]))
    return events


def _ints(column: pa.ChunkedArray) -> Array:
    array = plain(column)
    if array.null_count == len(array):
        return np.zeros(len(array), dtype=np.int64)
    if array.null_count:
        array = pc.fill_null(array, 0)
    values: Array = array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return values


def _dictionary(column: pa.ChunkedArray) -> tuple[list[str], Array]:
    """Return the distinct strings and each row's index into them, -1 for null or an empty string."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    if len(array) == array.null_count:
        return [], np.full(len(array), -1, dtype=np.int32)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    words = array.dictionary.to_pylist()
    index = pc.fill_null(array.indices, -1).to_numpy(zero_copy_only=False).astype(np.int32)
    if "" in words:
        index[index == words.index("")] = -1
    return words, index


def _codes(column: pa.ChunkedArray) -> Array:
    words, index = _dictionary(column)
    by_word = np.array([MESSAGE_TYPES.get(word, 0) for word in words] or [0], dtype=np.uint8)
    codes: Array = by_word[index]
    return codes


def _queues(table: pa.Table) -> tuple[list[QueueName], Array]:
    """Return each distinct (system, scope, queue) and each row's index into them."""
    words, indices = zip(*(_dictionary(table[name]) for name in ("system", "scope", "queue")), strict=True)
    sizes = [len(w) + 1 for w in words]
    combined = ((indices[0].astype(np.int64) + 1) * sizes[1] + indices[1] + 1) * sizes[2] + indices[2] + 1
    used, index = distinct(combined, math.prod(sizes))
    names: list[QueueName] = []
    for value in used.tolist():
        value, queue = divmod(value, sizes[2])
        system, scope = divmod(value, sizes[1])
        pick = [w[i - 1] if i else "" for w, i in zip(words, (system, scope, queue), strict=True)]
        names.append(QueueName(*pick))
    return names, index


def _queue_events(
    table: pa.Table, rows: Array, queues: Sequence[QueueName], queue_index: Array, ahead_ms: Array | None
) -> list[QueueEvent]:
    if not len(rows):
        return []
    facts = []
    ahead = np.zeros(len(rows), dtype=bool) if ahead_ms is None else ahead_ms[rows] > 0
    chosen = table.take(pa.array(rows))
    # Most fields of such events are null in all of them.
    used = [name for name in chosen.column_names if name != AHEAD_MS and chosen[name].null_count < len(rows)]
    events = zip(*(_values(chosen[name]) for name in used), strict=True)
    for event, queue, was_ahead in zip(events, queue_index[rows].tolist(), ahead.tolist(), strict=True):
        body = {name: value for name, value in zip(used, event, strict=True) if value is not None}
        facts.append(_queue_event(body, queues[queue], ahead=was_ahead))
    return facts


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column, None for null."""
    array = plain(column)
    if pa.types.is_string(array.type) or not array.null_count:
        # An array of Python objects is made in C++, many times faster than a list.
        values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
        return values
    listed: list[Any] = array.to_pylist()
    return listed


def _queue_event(body: dict[str, Any], queue: QueueName, *, ahead: bool) -> QueueEvent:
    reported = body.get("attributes")
    known = reported is None or len(reported) <= REMEMBERED_CHARS
    text, counts = (_attributes_again if known else _attributes)(reported)
    body["attributes"] = text
    consumer, batch_id = body.get("consumer", ""), body.get("batch_id", "")
    return QueueEvent(body["type"], int(body["at"]), queue, text_hash(repr(body)), consumer, batch_id, text, counts, ahead=ahead)


def _attributes(text: str | None) -> tuple[str, tuple[int, int, int] | None]:
    """Return the valid attributes in the form of `report_text`, and the broker's counts among them."""
    attributes = read_attributes(text)
    counts = None
    visible, in_flight, delayed = attributes.get("visible"), attributes.get("in_flight"), attributes.get("delayed")
    if isinstance(visible, int) and isinstance(in_flight, int):
        counts = visible, in_flight, delayed if isinstance(delayed, int) else -1
    return report_text(attributes), counts


# Queues created from one template report the same while they are empty, and a quiet queue repeats itself.
_attributes_again = lru_cache(maxsize=4096)(_attributes)


def _learn_ordered(events: Events, column: pa.ChunkedArray) -> None:
    ordered = plain(column)
    if ordered.null_count == len(ordered):
        return
    is_marked = pc.fill_null(ordered, False).to_numpy(zero_copy_only=False).astype(bool) & (events.columns["code"] != 0)
    for queue in np.unique(events.columns["queue"][is_marked]).tolist():
        events.ordered_queues.add(events.queues[queue])
