"""Events that change no message, about queues, consumers and collectors, as columns, and how they are read from a table.

A collector reports the counts of all its queues together, so a step may bring one such event for each of ten thousand queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from streaming.core.columns import Array, dictionary, distinct, int_column, nonzero, plain
from streaming.core.events.ahead import AHEAD_MS, MOVED_BACK_MS
from streaming.core.events.attributes import read_attributes
from streaming.core.events.flags import AHEAD, COUNTED, LATE, PRIMARY
from streaming.core.events.late import MARKED_LATE
from streaming.core.hashing import hash_texts, ids_to_bits, mix, text_hash
from streaming.core.state.queue_text import report_text
from streaming.core.text_cache import cached

KINDS: Final = ("queue_state", "purged", "batch", "consumer_state", "outlived", "heartbeat")
QUEUE_STATE, PURGED, BATCH, CONSUMER_STATE, OUTLIVED, HEARTBEAT = range(len(KINDS))
FOR_ALL_SHARDS = (QUEUE_STATE, PURGED, BATCH, CONSUMER_STATE)
"""A queue's messages may be in any shard, and those that a consumer holds, so these go to all of them."""

DTYPES: Final[dict[str, str]] = {
    "kind": "u1",  # index into KINDS
    "at": "i8",
    "queue": "i4",  # index into the queues of the events it comes with
    "identity": "u8",  # hash of all its fields: an event with the same one is a repetition
    "consumer": "i4",  # index into `consumers`; -1: none
    "batch": "i4",  # index into `batches`; -1: none
    "hi": "u8",  # the id of the message whose window was outlived; 0: no such event
    "lo": "u8",
    "attributes": "i4",  # index into `attributes`
    "visible": "i8",  # the broker's counts, where COUNTED
    "in_flight": "i8",
    "delayed": "i8",  # -1: not reported
    "flags": "u1",
}


_EMPTY_COLUMNS = {name: np.zeros(0, dtype=dtype) for name, dtype in DTYPES.items()}


@dataclass(slots=True)
class QueueEvents:
    """Columns (see DTYPES; all of the same length) and the strings they refer to."""

    columns: dict[str, Array] = field(default_factory=lambda: dict(_EMPTY_COLUMNS))
    consumers: list[str] = field(default_factory=list)
    batches: list[str] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)
    """Valid attributes in the form of `report_text`."""

    def __len__(self) -> int:
        return len(self.columns["kind"])

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def take(self, rows: Array) -> QueueEvents:
        """Return these rows (indices, or a mask), with the same strings."""
        return replace(self, columns={name: values[rows] for name, values in self.columns.items()})

    def names(self, column: Literal["consumer", "batch"]) -> list[str]:
        """Return one of the columns of names as strings, empty for none."""
        words = self.consumers if column == "consumer" else self.batches
        return [words[i] if i >= 0 else "" for i in self.columns[column].tolist()]


def read_queue_events(table: pa.Table, queue: Array, ahead_ms: Array | None, late: Array) -> QueueEvents:
    """Return the events of a wire-format table without those that change a message.

    `queue`: the index of each event's queue; `ahead_ms`: how far each was dated in the future; `late`: which are marked
    as late.
    """
    n = len(table)
    if not n:
        return QueueEvents()
    words, kind = _words(table["type"])
    consumers, consumer = _words(table["consumer"])
    batches, batch = _words(table["batch_id"])
    reported, attributes = _words(table["attributes"])
    read = [_attributes(text) for text in (*reported, "")]
    texts = {text: i for i, text in enumerate(dict.fromkeys(one.text for one in read))}
    counts = np.array([one.counts or (0, 0, 0) for one in read], dtype=np.int64)[attributes]
    flags = np.full(n, PRIMARY, dtype=np.uint8)
    flags[np.array([one.counts is not None for one in read])[attributes]] |= COUNTED
    if ahead_ms is not None:
        flags[ahead_ms > 0] |= AHEAD
    flags[late] |= LATE
    kinds = np.array([KINDS.index(word) for word in words], dtype=np.uint8)[kind]
    hi, lo = np.zeros((2, n), dtype=np.uint64)
    if (kinds == OUTLIVED).any():
        hi, lo, _ = ids_to_bits(plain(table["message_id"]))
    columns = {
        "kind": kinds,
        "at": int_column(table["at"]),
        "queue": queue.astype(np.int32),
        "identity": _identities(table, np.array([one.hash for one in read], dtype=np.uint64)[attributes]),
        "consumer": consumer,
        "batch": batch,
        "hi": hi,
        "lo": lo,
        "attributes": np.array([texts[one.text] for one in read], dtype=np.int32)[attributes],
        "visible": counts[:, 0],
        "in_flight": counts[:, 1],
        "delayed": counts[:, 2],
        "flags": flags,
    }
    return QueueEvents(columns, consumers, batches, list(texts))


