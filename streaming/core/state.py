"""The state of one shard: a row per (queue, message), sorted by key, and small tables beside it. One versioned blob.

A message that ended stays as a row until events of its time can no longer arrive (the lateness), so that a late receive does
not raise it from the dead. Columns that say nothing for any row are not there at all.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.columns import Array, UnreadableBlob, distinct, pack_columns, unpack_columns
from streaming.core.events import queue_hash
from streaming.core.hashing import bits_to_uuid, row_key
from streaming.core.packet import text_columns, texts_of
from streaming.core.queues import QueueRecord
from streaming.core.settings import QueueName

FORMAT_VERSION = 1

# dtype and the value that means "nothing known".
ROW_COLUMNS: dict[str, tuple[str, int]] = {
    "hi": ("u8", 0),
    "lo": ("u8", 0),
    "queue": ("i4", 0),
    "flags": ("u4", 0),
    "sent": ("i8", 0),  # when it was sent; until F_SENT_KNOWN, when it was first heard of
    "last_received": ("i8", 0),
    "receive_count": ("i4", 0),
    "seen": ("u8", 0),  # bit n-1: the n-th receive was seen
    "seen_uncounted": ("i4", 0),
    "window_at": ("i8", 0),  # the latest receive, extension or release…
    "window_end": ("i8", 0),  # …and until when it lasts
    "window_code": ("u1", 0),
    "delay": ("i8", 0),
    "ended": ("i8", 0),
    "restart": ("i8", 0),  # when CloudWatch's age last restarts…
    "restart_before": ("i8", 0),  # …and the time before, while that is still to come
    "consumer": ("i4", -1),
    "group": ("i4", -1),
    "seq_kind": ("u1", 0),
    "seq_hi": ("u8", 0),
    "seq_lo": ("u8", 0),
    "batch": ("u8", 0),
    "arrived": ("i8", 0),  # in a dead-letter queue: when it came
    "parent": ("u8", 0),  # key of its row in the queue it came from
    "origin": ("i4", -1),  # the queue it came from
    "text": ("i4", -1),  # index into `texts`; -1: the id is a UUID
}
DEFAULTS = {name: default for name, (_, default) in ROW_COLUMNS.items()}

# Flags of a row. The counted kinds make each message count once.
F_SENT_KNOWN = 1
F_WINDOW_DEFAULT = 2  # the window's end was not told: it is window_at + the queue's visibility timeout
F_TIMELINE = 4  # its receives, extensions and releases are in `attempts`
F_SENT = 8
F_DELETED, F_DEAD_LETTERED, F_REDRIVEN, F_EXPIRED, F_DROPPED = 16, 32, 64, 128, 256
F_PURGED, F_RECONCILED = 512, 1024
F_ARRIVED, F_ARRIVED_BY_RECEIVE, F_ARRIVED_INFERRED = 2048, 4096, 8192
F_TRIMMED = 16384  # the oldest attempts were let go
F_MOVE_INFERRED = 32768
F_MOVE_TOLD = 65536
ENDS = F_DELETED | F_DEAD_LETTERED | F_REDRIVEN | F_EXPIRED | F_DROPPED | F_PURGED | F_RECONCILED

ATTEMPT_COLUMNS: dict[str, str] = {
    "key": "u8",
    "at": "i8",
    "code": "u1",
    "receive_count": "i4",
    "end": "i8",
    "consumer": "i4",
    "batch": "u8",
}
_RAW_COLUMNS = frozenset({"hi", "lo", "batch", "a.key", "a.batch", "parent", "fp.hash"})


class Rows:
    """The message rows, sorted by key. A column that is all default is kept as None until it is written to."""

    __slots__ = ("columns", "key")

    def __init__(self, key: Array, columns: dict[str, Array | None]) -> None:
        self.key = key
        self.columns = columns

    @classmethod
    def empty(cls) -> Rows:
        return cls(np.zeros(0, dtype=np.uint64), dict.fromkeys(ROW_COLUMNS))

    def __len__(self) -> int:
        return len(self.key)

    def has(self, name: str) -> bool:
        """False when the column is all default."""
        return self.columns[name] is not None

    def __getitem__(self, name: str) -> Array:
        values = self.columns[name]
        if values is None:
            dtype, default = ROW_COLUMNS[name]
            values = np.full(len(self.key), default, dtype=dtype)
        return values

    def at(self, name: str, rows: Array) -> Array:
        """A copy of the column's values at some rows."""
        values = self.columns[name]
        if values is None:
            dtype, default = ROW_COLUMNS[name]
            return np.full(len(rows), default, dtype=dtype)
        return values[rows]

    def put(self, name: str, rows: Array, values: Array | int) -> None:
        """Write values at some rows; a column of nothing but defaults stays absent."""
        column = self.columns[name]
        if column is None:
            if np.all(np.asarray(values) == DEFAULTS[name]):
                return
            column = self.columns[name] = self[name]
        column[rows] = values

    def find(self, keys: Array) -> tuple[Array, Array]:
        """For each key the row it is or would be at, and whether it is there."""
        at = np.searchsorted(self.key, keys)
        if not len(self.key):
            return at, np.zeros(len(keys), dtype=bool)
        return at, self.key[np.minimum(at, len(self.key) - 1)] == keys

    def insert(self, at: Array, keys: Array) -> None:
        """New rows of nothing but defaults: `keys` ascending, each before row `at`."""
        n = len(self.key) + len(keys)
        fresh = np.zeros(n, dtype=bool)
        fresh[at + np.arange(len(keys))] = True
        old = ~fresh
        key = np.empty(n, dtype=np.uint64)
        key[old] = self.key
        key[fresh] = keys
        self.key = key
        for name, values in self.columns.items():
            if values is None:
                continue
            dtype, default = ROW_COLUMNS[name]
            wide = np.empty(n, dtype=dtype)
            wide[old] = values
            wide[fresh] = default
            self.columns[name] = wide

    def keep(self, mask: Array) -> None:
        """Let go of the rows where `mask` is False."""
        self.key = self.key[mask]
        for name, values in self.columns.items():
            if values is not None:
                self.columns[name] = values[mask]

    def reset(self, rows: Array) -> None:
        """Forget everything about some rows but which message they are."""
        for name in ROW_COLUMNS:
            if name not in ("hi", "lo", "queue", "text") and self.columns[name] is not None:
                self.put(name, rows, DEFAULTS[name])


