"""The queues of one shard as a table: a row per queue, in the order of their first event, and a column per fact.

Most queues are not touched in a step. Everything a step reads of all queues is a column; what is read only of single queues
(their attributes, the broker's counts) stays packed until it is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.hashing import queue_hash
from streaming.core.settings import QueueName, Settings
from streaming.core.state.counts import (
    LOOKED_AT_MS,
    compactable_counts,
    empty_since,
    most_counts,
    sorted_counts,
    summary_of_counts,
)
from streaming.core.state.limits import KEEPS_ORDER, LIMITS, limits_of
from streaming.core.state.packed_counts import PackedCounts
from streaming.core.state.queue_row import QueueRow
from streaming.core.state.queue_text import SharedTexts, fitting, read_attributes, read_names, write_attributes
from streaming.core.state.queues import (
    FEW_ATTRIBUTE_BYTES,
    MOST_ATTRIBUTE_BYTES,
    MOST_SHARD_ATTRIBUTE_BYTES,
    TOTALS,
    Depth,
    QueueRecord,
    Reported,
    TimeoutChange,
    latest_value,
)
from streaming.core.state.variable_length_rows import VariableLengthRows

FLAGS = ("ordered", "dead_letter", "messages_seen")
DEAD_LETTER_EVIDENCE = ("dead_letter_reported", "dead_letter_apparent", "redrive_target")
"""From what `dead_letter` follows: an event, a report on a queue or the settings say that it is a dead-letter queue; a message
received there names the queue it came from; messages were redriven there, or a redrive task moves them there."""
_ATTRIBUTED_LIVE = "attributed_live"
"""From the attributes: whether they speak against a dead-letter queue, because it has one itself or is nobody's."""
_BOOLEANS = (*FLAGS, *DEAD_LETTER_EVIDENCE, _ATTRIBUTED_LIVE)
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
    "left_out_at",
)
COUNTS = (
    "counted_at",
    "counted_visible",
    "counted_in_flight",
    "counted_delayed",
    "counted_most",
    "empty_since",
    "without_visible_from",
    "without_visible_until",
)
"""From the broker's counts: the latest (its time, 0 before the first); the most messages in its counts of the last five
minutes, -1 before the first; since when its counts have been empty without a break, -1 when the latest was not; the times of the
first and the last of several counts without visible messages, far enough apart, 0 where there are none."""
REPORTED = ("visible_counted_at", "paused", "redrive_reported")
"""From the attributes: when the visible messages were last counted; whether the queue is paused; whether a redrive is known."""
TIMEOUT = tuple(f"timeout_{field}" for field in TimeoutChange._fields)
"""The fields of TimeoutChange."""
_INTS = (*TIMES, *COUNTS, *REPORTED, *TIMEOUT)
_DEPTH = tuple(Depth._fields)
_LIMIT_COLUMN = {name: column for column, name in enumerate(LIMITS)}

_NO_ATTRIBUTES = b"{}"


