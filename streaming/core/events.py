"""Events as the core sees them: one row per (queue, message) an event is about, and a few facts about whole queues.

`prepare` turns a table of the wire format into these. An event that concerns two queues (`dead_lettered`, `redriven`, a first
receive out of a dead-letter queue) becomes a row for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.attributes import read_attributes
from streaming.core.hashing import hash_texts, ids_to_bits, row_key, text_hash
from streaming.core.settings import QueueName

Array = npt.NDArray[Any]

# Codes are also the order of events of one message at one millisecond: it enters, is received, is settled.
SENT, ARRIVED, REDRIVEN_IN, RECEIVED, EXTENDED, RELEASED = 1, 2, 3, 4, 5, 6
DELETED, DEAD_LETTERED, REDRIVEN, EXPIRED, DROPPED = 7, 8, 9, 10, 11
FIRST_END = DELETED

MESSAGE_TYPES = {
    "sent": SENT,
    "received": RECEIVED,
    "extended": EXTENDED,
    "released": RELEASED,
    "deleted": DELETED,
    "dead_lettered": DEAD_LETTERED,
    "redriven": REDRIVEN,
    "expired": EXPIRED,
    "dropped": DROPPED,
}

# Flags of a row.
PRIMARY = 1
"""The row stands for the event itself; a derived row is not counted as an event."""
BY_RECEIVE = 2
"""The move was not seen: it is known from a first receive out of the dead-letter queue."""

SEQUENCE_NONE, SEQUENCE_NUMBER, SEQUENCE_TEXT = 0, 1, 2
_TEN_18 = 10**18

DTYPES: dict[str, str] = {
    "code": "u1",
    "at": "i8",
    "queue": "i4",  # index into `queues`
    "hi": "u8",
    "lo": "u8",
    "sent_at": "i8",  # 0: not told
    "receive_count": "i4",  # 0: not told
    "end": "i8",  # invisible_until of a receive or extension, visible_at of a send or release; 0: not told
    "group": "i4",  # index into `groups`; -1: none
    "seq_kind": "u1",
    "seq_hi": "u8",
    "seq_lo": "u8",
    "consumer": "i4",  # index into `consumers`; -1: none
    "batch": "u8",  # hash of the batch id; 0: none
    "peer": "i4",  # the other queue of a move, index into `queues`; -1: none
    "reason": "i4",  # index into `reasons`; -1: none
    "text": "i4",  # index into `texts`; -1: the id is a UUID
    "flags": "u1",
}


class Fact(NamedTuple):
    """An event about a queue, consumer or collector: `body` is the wire event with `attributes` as an object."""

    type: str
    at: int
    queue: QueueName
    body: dict[str, Any]
    primary: bool = True


@dataclass(slots=True)
class Events:
    """Rows as columns (see DTYPES; all of one length), the strings they point at, and facts."""

    columns: dict[str, Array]
    queues: list[QueueName]
    groups: list[str] = field(default_factory=list)
    consumers: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    texts: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    facts: list[Fact] = field(default_factory=list)
    dead_letter_queues: set[QueueName] = field(default_factory=set)
    """Queues something was dead-lettered to: every shard must know them as such."""
    ordered_queues: set[QueueName] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.columns["code"])

    def take(self, rows: Array) -> dict[str, Array]:
        """The columns of some rows."""
        return {name: values[rows] for name, values in self.columns.items()}

    def queue_hashes(self) -> Array:
        """A 64-bit hash of each queue of `queues`."""
        return np.array([queue_hash(name) for name in self.queues], dtype=np.uint64)

    def keys(self) -> Array:
        """The 64-bit (queue, message) key of each row."""
        hashes = self.queue_hashes()
        return row_key(self.columns["hi"], self.columns["lo"], hashes[self.columns["queue"]])


_queue_hashes: dict[QueueName, int] = {}


def queue_hash(name: QueueName) -> int:
    """A stable 64-bit hash of (system, scope, queue)."""
    found = _queue_hashes.get(name)
    if found is None:
        if len(_queue_hashes) > 1_000_000:
            _queue_hashes.clear()
        # Names may hold any character: where one part ends is told by its length.
        found = _queue_hashes[name] = text_hash("\0".join((*name, *(str(len(part)) for part in name))))
    return found


def empty_columns() -> dict[str, Array]:
    """No rows."""
    return {name: np.zeros(0, dtype=dtype) for name, dtype in DTYPES.items()}


def prepare(table: pa.Table) -> Events:
    """Rows and facts of a wire-format table (columns as in the contract, `attributes` as JSON text). Order is kept."""
    table = table.combine_chunks()
    codes = _codes(table["type"])
    queues, queue_index = _queues(table)
    facts = _facts(table, np.flatnonzero(codes == 0), queues, queue_index)
    rows = np.flatnonzero(codes)
    if len(rows) < len(codes):
        table, codes, queue_index = table.take(pa.array(rows)), codes[rows], queue_index[rows]
    n = len(codes)
    ids = _plain(table["message_id"])
    hi, lo, is_uuid = ids_to_bits(ids)
    text_rows = np.flatnonzero(~is_uuid)
    text = np.full(n, -1, dtype=np.int32)
    text[text_rows] = np.arange(len(text_rows))
    groups, group = _dictionary(table["group"])
    consumers, consumer = _dictionary(table["consumer"])
    reasons, reason = _dictionary(table["reason"])
    seq_kind, seq_hi, seq_lo = _sequences(_plain(table["sequence"]))
    batch = _plain(table["batch_id"])
    invisible_until = _ints(table["invisible_until"])
    visible_at = _ints(table["visible_at"])
    at = _ints(table["at"])
    end = np.where((codes == RECEIVED) | (codes == EXTENDED), invisible_until, visible_at)
    sent_at = _ints(table["sent_at"])
    if table["first_received_at"].null_count < n:
        # A message was sent, at the latest, when it was first received.
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
    _learn_ordered(events, table["ordered"])
    _expand_moves(events, table)
    return events


def _plain(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _ints(column: pa.ChunkedArray) -> Array:
    array = _plain(column)
    if array.null_count == len(array):
        return np.zeros(len(array), dtype=np.int64)
    if array.null_count:
        array = pc.fill_null(array, 0)
    values: Array = array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return values


def _dictionary(column: pa.ChunkedArray) -> tuple[list[str], Array]:
    """Distinct strings and per row an index into them, -1 for null or an empty string."""
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
    """Distinct (system, scope, queue) and per row an index into them."""
    words, indices = zip(*(_dictionary(table[name]) for name in ("system", "scope", "queue")), strict=True)
    sizes = [len(w) + 1 for w in words]
    combined = ((indices[0].astype(np.int64) + 1) * sizes[1] + indices[1] + 1) * sizes[2] + indices[2] + 1
    distinct, index = np.unique(combined, return_inverse=True)
    names: list[QueueName] = []
    for value in distinct.tolist():
        value, queue = divmod(value, sizes[2])
        system, scope = divmod(value, sizes[1])
        pick = [w[i - 1] if i else "" for w, i in zip(words, (system, scope, queue), strict=True)]
        names.append((pick[0], pick[1], pick[2]))
    return names, index.astype(np.int32)


def _facts(table: pa.Table, rows: Array, queues: Sequence[QueueName], queue_index: Array) -> list[Fact]:
    if not len(rows):
        return []
    facts = []
    for body, queue in zip(table.take(pa.array(rows)).to_pylist(), queue_index[rows].tolist(), strict=True):
        body = {k: v for k, v in body.items() if v is not None}
        body["attributes"] = read_attributes(body.get("attributes"))
        facts.append(Fact(body["type"], int(body["at"]), queues[queue], body))
    return facts


def _sequences(column: pa.Array) -> tuple[Array, Array, Array]:
    """Positions that compare as they should: decimal digits as numbers up to 36 digits, other text by its first 16 bytes."""
    n = len(column)
    kind, hi, lo = np.zeros(n, dtype=np.uint8), np.zeros(n, dtype=np.uint64), np.zeros(n, dtype=np.uint64)
    if column.null_count == n:
        return kind, hi, lo
    lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    digits = pc.fill_null(pc.and_(pc.string_is_ascii(column), pc.utf8_is_digit(column)), False)
    is_number = digits.to_numpy(zero_copy_only=False) & (lengths > 0) & (lengths <= 36)
    numbers = np.flatnonzero(is_number)
    if len(numbers):
        chosen = column.take(pa.array(numbers))
        kind[numbers] = SEQUENCE_NUMBER
        split = pc.max(pc.binary_length(chosen)).as_py() > 18
        low = pc.utf8_slice_codeunits(chosen, -18) if split else chosen
        lo[numbers] = low.cast(pa.uint64()).to_numpy(zero_copy_only=False)
        if split:
            high = pc.utf8_slice_codeunits(chosen, -36, stop=-18)
            high = pc.if_else(pc.equal(pc.binary_length(high), 0), "0", high)
            hi[numbers] = high.cast(pa.uint64()).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero((lengths > 0) & ~is_number):
        word = column[int(row)].as_py().encode()[:16].ljust(16, b"\0")
        kind[row] = SEQUENCE_TEXT
        hi[row], lo[row] = int.from_bytes(word[:8], "big"), int.from_bytes(word[8:], "big")
    return kind, hi, lo


def sequence_text(kind: int, hi: int, lo: int) -> str | None:
    """A position as text again (leading zeros, and what is behind the 16th byte of other text, are lost)."""
    if kind == SEQUENCE_NONE:
        return None
    if kind == SEQUENCE_NUMBER:
        return str(hi * _TEN_18 + lo)
    return (hi.to_bytes(8, "big") + lo.to_bytes(8, "big")).rstrip(b"\0").decode("utf-8", "replace")


def _learn_ordered(events: Events, column: pa.ChunkedArray) -> None:
    ordered = _plain(column)
    if ordered.null_count == len(ordered):
        return
    said = pc.fill_null(ordered, False).to_numpy(zero_copy_only=False).astype(bool)
    for queue in np.unique(events.columns["queue"][said]).tolist():
        events.ordered_queues.add(events.queues[queue])


def _expand_moves(events: Events, table: pa.Table) -> None:
    """Add the second row of every move, and note which queues are dead-letter queues."""
    code = events.columns["code"]
    moves = np.flatnonzero((code == DEAD_LETTERED) | (code == REDRIVEN))
    if table["from_queue"].null_count < len(code):
        from_queue = _plain(table["from_queue"])
        told = ~np.asarray(pc.is_null(from_queue).to_numpy(zero_copy_only=False))
        receives = np.flatnonzero((code == RECEIVED) & told)
    else:
        receives = np.zeros(0, dtype=np.int64)
    if not len(moves) and not len(receives):
        return
    index_of = {name: i for i, name in enumerate(events.queues)}

    def index(name: QueueName) -> int:
        if name not in index_of:
            index_of[name] = len(events.queues)
            events.queues.append(name)
        return index_of[name]

    builder = _Derived(events)
    if len(moves):
        names = ("to_queue", "from_queue", "new_message_id", "message_id")
        to, origin, new_id, own_id = (_plain(table[n]).take(pa.array(moves)).to_pylist() for n in names)
        for i, row in enumerate(moves.tolist()):
            here = events.queues[events.columns["queue"][row]]
            if code[row] == DEAD_LETTERED:
                if to[i] and to[i] != here[2]:
                    there = (here[0], here[1], to[i])
                    events.dead_letter_queues.add(there)
                    events.columns["peer"][row] = index(there)
                    builder.add(row, ARRIVED, index(there), peer=int(events.columns["queue"][row]))
                continue
            # A redrive may be told from either end.
            if not to[i] and origin[i] and origin[i] != here[2]:
                to[i], source = here[2], (here[0], here[1], origin[i])
                events.columns["queue"][row] = index(source)
            here = events.queues[events.columns["queue"][row]]
            events.dead_letter_queues.add(here)
            if to[i]:
                there = (here[0], here[1], to[i])
                events.columns["peer"][row] = index(there)
                if new_id[i]:
                    same = new_id[i] == own_id[i]
                    peer = int(events.columns["queue"][row])
                    builder.add(row, REDRIVEN_IN, index(there), peer=peer, message_id=None if same else new_id[i])
    if len(receives):
        origins = from_queue.take(pa.array(receives)).to_pylist()
        for row, name in zip(receives.tolist(), origins, strict=True):
            here = events.queues[events.columns["queue"][row]]
            if name and name != here[2]:
                origin_index = index((here[0], here[1], name))
                events.dead_letter_queues.add(here)
                own = int(events.columns["queue"][row])
                builder.add(row, DEAD_LETTERED, origin_index, peer=own, flags=BY_RECEIVE)
                builder.add(row, ARRIVED, own, peer=origin_index, flags=BY_RECEIVE)
    builder.finish()


class _Derived:
    """Rows made from other rows, appended at the end in one go."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.rows: list[int] = []
        self.changes: dict[str, list[Any]] = {"code": [], "queue": [], "peer": [], "flags": []}
        self.new_ids: list[tuple[int, str]] = []

    def add(self, row: int, code: int, queue: int, *, peer: int, flags: int = 0, message_id: str | None = None) -> None:
        """One row like `row`, but `code` in `queue`, and about `message_id` where that differs."""
        if message_id is not None:
            self.new_ids.append((len(self.rows), message_id))
        self.rows.append(row)
        self.changes["code"].append(code)
        self.changes["queue"].append(queue)
        self.changes["peer"].append(peer)
        self.changes["flags"].append(flags)

    def finish(self) -> None:
        events = self.events
        if not self.rows:
            return
        added = events.take(np.array(self.rows))
        for name in ("code", "queue", "peer"):
            added[name] = np.array(self.changes[name], dtype=DTYPES[name])
        added["flags"] = np.array(self.changes["flags"], dtype=np.uint8)
        # What the event says of its own queue's delivery and order says nothing of the other queue's.
        for name, unknown in (
            ("end", 0),
            ("seq_kind", 0),
            ("seq_hi", 0),
            ("seq_lo", 0),
            ("batch", 0),
            ("consumer", -1),
        ):
            added[name][:] = unknown
        # A message that was moved back is a new one, of the moment it was moved.
        renewed = added["code"] == REDRIVEN_IN
        added["sent_at"][renewed] = added["at"][renewed]
        added["receive_count"][:] = 0
        if self.new_ids:
            at = np.array([i for i, _ in self.new_ids])
            ids = pa.array([message_id for _, message_id in self.new_ids], pa.string())
            hi, lo, is_uuid = ids_to_bits(ids)
            added["hi"][at], added["lo"][at] = hi, lo
            added["text"][at] = np.where(is_uuid, -1, len(events.texts) + np.arange(len(ids)))
            events.texts = pa.concat_arrays([events.texts, ids])
        events.columns = {name: np.concatenate([events.columns[name], added[name]]) for name in events.columns}
