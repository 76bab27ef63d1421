"""Convert a table of the wire format to the rows and queue events of `Events`."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.columns import Array, dictionary, distinct, int_column, nonzero, plain
from streaming.core.events.ahead import AHEAD_MS, MOVED_BACK_MS
from streaming.core.events.events import EXTENDED, MESSAGE_TYPES, RECEIVED, RELEASED, Events
from streaming.core.events.flags import AHEAD, LATE, PRIMARY
from streaming.core.events.late import MARKED_LATE
from streaming.core.events.moves import expand_moves
from streaming.core.events.queue_events import QueueEvents, read_queue_events
from streaming.core.events.sequences import read_sequences
from streaming.core.hashing import hash_in_queues, hash_texts, ids_to_bits, queue_hash
from streaming.core.settings import QueueName

SAME_RECEIVE_MS = 1_000
"""A first receive that was at most this long before the reported one is the same: a broker's clock is not its client's."""


def prepare(table: pa.Table) -> Events:
    """Convert a wire-format table (the contract's columns, `attributes` as JSON text). Keeps the order."""
    table = table.combine_chunks()
    n = table.num_rows
    codes = _codes(table["type"])
    queues, queue_index = _queues(table)
    ahead_ms = int_column(table[AHEAD_MS]) if AHEAD_MS in table.column_names else None
    late = np.asarray(table[MARKED_LATE]) if MARKED_LATE in table.column_names else np.zeros(n, dtype=bool)
    others = nonzero(codes == 0)
    about_queues = QueueEvents()
    if len(others):
        about_queues = read_queue_events(
            table.take(pa.array(others)), queue_index[others], None if ahead_ms is None else ahead_ms[others], late[others]
        )
    ids = plain(table["message_id"])
    hi, lo, is_uuid = ids_to_bits(ids)
    # Most events are about a message: build columns of all rows and drop the few others at the end.
    is_row = codes != 0
    text_rows = nonzero(~is_uuid & is_row)
    text = np.full(n, -1, dtype=np.int32)
    text[text_rows] = np.arange(len(text_rows))
    groups, group = dictionary(table["group"])
    consumers, consumer = dictionary(table["consumer"])
    reasons, reason = dictionary(table["reason"])
    seq_kind, seq_hi, seq_lo = read_sequences(plain(table["sequence"]))
    batch = plain(table["batch_id"])
    at = int_column(table["at"])
    columns: dict[str, Array] = {
        "code": codes,
        "at": at,
        "moved_back": np.zeros(n, dtype=np.int64) if ahead_ms is None else int_column(table[MOVED_BACK_MS]),
        "queue": queue_index,
        "hi": hi,
        "lo": lo,
        "sent_at": int_column(table["sent_at"]),
        "first_received_at": _first_received_at(table, at),
        "receive_count": int_column(table["receive_count"]).astype(np.int32),
        "end": _window_ends(table, codes, at),
        "group": group,
        "seq_kind": seq_kind,
        "seq_hi": seq_hi,
        "seq_lo": seq_lo,
        "consumer": consumer,
        "batch": _batches(batch, queues, queue_index) if batch.null_count < n else np.zeros(n, dtype=np.uint64),
        "peer": np.full(n, -1, dtype=np.int32),
        "reason": reason,
        "text": text,
        "flags": np.where(late, PRIMARY | LATE, PRIMARY).astype(np.uint8),
    }
    texts = ids.take(pa.array(text_rows)) if len(text_rows) else pa.array([], pa.string())
    events = Events(
        columns=columns,
        queues=queues,
        groups=groups,
        consumers=consumers,
        reasons=reasons,
        texts=texts.cast(pa.string()),
        about_queues=about_queues,
    )
    if ahead_ms is not None:
        _mark_ahead(events, ahead_ms)
    _learn_ordered(events, table["ordered"])
    expand_moves(events, table)
    if len(others):
        events.columns = events.take(nonzero(events.columns["code"]))
    return events


def _first_received_at(table: pa.Table, at: Array) -> Array:
    """Return when each message was first received, where that was before the event itself; else 0."""
    if table["first_received_at"].null_count == table.num_rows:
        return np.zeros(table.num_rows, dtype=np.int64)
    reported = int_column(table["first_received_at"])
    first: Array = np.where(reported < at - SAME_RECEIVE_MS, reported, 0)
    return first


def _window_ends(table: pa.Table, codes: Array, at: Array) -> Array:
    """Return until when each message is held or delayed by its event; 0 where that is not reported."""
    held = (codes == RECEIVED) | (codes == EXTENDED)
    end = np.where(held, int_column(table["invisible_until"]), int_column(table["visible_at"]))
    ends: Array = np.where(codes == RELEASED, np.maximum(end, at), end)
    return ends


def _codes(column: pa.ChunkedArray) -> Array:
    words, index = dictionary(column)
    by_word = np.array([MESSAGE_TYPES.get(word, 0) for word in words] or [0], dtype=np.uint8)
    codes: Array = by_word[index]
    return codes


def _queues(table: pa.Table) -> tuple[list[QueueName], Array]:
    """Return each distinct (system, scope, queue) and each row's index into them."""
    words, indices = zip(*(dictionary(table[name]) for name in ("system", "scope", "queue")), strict=True)
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


def _batches(ids: pa.Array, queues: list[QueueName], queue_index: Array) -> Array:
    """Return the hash of each row's batch id. Batches of different queues may have the same id."""
    return hash_in_queues(hash_texts(ids), np.array([queue_hash(name) for name in queues], dtype=np.uint64)[queue_index])


def _mark_ahead(events: Events, ahead_ms: Array) -> None:
    """Mark the events that are dated in the future, and note by how much for each queue; `ahead_ms` is 0 for the others."""
    events.columns["flags"][ahead_ms > 0] |= AHEAD
    for row in nonzero(ahead_ms).tolist():
        queue = events.queues[events.columns["queue"][row]]
        events.skews[queue] = max(int(ahead_ms[row]), events.skews.get(queue, 0))


def _learn_ordered(events: Events, column: pa.ChunkedArray) -> None:
    ordered = plain(column)
    if ordered.null_count == len(ordered):
        return
    about_message = events.columns["code"] != 0
    is_marked = pc.fill_null(ordered, False).to_numpy(zero_copy_only=False).astype(bool) & about_message
    for queue in np.unique(events.columns["queue"][is_marked]).tolist():
        events.ordered_queues.add(events.queues[queue])
    is_denied = ~pc.fill_null(ordered, True).to_numpy(zero_copy_only=False).astype(bool) & about_message
    for queue in np.unique(events.columns["queue"][is_denied]).tolist():
        if events.queues[queue].queue.endswith(".fifo"):
            events.unordered_queues.add(events.queues[queue])
