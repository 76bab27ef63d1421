"""The queues of one shard as a table: a row each, in the order they were first heard of, with a column for each thing known.

Most queues are not touched in a step. So what every step looks at is a column, taken whole; what is read of single queues (their
attributes, the broker's counts) stays packed until somebody asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from streaming.core.columns import Array
from streaming.core.events.events import queue_hash
from streaming.core.settings import QueueName, Settings
from streaming.core.state.limits import LIMITS, limits_of
from streaming.core.state.queues import MOST_ATTRIBUTES, TOTALS, Depth, QueueRecord
from streaming.core.state.ragged import Ragged

FLAGS = ("ordered", "dead_letter", "messages_seen")
TIMES = (
    "empty_from",
    "purged_at",
    "last_event_at",
    "last_received_at",
    "last_settled_at",
    "last_state_at",
    "skew_ms",
    "youngest_sent_at",
    "youngest_received_at",
)
COUNTS = (
    "counted_at",
    "counted_visible",
    "counted_in_flight",
    "counted_delayed",
    "counted_most",
    "empty_since",
)
"""Of the broker's counts: the latest (its time, 0 before the first); the most messages of those of its last five minutes, -1
before the first; since when it has said empty without a break, -1 when its last word was another."""
TOLD = ("visible_told_at", "paused", "redrive_told")
"""Of the attributes: when the visible messages were last counted; whether the queue is paused, or a redrive task is known."""
_INTS = (*TIMES, *COUNTS, *TOLD)
_DEPTH = tuple(Depth._fields)

COUNTS_LOOKED_AT_MS = 300_000


class QueueTable:
    """A row for each queue. `table[number]` is one of them, `table.column(name)` one thing known of all."""

    def __init__(self) -> None:
        self.names: list[QueueName] = []
        self.index: dict[QueueName, int] = {}
        self.hashes: Array = np.zeros(0, dtype=np.uint64)
        """A 64-bit hash of each queue's name."""
        self.totals: Array = np.zeros((0, len(TOTALS)), dtype=np.int64)
        """Running totals, a column for each of TOTALS."""
        self._columns: dict[str, Array] = {name: np.zeros(0, dtype=np.int64) for name in _INTS}
        self._columns |= {name: np.zeros(0, dtype=bool) for name in FLAGS}
        self._holds = Ragged(("bucket", "count"))
        self._durations = Ragged(("bucket", "count"))
        self._depths = Ragged(_DEPTH)
        self._texts: list[bytes] = []
        self._attributes: dict[int, dict[str, tuple[int, Any]]] = {}
        self._changed: set[int] = set()
        self._limits: Array = np.zeros((0, len(LIMITS)), dtype=np.int64)
        self._limits_by = 0
        self._unlimited: set[int] = set()
        self._packed_names: bytes | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: int) -> QueueRow:
        return QueueRow(self, number)

    def __iter__(self) -> Iterator[QueueRow]:
        return (QueueRow(self, number) for number in range(len(self.names)))

    def column(self, name: str) -> Array:
        """One of FLAGS, TIMES, COUNTS or TOLD, of all queues."""
        return self._columns[name]

    def number(self, name: QueueName) -> int:
        """The row of a queue, given to it now if it is new."""
        found = self.index.get(name)
        return self.add([name]) if found is None else found

    def add(self, names: Sequence[QueueName]) -> int:
        """New rows for queues that have none; returns the number of the first."""
        first, n = len(self.names), len(names)
        self.names = [*self.names, *names]
        self.index = self.index | {name: first + i for i, name in enumerate(names)}
        self.hashes = np.append(self.hashes, np.array([queue_hash(name) for name in names], dtype=np.uint64))
        self.totals = np.concatenate([self.totals, np.zeros((n, len(TOTALS)), dtype=np.int64)])
        for name, values in self._columns.items():
            self._columns[name] = np.append(values, np.zeros(n, dtype=values.dtype))
        self._columns["counted_most"][first:] = -1
        self._columns["empty_since"][first:] = -1
        self._holds.grow(n)
        self._durations.grow(n)
        self._depths.grow(n)
        self._texts += [b"{}"] * n
        self._limits = np.concatenate([self._limits, np.zeros((n, len(LIMITS)), dtype=np.int64)])
        self._unlimited.update(range(first, first + n))
        self._packed_names = None
        return first

    def count(self, queue: Array, total: int, sign: int = 1) -> None:
        """Add to one of the running totals: 1 for each element of `queue` (row numbers), or -1."""
        if len(queue):
            counts = np.bincount(queue)
            self.totals[: len(counts), total] += sign * counts

    def add_holds(self, queue: Array, bucket: Array) -> None:
        """Count holding times: one in `bucket` of the queue for each element."""
        pairs, n = np.unique(queue.astype(np.int64) << 8 | bucket, return_counts=True)
        self._holds.add(pairs >> 8, pairs & 0xFF, n)

    def add_durations(self, queue: Array, bucket: Array) -> None:
        """Count how long messages took: one in `bucket` (kind and place, see `durations`) of the queue for each element."""
        pairs, n = np.unique(queue.astype(np.int64) << 16 | bucket, return_counts=True)
        self._durations.add(pairs >> 16, pairs & 0xFFFF, n)

    def limit(self, name: str, settings: Settings) -> Array:
        """One of LIMITS, of all queues: what their attributes and the settings come to."""
        if self._limits_by != settings.fingerprint:
            self._unlimited = set(range(len(self)))
            self._limits_by = settings.fingerprint
        if self._unlimited:
            stale = sorted(self._unlimited)
            self._limits[stale] = [limits_of(self[number], settings) for number in stale]
            self._unlimited = set()
        return self._limits[:, LIMITS.index(name)]

    def is_ordered(self, settings: Settings) -> Array:
        """Which queues keep order: their telemetry, or the settings, say so."""
        ordered: Array = self._columns["ordered"] | (self.limit("ordered", settings) > 0)
        return ordered

    def attributes(self, number: int) -> dict[str, tuple[int, Any]]:
        """Attribute -> (when told, value)."""
        found = self._attributes.get(number)
        if found is None:
            at = int(self._columns["last_state_at"][number])
            told = _read_attributes(self._texts[number])
            found = self._attributes[number] = {name: (told_at or at, value) for name, (told_at, value) in told.items()}
        return found

    def put_attributes(self, number: int, attributes: dict[str, tuple[int, Any]]) -> None:
        """What is told of one queue from now on."""
        self._attributes[number] = attributes
        self._changed.add(number)
        self._unlimited.add(number)
        visible = attributes.get("visible")
        self._columns["visible_told_at"][number] = visible[0] if visible is not None else 0
        self._columns["paused"][number] = attributes.get("paused", (0, None))[1] is True
        self._columns["redrive_told"][number] = "redrive_task" in attributes

    def depths(self, number: int) -> list[Depth]:
        """Recent counts by the broker, oldest first."""
        return [Depth(*row) for row in self._depths.rows(number)]

    def put_depths(self, number: int, depths: Sequence[Depth]) -> None:
        """What the broker counted lately, oldest first."""
        self._depths.put(number, depths)
        columns, latest = self._columns, depths[-1] if depths else None
        for name, value in zip(COUNTS, latest or (0, 0, 0, 0), strict=False):
            columns[name][number] = value
        since = latest.at - COUNTS_LOOKED_AT_MS if latest is not None else 0
        columns["counted_most"][number] = max((depth.unsettled for depth in depths if depth.at >= since), default=-1)
        start = int(columns["empty_from"][number])
        for depth in depths:
            start = (start or depth.at) if depth.unsettled == 0 else 0
        columns["empty_since"][number] = start if latest is not None and latest.unsettled == 0 else -1

    def holds(self, number: int) -> dict[int, int]:
        """Holding-time bucket -> messages deleted after being held so long."""
        return {int(bucket): int(count) for bucket, count in self._holds.rows(number)}

    def durations(self, number: int) -> dict[int, int]:
        """Kind and bucket of `durations` -> deleted messages."""
        return {int(bucket): int(count) for bucket, count in self._durations.rows(number)}

    def flat_durations(self) -> tuple[Array, ...]:
        """How long messages took: queue (row numbers, ascending), kind and bucket, count."""
        return self._durations.flat()

    def flat_holds(self) -> tuple[Array, ...]:
        """All holding times: queue (row numbers, ascending), bucket, count."""
        return self._holds.flat()

    def flat_depths(self) -> tuple[Array, ...]:
        """All counts by the broker: queue (row numbers, ascending), then a column for each field of Depth."""
        return self._depths.flat()

    def attribute_texts(self) -> list[bytes]:
        """The attributes of each queue as `read_attributes` reads them."""
        for number in sorted(self._changed):
            at = int(self._columns["last_state_at"][number])
            self._texts[number] = _write_attributes(self._attributes[number], at)
        self._changed = set()
        return self._texts

    def packed_names(self) -> bytes:
        """All names, for `read_names`."""
        if self._packed_names is None:
            self._packed_names = json.dumps(self.names, separators=(",", ":")).encode()
        return self._packed_names

    def record(self, number: int) -> QueueRecord:
        """A copy of everything known of one queue."""
        row = self[number]
        values = {name: getattr(row, name) for name in (*FLAGS, *TIMES)}
        totals = self.totals[number].tolist()
        durations = self.durations(number)
        return QueueRecord(row.name, dict(row.attributes), totals, self.holds(number), self.depths(number), durations, **values)

    @classmethod
    def of(cls, records: Iterable[QueueRecord]) -> QueueTable:
        """The table of some records."""
        table, found = cls(), list(records)
        table.add([record.name for record in found])
        for number, record in enumerate(found):
            for name in (*FLAGS, *TIMES):
                table._columns[name][number] = getattr(record, name)
            table.totals[number] = record.totals
            table._holds.put(number, sorted(record.holds.items()))
            table._durations.put(number, sorted(record.durations.items()))
            table.put_attributes(number, record.attributes)
            table.put_depths(number, record.depths)
        return table

    def pack(self) -> dict[str, Array]:
        """The table as one-dimensional columns, for `unpack`."""
        texts = self.attribute_texts()
        columns = {f"q.{name}": values for name, values in self._columns.items() if values.dtype != bool}
        columns |= {f"q.{name}": self._columns[name].view(np.uint8) for name in FLAGS}
        columns |= {f"q.t.{name}": np.ascontiguousarray(self.totals[:, i]) for i, name in enumerate(TOTALS)}
        columns |= {f"q.l.{name}": np.ascontiguousarray(self._limits[:, i]) for i, name in enumerate(LIMITS)}
        columns |= self._holds.pack("q.h.") | self._durations.pack("q.w.") | self._depths.pack("q.d.")
        columns["q.names"] = np.frombuffer(self.packed_names(), dtype=np.uint8)
        columns["q.hash"] = self.hashes
        columns["q.told.lengths"] = np.fromiter(map(len, texts), dtype=np.int32, count=len(texts))
        columns["q.told.bytes"] = np.frombuffer(b"".join(texts), dtype=np.uint8)
        columns["q.limits_by"] = np.array([0 if self._unlimited else self._limits_by], dtype=np.uint64)
        return columns

    @classmethod
    def unpack(cls, columns: dict[str, Array]) -> QueueTable:
        """The table of `pack`."""
        table = cls()
        table._packed_names = columns["q.names"].tobytes()
        names, index = read_names(table._packed_names)
        table.names, table.index = list(names), index
        table.hashes = columns["q.hash"]
        table.totals = np.stack([columns[f"q.t.{name}"] for name in TOTALS], axis=1)
        table._limits = np.stack([columns[f"q.l.{name}"] for name in LIMITS], axis=1)
        table._limits_by = int(columns["q.limits_by"][0])
        table._columns = {name: columns[f"q.{name}"] for name in _INTS}
        table._columns |= {name: columns[f"q.{name}"].view(bool) for name in FLAGS}
        table._holds = Ragged.unpack(("bucket", "count"), columns, "q.h.")
        table._durations = Ragged.unpack(("bucket", "count"), columns, "q.w.")
        table._depths = Ragged.unpack(_DEPTH, columns, "q.d.")
        ends = np.cumsum(columns["q.told.lengths"]).tolist()
        body = columns["q.told.bytes"].tobytes()
        table._texts = [body[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        return table


class _Time:
    """A number of one queue, read from and written to its column."""

    def __init__(self, column: str) -> None:
        self.column = column

    def __get__(self, row: QueueRow, owner: type[QueueRow] | None = None) -> int:
        return int(row.table.column(self.column)[row.place])

    def __set__(self, row: QueueRow, value: int) -> None:
        row.table.column(self.column)[row.place] = value


class _Flag:
    """A truth about one queue, read from and written to its column."""

    def __init__(self, column: str) -> None:
        self.column = column

    def __get__(self, row: QueueRow, owner: type[QueueRow] | None = None) -> bool:
        return bool(row.table.column(self.column)[row.place])

    def __set__(self, row: QueueRow, value: bool) -> None:
        row.table.column(self.column)[row.place] = value


class QueueRow:
    """One queue of the table. Times are epoch milliseconds, 0 when it never happened."""

    __slots__ = ("place", "table")

    ordered, dead_letter, messages_seen = _Flag("ordered"), _Flag("dead_letter"), _Flag("messages_seen")
    empty_from = _Time("empty_from")
    """The broker has said empty ever since then, as of the oldest of `depths` (0: it had not)."""
    purged_at = _Time("purged_at")
    last_event_at, last_received_at = _Time("last_event_at"), _Time("last_received_at")
    last_settled_at, last_state_at = _Time("last_settled_at"), _Time("last_state_at")
    skew_ms = _Time("skew_ms")
    youngest_sent_at = _Time("youngest_sent_at")
    """When the youngest of the messages received so far was sent…"""
    youngest_received_at = _Time("youngest_received_at")
    """…and when it was last received."""

    def __init__(self, table: QueueTable, place: int) -> None:
        self.table, self.place = table, place

    @property
    def name(self) -> QueueName:
        return self.table.names[self.place]

    @property
    def attributes(self) -> dict[str, tuple[int, Any]]:
        """Attribute -> (when told, value). Not to be changed: see `learn`."""
        return self.table.attributes(self.place)

    @property
    def depths(self) -> list[Depth]:
        """Recent counts by the broker, oldest first."""
        return self.table.depths(self.place)

    @property
    def totals(self) -> Array:
        """Running totals by index of TOTALS; writing to it counts."""
        totals: Array = self.table.totals[self.place]
        return totals

    @property
    def holds(self) -> dict[int, int]:
        """Holding-time bucket -> messages deleted after being held so long."""
        return self.table.holds(self.place)

    def attribute(self, name: str) -> Any:
        """The latest value of an attribute, or None when it was never told."""
        found = self.attributes.get(name)
        return None if found is None else found[1]

    def number(self, name: str) -> float | None:
        """The latest value of a numeric attribute."""
        value = self.attribute(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def learn(self, at: int, attributes: dict[str, Any], keep_since: int) -> None:
        """Take in one queue_state of time `at`; depths before `keep_since` are folded into `empty_from`."""
        known = dict(self.attributes)
        for name, value in attributes.items():
            told = known.get(name)
            if told is None or at > told[0] or (at == told[0] and repr(value) >= repr(told[1])):
                known[name] = (at, value)
        if len(known) > MOST_ATTRIBUTES:
            latest = sorted(known, key=lambda name: (known[name][0], name))[-MOST_ATTRIBUTES:]
            known = {name: known[name] for name in latest}
        self.last_state_at = max(self.last_state_at, at)
        self.table.put_attributes(self.place, known)
        depths = self.depths
        visible, in_flight = attributes.get("visible"), attributes.get("in_flight")
        if isinstance(visible, int) and isinstance(in_flight, int):
            delayed = attributes.get("delayed")
            depth = Depth(at, visible, in_flight, delayed if isinstance(delayed, int) else -1)
            if depth not in depths:
                depths.append(depth)
                depths.sort()
        while len(depths) > 2 and depths[1].at < keep_since:
            oldest = depths.pop(0)
            self.empty_from = (self.empty_from or oldest.at) if oldest.unsettled == 0 else 0
        self.table.put_depths(self.place, depths)


@lru_cache(maxsize=8)
def read_names(packed: bytes) -> tuple[tuple[QueueName, ...], dict[QueueName, int]]:
    """The names of `packed_names`, and the place of each. The dictionary is shared: it is not to be changed."""
    # A worker unpacks the same names in every batch.
    names = tuple(QueueName(*name) for name in json.loads(packed))
    return names, {name: place for place, name in enumerate(names)}


def _write_attributes(attributes: dict[str, tuple[int, Any]], last_state_at: int) -> bytes:
    """As JSON, a time of 0 for what the latest queue_state told: most of them tell the same as the one before."""
    told = {name: (0 if at == last_state_at else at, value) for name, (at, value) in attributes.items()}
    return json.dumps(told, separators=(",", ":")).encode()


def _read_attributes(text: bytes) -> dict[str, tuple[int, Any]]:
    return {name: (at, value) for name, (at, value) in json.loads(text).items()}


def read_attributes(text: bytes, last_state_at: int) -> dict[str, tuple[int, Any]]:
    """The attributes of one of `attribute_texts`: attribute -> (when told, value)."""
    return {name: (at or last_state_at, value) for name, (at, value) in _read_attributes(text).items()}