def spread(events: QueueEvents, queue_hashes: Array, of_messages: Array, shards: int) -> list[QueueEvents]:
    """Return the events of each shard.

    Most go to every shard, but only the copy in the queue's home shard counts as the event. A window that was outlived goes only
    to the shard of its message (`of_messages`), and a heartbeat to the first shard.
    """
    if shards == 1 or not len(events):
        return [events, *(QueueEvents() for _ in range(shards - 1))]
    kind = events["kind"]
    of_queues = (queue_hashes[events["queue"]] % np.uint64(shards)).astype(np.int64)
    home = np.select([kind == HEARTBEAT, kind == OUTLIVED], [0, of_messages], of_queues)
    everywhere = np.isin(kind, FOR_ALL_SHARDS)
    found = []
    for shard in range(shards):
        rows = nonzero(everywhere | (home == shard))
        here = events.take(rows)
        here.columns["flags"][home[rows] != shard] &= ~np.uint8(PRIMARY)
        found.append(here)
    return found


def concatenated(parts: Sequence[tuple[QueueEvents, Array]]) -> QueueEvents:
    """Return several parts as one, in order; each comes with the new index of each of its queues."""
    tables: dict[str, dict[str, int]] = {"consumer": {}, "batch": {}, "attributes": {}}
    columns: dict[str, list[Array]] = {name: [] for name in DTYPES}
    for events, queues in parts:
        words = {"consumer": events.consumers, "batch": events.batches, "attributes": events.attributes}
        moved = {"queue": queues.astype(np.int32)}
        for name, table in tables.items():
            moved[name] = np.array([*(table.setdefault(word, len(table)) for word in words[name]), -1], dtype=np.int32)
        for name, values in events.columns.items():
            columns[name].append(moved[name][values] if name in moved else values)
    joined = {name: np.concatenate(values) for name, values in columns.items()}
    return QueueEvents(joined, *(list(table) for table in tables.values()))


def _words(column: pa.ChunkedArray) -> tuple[list[str], Array]:
    """Return the distinct strings of a column and each row's index into them, -1 for null or an empty string."""
    words, index = dictionary(column)
    # Rows chosen from a table keep its whole dictionary.
    used, index = distinct(index, len(words))
    return [words[i] for i in used.tolist()], index


class _Read(NamedTuple):
    """Attributes as read: in the form of `report_text`, the broker's counts among them (the third -1: not reported), a hash."""

    text: str
    counts: tuple[int, int, int] | None
    hash: int


@cached(maxsize=4096)
def _attributes(reported: str) -> _Read:
    # Queues created from one template report the same while they are empty, and a quiet queue repeats itself.
    attributes = read_attributes(reported)
    counts = None
    visible, in_flight, delayed = attributes.get("visible"), attributes.get("in_flight"), attributes.get("delayed")
    if isinstance(visible, int) and isinstance(in_flight, int):
        counts = visible, in_flight, delayed if isinstance(delayed, int) else -1
    text = report_text(attributes)
    return _Read(text, counts, text_hash(text))


def _identities(table: pa.Table, attributes: Array) -> Array:
    """Return a hash of all fields of each event; `attributes`: that of the valid ones, so that spelling makes no difference."""
    identity: Array = mix(attributes)
    for column in table.schema:
        if column.name in ("attributes", AHEAD_MS, MOVED_BACK_MS, MARKED_LATE) or table[column.name].null_count == len(table):
            continue
        # An absent field adds nothing, so it makes no difference whether other events of the table have it.
        if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
            values = plain(table[column.name])
            known = np.asarray(values.is_valid())
            numbers = int_column(table[column.name])
            if column.name == "at" and MOVED_BACK_MS in table.column_names:
                # Each copy of an event that was dated in the future was moved back to its own arrival.
                numbers = numbers + int_column(table[MOVED_BACK_MS])
            hashes = numbers.astype(np.uint64)
        else:
            words, index = _words(table[column.name])
            known, hashes = index >= 0, np.append(hash_texts(pa.array(words, pa.string())), np.uint64(0))[index]
        identity += np.where(known, mix(hashes ^ np.uint64(text_hash(column.name))), np.uint64(0))
    return identity