@dataclass(slots=True)
class Names:
    """Groups or consumers of queues: (queue index, name) -> number, and a time for each."""

    queue: list[int] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    time: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    index: dict[tuple[int, str], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.name)

    def number(self, queue: int, name: str) -> int:
        """The number of a name, given to it now if it is new."""
        found = self.index.get((queue, name))
        if found is None:
            found = self.index[queue, name] = len(self.name)
            self.queue.append(queue)
            self.name.append(name)
        return found

    def numbers(self, queue: Array, index: Array, words: list[str]) -> Array:
        """The numbers of whole columns: per row a queue and an index into `words`, -1 for none."""
        out = np.full(len(index), -1, dtype=np.int32)
        told = np.flatnonzero(index >= 0)
        if len(told):
            width = len(words)
            owner = queue[told].astype(np.int64)
            pairs, place = distinct(owner * width + index[told], (int(owner.max()) + 1) * width)
            names = [(pair // width, words[pair % width]) for pair in pairs.tolist()]
            known = self.index.get
            numbers = [self.number(*name) if (found := known(name)) is None else found for name in names]
            out[told] = np.array(numbers, dtype=np.int32)[place]
        self.grow()
        return out

    def grow(self) -> None:
        """Give every new name its (empty) time."""
        if len(self.time) < len(self.name):
            self.time = np.concatenate([self.time, np.zeros(len(self.name) - len(self.time), dtype=np.int64)])

    def keep(self, used: Array) -> Array:
        """Drop the names where `used` is False; returns the new number of every old one, -1 for the dropped."""
        moved = np.full(len(used) + 1, -1, dtype=np.int32)
        kept = np.flatnonzero(used)
        moved[kept] = np.arange(len(kept))
        self.queue = [self.queue[i] for i in kept]
        self.name = [self.name[i] for i in kept]
        self.time = self.time[kept]
        self.index = {pair: i for i, pair in enumerate(zip(self.queue, self.name, strict=True))}
        return moved


@dataclass(slots=True)
class ShardState:
    """Everything one shard remembers. Made by `empty` or `unpack`; `track` uses it up and returns the next one."""

    rows: Rows
    queues: list[QueueRecord]
    queue_index: dict[QueueName, int]
    groups: Names
    consumers: Names
    texts: pa.Array
    attempts: dict[str, Array]
    fingerprints: dict[str, Array]
    """`hash` (ascending) and `at` of events that have no number of their own, for as long as they may come again."""
    events_total: Counter[str]
    invalid_total: Counter[str]
    collectors: dict[str, int]
    consumer_states: dict[tuple[int, str], list[Any]]
    """(queue index, consumer) -> [at, attributes]."""
    failed_batches: dict[int, int]
    loss_reasons: dict[int, str]
    """Key of a lost message's row -> why, as reported."""
    high_water: int
    """Latest event time seen, and in a replay the latest `now`."""
    now: int

    @classmethod
    def empty(cls) -> ShardState:
        """A shard that has seen nothing."""
        return cls(
            Rows.empty(),
            [],
            {},
            Names(),
            Names(),
            pa.array([], pa.string()),
            {name: np.zeros(0, dtype=dtype) for name, dtype in ATTEMPT_COLUMNS.items()},
            {"hash": np.zeros(0, dtype=np.uint64), "at": np.zeros(0, dtype=np.int64)},
            Counter(),
            Counter(),
            {},
            {},
            {},
            {},
            0,
            0,
        )

    def queue_number(self, name: QueueName) -> int:
        """The index of a queue, given to it now if it is new."""
        found = self.queue_index.get(name)
        if found is None:
            found = self.queue_index[name] = len(self.queues)
            self.queues.append(QueueRecord(name))
        return found

    def queue_hashes(self) -> Array:
        """A 64-bit hash of each queue's name."""
        return np.array([queue_hash(q.name) for q in self.queues], dtype=np.uint64)

    def message_id(self, row: int) -> str:
        """The id of the message of a row as its system writes it."""
        text = self.rows.columns["text"]
        if text is not None and text[row] >= 0:
            return str(self.texts[int(text[row])].as_py())
        return bits_to_uuid(int(self.rows["hi"][row]), int(self.rows["lo"][row]))

    def pack(self) -> bytes:
        """The state as one blob."""
        self._tidy()
        columns: dict[str, Array] = {name: values for name, values in self.rows.columns.items() if values is not None}
        columns |= {f"a.{name}": values for name, values in self.attempts.items()}
        columns |= {f"fp.{name}": values for name, values in self.fingerprints.items()}
        columns |= {"g.time": self.groups.time, "c.time": self.consumers.time}
        columns["texts.lengths"], columns["texts.bytes"] = text_columns(self.texts)
        header = {
            "version": FORMAT_VERSION,
            "rows": len(self.rows),
            "queues": [[getattr(q, f.name) for f in fields(QueueRecord)] for q in self.queues],
            "groups": [self.groups.queue, self.groups.name],
            "consumers": [self.consumers.queue, self.consumers.name],
            "events": self.events_total,
            "invalid": self.invalid_total,
            "collectors": self.collectors,
            "consumer_states": [[q, c, *v] for (q, c), v in self.consumer_states.items()],
            "failed_batches": list(self.failed_batches.items()),
            "loss_reasons": list(self.loss_reasons.items()),
            "high_water": self.high_water,
            "now": self.now,
        }
        return pack_columns(columns, header, raw=_RAW_COLUMNS, compress=True)

    @classmethod
    def unpack(cls, blob: bytes) -> ShardState:
        """The state of `pack`. Raises UnreadableBlob when it is damaged or of a newer version."""
        columns, header = unpack_columns(blob)
        if header["version"] > FORMAT_VERSION:
            raise UnreadableBlob(
                f"state of version {header['version']}, but this queuewatch reads up to {FORMAT_VERSION}: "
                "run the version that wrote it, or start with a new checkpoint folder"
            )
        queues = [_queue_record(values) for values in header["queues"]]
        row_columns: dict[str, Array | None] = {name: columns.get(name) for name in ROW_COLUMNS}
        state = cls.empty()
        state.queues = queues
        state.queue_index = {q.name: i for i, q in enumerate(queues)}
        if header["rows"]:
            hashes = np.array([queue_hash(q.name) for q in queues], dtype=np.uint64)
            shell = Rows(np.zeros(header["rows"], dtype=np.uint64), row_columns)
            shell.key = row_key(shell["hi"], shell["lo"], hashes[shell["queue"]])
            state.rows = shell
        state.groups = _names(header["groups"], columns["g.time"])
        state.consumers = _names(header["consumers"], columns["c.time"])
        state.texts = texts_of(columns["texts.lengths"], columns["texts.bytes"])
        state.attempts = {name: columns[f"a.{name}"] for name in ATTEMPT_COLUMNS}
        state.fingerprints = {name: columns[f"fp.{name}"] for name in ("hash", "at")}
        state.events_total = Counter(header["events"])
        state.invalid_total = Counter(header["invalid"])
        state.collectors = header["collectors"]
        state.consumer_states = {(q, c): v for q, c, *v in header["consumer_states"]}
        state.failed_batches = {int(k): v for k, v in header["failed_batches"]}
        state.loss_reasons = {int(k): v for k, v in header["loss_reasons"]}
        state.high_water = header["high_water"]
        state.now = header["now"]
        return state

    def _tidy(self) -> None:
        """Let go of texts that no row points at any more."""
        rows = self.rows
        if not len(self.texts):
            return
        index = rows["text"]
        used = np.flatnonzero(index >= 0)
        if len(used) * 2 > len(self.texts):
            return
        self.texts = pc.take(self.texts, pa.array(index[used]))
        if len(used):
            rows.put("text", used, np.arange(len(used), dtype=np.int32))


def _queue_record(values: list[Any]) -> QueueRecord:
    named = dict(zip((f.name for f in fields(QueueRecord)), values, strict=False))
    named["name"] = tuple(named["name"])
    named["attributes"] = {k: (at, value) for k, (at, value) in named["attributes"].items()}
    named["holds"] = {int(k): v for k, v in named["holds"].items()}
    return QueueRecord(**named)


def _names(parts: list[Any], time: Array) -> Names:
    queue, name = parts
    return Names(queue, name, time, {pair: i for i, pair in enumerate(zip(queue, name, strict=True))})