class QueueTable:
    """A row per queue. `table[number]` is one queue, `table.column(name)` one field of all queues."""

    def __init__(self) -> None:
        self.names: list[QueueName] = []
        self.index: dict[QueueName, int] = {}
        self.hashes: Array = np.zeros(0, dtype=np.uint64)
        """A 64-bit hash of each queue's name."""
        self.totals: Array = np.zeros((0, len(TOTALS)), dtype=np.int64)
        """Running totals, a column for each of TOTALS. Each column is together in memory, as it is stored, reported and read."""
        self._columns: dict[str, Array] = {name: np.zeros(0, dtype=np.int64) for name in _INTS}
        self._columns |= {name: np.zeros(0, dtype=bool) for name in _BOOLEANS}
        self.durations = PackedCounts(b"")
        """Deleted messages by queue and key of `duration_buckets`."""
        self._depths = VariableLengthRows(_DEPTH)
        self._texts: list[bytes] | None = []
        """A text per queue, None until one is needed…"""
        self._shared: SharedTexts | None = None
        """…and the same for all, None when one changed."""
        self._attributes: dict[int, dict[str, Reported]] = {}
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
        """Return one of FLAGS, DEAD_LETTER_EVIDENCE, TIMES, COUNTS, REPORTED or TIMEOUT for all queues."""
        return self._columns[name]

    def number(self, name: QueueName) -> int:
        """Return the row of a queue, adding one if it is new."""
        found = self.index.get(name)
        return self.add([name]) if found is None else found

    def add(self, names: Sequence[QueueName]) -> int:
        """Add rows for new queues; return the number of the first."""
        first, n = len(self.names), len(names)
        self.names = [*self.names, *names]
        self.index = self.index | {name: first + i for i, name in enumerate(names)}
        self.hashes = np.append(self.hashes, np.array([queue_hash(name) for name in names], dtype=np.uint64))
        self.totals = np.concatenate([self.totals.T, np.zeros((len(TOTALS), n), dtype=np.int64)], axis=1).T
        for name, values in self._columns.items():
            self._columns[name] = np.append(values, np.zeros(n, dtype=values.dtype))
        self._columns["counted_most"][first:] = -1
        self._columns["empty_since"][first:] = -1
        self._depths.grow(n)
        self._texts = [*self._text_list(), *[_NO_ATTRIBUTES] * n]
        self._shared = None
        self._limits = np.concatenate([self._limits.T, np.zeros((len(LIMITS), n), dtype=np.int64)], axis=1).T
        self._unlimited.update(range(first, first + n))
        self._packed_names = None
        return first

    def count(self, queue: Array, total: int, sign: int = 1) -> None:
        """Add `sign` (1 or -1) to one of the running totals for each element of `queue` (row numbers)."""
        if len(queue):
            counts = np.bincount(queue)
            self.totals[: len(counts), total] += sign * counts

    def add_durations(self, queue: Array, key: Array) -> None:
        """Count message durations: one under the queue's `key` of `duration_buckets` for each element."""
        self.durations = self.durations.add(queue.astype(np.int64) << 16 | key)

    def are_resolved_by(self, settings: Settings) -> bool:
        """Whether the limits of the queues follow from these settings, not from earlier ones."""
        return self._limits_by == settings.fingerprint

    def limit(self, name: str, settings: Settings) -> Array:
        """Return one of LIMITS for all queues, resolved from their attributes and the settings."""
        if not self.are_resolved_by(settings):
            self._unlimited = set(range(len(self)))
            self._limits_by = settings.fingerprint
        if self._unlimited:
            stale = sorted(self._unlimited)
            self._limits[stale] = [limits_of(self[number], settings) for number in stale]
            self._unlimited = set()
        return self._limits[:, _LIMIT_COLUMN[name]]

    def is_ordered(self, settings: Settings) -> Array:
        """Return which queues are wholly in one shard because their order matters, by their telemetry or by the settings."""
        ordered: Array = self._columns["ordered"] | (self.limit("ordered", settings) > 0)
        return ordered

    def keeps_order(self, settings: Settings) -> Array:
        """Return which of them keep order within a group: not those of which the events say otherwise."""
        ordered: Array = self._columns["ordered"] | (self.limit("ordered", settings) == KEEPS_ORDER)
        return ordered

    def attributes(self, number: int) -> dict[str, Reported]:
        """Return one queue's attributes."""
        found = self._attributes.get(number)
        if found is None:
            found = read_attributes(self._text_list()[number], int(self._columns["last_state_at"][number]))
            self._attributes[number] = found
        return found

    def put_attributes(self, number: int, attributes: dict[str, Reported]) -> None:
        """Replace one queue's attributes."""
        self._attributes[number] = attributes
        self._changed.add(number)
        self._unlimited.add(number)
        visible = attributes.get("visible")
        self._columns["visible_counted_at"][number] = visible.at if visible is not None else 0
        self._columns["paused"][number] = latest_value(attributes, "paused") is True
        self._columns["redrive_reported"][number] = "redrive_task" in attributes
        has_one = latest_value(attributes, "dead_letter_queue")
        self._columns[_ATTRIBUTED_LIVE][number] = bool(has_one) or latest_value(attributes, "dead_letter_sources") == []

    def conclude_dead_letter_queues(self) -> Array:
        """Decide which queues are dead-letter queues. Return the row numbers of those that turned out to be none.

        What a received message shows counts only where nothing speaks against it: a message redriven to a live queue looks alike.
        """
        columns, before = self._columns, self._columns["dead_letter"]
        against = columns["redrive_target"] | columns[_ATTRIBUTED_LIVE]
        columns["dead_letter"] = columns["dead_letter_reported"] | (columns["dead_letter_apparent"] & ~against)
        return nonzero(before & ~columns["dead_letter"])

    def timeout(self, number: int) -> TimeoutChange:
        """Return when one queue's visibility timeout changed."""
        return TimeoutChange(*(int(self._columns[name][number]) for name in TIMEOUT))

    def put_timeout(self, number: int, change: TimeoutChange) -> None:
        """Replace when one queue's visibility timeout changed."""
        for name, value in zip(TIMEOUT, change, strict=True):
            self._columns[name][number] = value

    def timeouts_changed_at(self) -> Array:
        """Return, for all queues, the time before which receives have the visibility timeout of before; 0: none has."""
        since, before_at, before_ms = (self._columns[name] for name in TIMEOUT)
        return np.where((before_at > 0) & (before_ms >= 0), since, 0)

    def repeat(self, numbers: Array, first_at: Array, at: Array, texts: Sequence[bytes]) -> Array:
        """Record the reports (queue_state) that equal the one before; return which do. Most do.

        One report per queue, or the same several times: `numbers` are rows, `first_at` and `at` the times of the first and the
        last, `texts` their attributes in the form of `report_text`.
        """
        before, counted = (self._columns[name][numbers] for name in ("last_state_at", "visible_counted_at"))
        before_texts = self._text_list()
        known = [text == before_texts[number] for number, text in zip(numbers.tolist(), texts, strict=True)]
        same: Array = np.array(known, dtype=bool) & (first_at > before) & [text != _NO_ATTRIBUTES for text in texts]
        if self._changed:
            same &= ~np.isin(numbers, list(self._changed))
        self._columns["last_state_at"][numbers[same]] = at[same]
        visible = same & (counted == before)
        self._columns["visible_counted_at"][numbers[visible]] = at[visible]
        if self._attributes:
            for number in numbers[same].tolist():
                self._attributes.pop(number, None)
        return same

    def depths(self, number: int) -> list[Depth]:
        """Return recent counts by the broker, oldest first."""
        return [Depth(*row) for row in self._depths.rows(number)]

    def add_depths(self, queues: Array, keep_since: Array, owner: Array, depths: Array) -> None:
        """Add counts by the broker: a row of the fields of Depth for each element of `owner`, all of them of `queues`.

        `queues` (row numbers, ascending) may have further ones. Counts before a queue's `keep_since` (epoch milliseconds), except
        the last two, and the oldest of very many are compacted into `empty_from`.
        """
        known_owner, known = self._depths.take(queues)
        owner, rows = sorted_counts(np.concatenate([known_owner, owner]), np.concatenate([known, depths]))
        compactable = compactable_counts(owner, rows, queues, keep_since, most_counts(len(self)))
        columns = self._columns
        columns["empty_from"][queues] = empty_since(columns["empty_from"][queues], owner[compactable], rows[compactable], queues)
        self._put_depths(queues, owner[~compactable], rows[~compactable])

    def forget_depths_after(self, limit: int) -> None:
        """Forget counts later than `limit` (epoch milliseconds), which were taken while the clock was wrong."""
        everyone = np.arange(len(self))
        owner, rows = self._depths.take(everyone)
        kept = rows[:, _DEPTH.index("at")] <= limit
        self._put_depths(everyone, owner[kept], rows[kept])

    def _put_depths(self, queues: Array, owner: Array, rows: Array) -> None:
        self._depths.replace(queues, owner, rows)
        after_ms = self._limits[queues, _LIMIT_COLUMN["reconcile_after_ms"]]
        after_ms = np.where(after_ms > 0, after_ms, LOOKED_AT_MS)  # not resolved yet
        for name, values in summary_of_counts(self._columns["empty_from"][queues], owner, rows, queues, after_ms).items():
            self._columns[name][queues] = values

    def flat_depths(self) -> tuple[Array, ...]:
        """Return all counts by the broker: queue (row numbers, ascending), then a column for each field of Depth."""
        return self._depths.flat()

    def attribute_texts(self) -> SharedTexts:
        """Return the attributes of each queue in the form `read_attributes` parses."""
        if self._changed:
            for number in sorted(self._changed):
                self._write(number, MOST_ATTRIBUTE_BYTES)
            self._changed, self._shared = set(), None
        if self._shared is None:
            self._shared = self._shared_texts()
        return self._shared

    def _shared_texts(self) -> SharedTexts:
        """Return the attributes of all queues, without much of the longest ones if they are too long together."""
        shared = SharedTexts.shared(self._text_list())
        lengths = np.fromiter(map(len, shared.texts), dtype=np.int64, count=len(shared.texts))
        too_many = int(lengths.sum()) - MOST_SHARD_ATTRIBUTE_BYTES
        if too_many <= 0:
            return shared
        long = nonzero(lengths > FEW_ATTRIBUTE_BYTES)
        longest_first = long[np.argsort(-lengths[long], kind="stable")]
        saved = np.cumsum(lengths[longest_first] - FEW_ATTRIBUTE_BYTES)
        shortened = longest_first[: int(np.searchsorted(saved, too_many)) + 1]
        for number in nonzero(np.isin(shared.of, shortened)).tolist():
            self._attributes[number] = self.attributes(number)
            self._write(number, FEW_ATTRIBUTE_BYTES)
        self._changed = set()
        return SharedTexts.shared(self._text_list())

    def _write(self, number: int, most_bytes: int) -> None:
        """Write the attributes of a queue as text, as far as they fit."""
        text = write_attributes(self._attributes[number], int(self._columns["last_state_at"][number]))
        if len(text) > most_bytes:
            self.put_attributes(number, fitting(self._attributes[number], most_bytes))
            text = write_attributes(self._attributes[number], int(self._columns["last_state_at"][number]))
        self._text_list()[number] = text

    def _text_list(self) -> list[bytes]:
        if self._texts is None:
            self._texts = self._shared.all() if self._shared is not None else []
        return self._texts

    def packed_names(self) -> bytes:
        """Return all names packed for `read_names`."""
        if self._packed_names is None:
            self._packed_names = json.dumps(self.names, separators=(",", ":")).encode()
        return self._packed_names

    def record(self, number: int) -> QueueRecord:
        """Return a copy of everything known about one queue."""
        row = self[number]
        values = {name: getattr(row, name) for name in (*FLAGS, *DEAD_LETTER_EVIDENCE, *TIMES)}
        totals = self.totals[number].tolist()
        durations = dict(zip(*(column.tolist() for column in self.durations.of_queue(number)), strict=True))
        return QueueRecord(
            name=row.name,
            attributes=dict(row.attributes),
            totals=totals,
            depths=self.depths(number),
            durations=durations,
            timeout=row.timeout,
            **values,
        )

    @classmethod
    def of(cls, records: Iterable[QueueRecord]) -> QueueTable:
        """Build the table from records."""
        table, found = cls(), list(records)
        table.add([record.name for record in found])
        for number, record in enumerate(found):
            for name in (*FLAGS, *DEAD_LETTER_EVIDENCE, *TIMES):
                table._columns[name][number] = getattr(record, name)
            table.totals[number] = record.totals
            table.put_attributes(number, record.attributes)
            table.put_timeout(number, record.timeout)
        table.durations = PackedCounts.from_queues(record.durations for record in found)
        depths = VariableLengthRows.of(_DEPTH, [record.depths for record in found])
        everyone = np.arange(len(found))
        table.add_depths(everyone, np.zeros(len(found), dtype=np.int64), *depths.take(everyone))
        return table

    def pack(self) -> dict[str, Array]:
        """Return the table as one-dimensional columns for `unpack`."""
        attributes = self.attribute_texts()
        columns = {f"q.{name}": values for name, values in self._columns.items() if values.dtype != bool}
        columns |= {f"q.{name}": self._columns[name].view(np.uint8) for name in _BOOLEANS}
        columns |= {f"q.t.{name}": self.totals[:, i] for i, name in enumerate(TOTALS)}
        columns |= {f"q.l.{name}": self._limits[:, i] for i, name in enumerate(LIMITS)}
        columns |= self._depths.pack("q.d.")
        columns["q.durations"] = np.frombuffer(self.durations.to_bytes(), dtype=np.uint8)
        columns["q.names"] = np.frombuffer(self.packed_names(), dtype=np.uint8)
        columns["q.hash"] = self.hashes
        texts = attributes.texts
        columns["q.attributes.of"] = attributes.of
        columns["q.attributes.lengths"] = np.fromiter(map(len, texts), dtype=np.int32, count=len(texts))
        columns["q.attributes.bytes"] = np.frombuffer(b"".join(texts), dtype=np.uint8)
        columns["q.limits_by"] = np.array([0 if self._unlimited else self._limits_by], dtype=np.uint64)
        return columns

    @classmethod
    def unpack(cls, columns: dict[str, Array]) -> QueueTable:
        """Rebuild the table from the columns of `pack`."""
        table = cls()
        table._packed_names = columns["q.names"].tobytes()
        names, index = read_names(table._packed_names)
        table.names, table.index = list(names), index
        table.hashes = columns["q.hash"]
        table.totals = np.stack([columns[f"q.t.{name}"] for name in TOTALS]).T
        table._limits = np.stack([columns[f"q.l.{name}"] for name in LIMITS]).T
        table._limits_by = int(columns["q.limits_by"][0])
        table._columns = {name: columns[f"q.{name}"] for name in _INTS}
        table._columns |= {name: columns[f"q.{name}"].view(bool) for name in _BOOLEANS}
        table.durations = PackedCounts(columns["q.durations"].tobytes())
        table._depths = VariableLengthRows.unpack(_DEPTH, columns, "q.d.")
        ends = np.cumsum(columns["q.attributes.lengths"]).tolist()
        body = columns["q.attributes.bytes"].tobytes()
        texts = [body[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        shared = SharedTexts(columns["q.attributes.of"], texts)
        # In earlier formats every queue had a text of its own.
        table._texts, table._shared = (shared.all(), None) if len(texts) == len(names) else (None, shared)
        return table
