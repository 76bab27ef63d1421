"""The state of one shard: a row per (queue, message), small tables beside it, and segments. Versioned blobs.

An ended message is kept until the lateness has expired, so that a late receive does not bring it back to life: first as a row,
then in a tombstone segment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.columns import (
    DAMAGE,
    Array,
    Buffer,
    UnreadableBlob,
    nonzero,
    pack_columns,
    text_columns,
    texts_of,
    unpack_columns,
)
from streaming.core.hashing import bits_to_uuid
from streaming.core.settings import QueueName, Settings
from streaming.core.state.consumer_states import ConsumerStates
from streaming.core.state.id_segments import IdSegment, place_ids, read_ids
from streaming.core.state.interner import CONSUMER_COLUMNS, GROUP_COLUMNS, Interner
from streaming.core.state.loss_reasons import pack_reasons, unpack_reasons
from streaming.core.state.queue_table import QueueTable
from streaming.core.state.queues import Refusals
from streaming.core.state.related_columns import OF_ATTEMPTS, OF_ROWS, to_distances, to_times
from streaming.core.state.rows import STORED_COLUMNS, Rows
from streaming.core.state.upgrades import FORMAT_VERSION, upgrade_head
from streaming.core.state.variable_length_rows import pack_lists, unpack_lists

ATTEMPT_COLUMNS: dict[str, str] = {
    "key": "u8",
    "at": "i8",
    "code": "u1",
    "receive_count": "i4",
    "end": "i8",
    "consumer": "i4",
    "batch": "u8",
}
SILENT_MEMORY_MS = 24 * 3_600_000
"""A consumer or collector silent for this long is no longer expected."""

_RAW_COLUMNS = frozenset(
    {"hi", "lo", "batch", "a.key", "a.batch", "parent", "fp.hash", "lost.key", "q.durations", "q.hash", "cs.digest"}
)


@dataclass(frozen=True, slots=True)
class TombstoneSegment:
    """Ended messages compacted together (see `tombstones`): immutable, so written once and named by its content."""

    name: str
    rows: int
    last_end: int
    """When the last of these messages ended, in epoch milliseconds."""
    queues: Array
    """The queues of these messages, ascending row numbers."""
    renumbered: int
    """How many renumberings of names had happened when this was written."""
    body: Buffer
    """Keys, ascending, eight bytes each, followed by the packed columns."""

    @property
    def keys(self) -> Array:
        """Return the key of each row."""
        return np.frombuffer(self.body, dtype=np.uint64, count=self.rows)


class Packed(NamedTuple):
    """A state as bytes. `segments` maps names to parts that seldom change: a name always stands for the same bytes."""

    head: bytes
    segments: Mapping[str, Buffer]

    @property
    def size(self) -> int:
        """Return the total size in bytes."""
        return len(self.head) + sum(len(body) for body in self.segments.values())


@dataclass(slots=True)
class ShardState:
    """Everything one shard remembers. Created by `empty` or `unpack`; `track` consumes it and returns the next one."""

    rows: Rows
    queues: QueueTable
    groups: Interner
    consumers: Interner
    texts: pa.Array
    attempts: dict[str, Array]
    fingerprints: dict[str, Array]
    """`hash` (ascending) and `at` of events without a number of their own, for as long as they may be repeated."""
    events_total: Counter[str]
    invalid_total: Counter[str]
    collectors: dict[str, int]
    consumer_states: ConsumerStates
    failed_batches: dict[int, int]
    loss_reasons: dict[int, str]
    """Key of a lost message's row -> the reported reason."""
    refusals: dict[int, Refusals]
    """Key of a message's row, also of one without a row -> how often its settlement was refused."""
    segments: list[TombstoneSegment]
    """Oldest first."""
    id_segments: list[IdSegment]
    """Those the state was read with; `pack` writes what is new to others."""
    renumberings: dict[int, tuple[str, Array]]
    """Number -> which column's names were renumbered, and how; kept as long as a segment uses the earlier numbers."""
    renumbered: int
    high_water: int
    """Latest event time seen, and in a replay the latest `now`."""
    now: int
    late_work_ms: dict[int, int] = field(default_factory=dict)
    """Queue -> the longest work that ended after its visibility window, in this step. It is reported and not stored."""

    @classmethod
    def empty(cls) -> ShardState:
        """Return the state of a shard that has seen nothing."""
        return cls(
            rows=Rows.empty(),
            queues=QueueTable(),
            groups=Interner(),
            consumers=Interner(),
            texts=pa.array([], pa.string()),
            attempts={name: np.zeros(0, dtype=dtype) for name, dtype in ATTEMPT_COLUMNS.items()},
            fingerprints={"hash": np.zeros(0, dtype=np.uint64), "at": np.zeros(0, dtype=np.int64)},
            events_total=Counter(),
            invalid_total=Counter(),
            collectors={},
            consumer_states=ConsumerStates(),
            failed_batches={},
            loss_reasons={},
            refusals={},
            segments=[],
            id_segments=[],
            renumberings={},
            renumbered=0,
            high_water=0,
            now=0,
        )

    def oldest_timely_at(self, settings: Settings) -> int:
        """Return the time (epoch milliseconds) before which an event is late, so that older ends may be forgotten."""
        return self.high_water - settings.lateness_ms

    def queue_number(self, name: QueueName) -> int:
        """Return the index of a queue, assigning one if it is new."""
        return self.queues.number(name)

    def message_ids(self, rows: Array) -> list[str]:
        """Return the message ids of some rows."""
        bits = zip(self.rows.at("hi", rows).tolist(), self.rows.at("lo", rows).tolist(), strict=True)
        ids = [bits_to_uuid(hi, lo) for hi, lo in bits]
        text = self.rows.at("text", rows)
        with_text = nonzero(text >= 0)
        if len(with_text):
            for i, word in zip(with_text.tolist(), self.texts.take(pa.array(text[with_text])).to_pylist(), strict=True):
                ids[i] = word
        return ids

    def remember_renumbering(self, column: str, moved: Array) -> None:
        """Record that the names of `column` (group or consumer) have new numbers: `moved[old]`. Segments keep the old ones."""
        oldest = min((segment.renumbered for segment in self.segments), default=self.renumbered + 1)
        self.renumberings = {serial: reported for serial, reported in self.renumberings.items() if serial >= oldest}
        if self.segments:
            self.renumberings[self.renumbered] = (column, moved)
        self.renumbered += 1

    def drop_timelines(self, keys: Array) -> None:
        """Drop the attempts of some rows, by ascending key."""
        table = self.attempts
        if len(table["key"]) and len(keys):
            at = np.minimum(np.searchsorted(keys, table["key"]), len(keys) - 1)
            keep = keys[at] != table["key"]
            if not keep.all():
                self.attempts = {name: values[keep] for name, values in table.items()}

    def message_id(self, row: int) -> str:
        """Return a row's message id as its system writes it."""
        return self.message_ids(np.array([row]))[0]

    @property
    def messages(self) -> int:
        """Return the number of remembered messages, tombstones included."""
        return len(self.rows) + sum(segment.rows for segment in self.segments)

    def pack(self, ids_apart_from: int | None = None) -> Packed:
        """Serialize the state to bytes; the ids of its messages to segments of their own if it has `ids_apart_from` rows."""
        self.drop_unused_texts()
        columns = {name: values for name in STORED_COLUMNS if (values := self.rows.columns[name]) is not None}
        columns = to_distances(columns, OF_ROWS, self.rows.columns)
        ids = place_ids(self.rows, self.id_segments, ids_apart_from, self.queues.hashes)
        columns |= ids.columns
        attempts = {f"a.{name}": values for name, values in self.attempts.items()}
        columns |= to_distances(attempts, OF_ATTEMPTS, attempts)
        columns |= self.queues.pack()
        columns |= self.consumer_states.pack()
        columns |= {f"fp.{name}": values for name, values in self.fingerprints.items()}
        for kind, names in (("g", self.groups), ("c", self.consumers)):
            columns |= {f"{kind}.queue": names.queue, f"{kind}.time": names.time}
            columns |= {f"{kind}.{name}": getattr(names, name) for name in (*CONSUMER_COLUMNS, *GROUP_COLUMNS)}
            columns[f"{kind}.lengths"], columns[f"{kind}.bytes"] = text_columns(names.texts)
        columns |= {f"moved.{serial}": moved for serial, (_, moved) in self.renumberings.items()}
        columns["texts.lengths"], columns["texts.bytes"] = text_columns(self.texts)
        columns |= pack_lists("s.queues", [segment.queues for segment in self.segments])
        of_losses, loss_reasons = pack_reasons(self.loss_reasons)
        columns |= of_losses
        header = {
            "version": FORMAT_VERSION,
            "rows": len(self.rows),
            "events": self.events_total,
            "invalid": self.invalid_total,
            "collectors": self.collectors,
            "failed_batches": list(self.failed_batches.items()),
            "loss_reasons": loss_reasons,
            "refusals": [[key, *refusals] for key, refusals in self.refusals.items()],
            "segments": [[segment.name, segment.rows, segment.last_end, segment.renumbered] for segment in self.segments],
            "ids": [[segment.name, segment.rows, segment.is_ids_alone] for segment in ids.segments],
            "renumberings": [[serial, column] for serial, (column, _) in self.renumberings.items()],
            "renumbered": self.renumbered,
            "high_water": self.high_water,
            "now": self.now,
        }
        head = pack_columns(columns, header, raw=_RAW_COLUMNS, compress=True)
        bodies = {segment.name: segment.body for segment in self.segments}
        return Packed(head, bodies | {segment.name: segment.body for segment in ids.segments})

    @classmethod
    def unpack(cls, packed: Packed) -> ShardState:
        """Read a state of this format or an earlier one. Raises UnreadableBlob when it is damaged or of a newer format."""
        columns, header = unpack_columns(packed.head)
        try:
            upgrade_head(columns, header)
            return cls._of(columns, header, packed.segments)
        except UnreadableBlob:
            raise
        except DAMAGE as error:
            raise UnreadableBlob(f"the state is damaged: {type(error).__name__}: {error}") from error

    @classmethod
    def _of(cls, columns: dict[str, Array], header: dict[str, Any], segments: Mapping[str, Buffer]) -> ShardState:
        state = cls.empty()
        state.queues = QueueTable.unpack(columns)
        if header["rows"]:
            ids = [(name, rows, is_alone, segments[name]) for name, rows, is_alone in header["ids"]]
            state.rows, state.id_segments = read_ids(columns, header["rows"], ids, state.queues.hashes)
            columns["sent"] = state.rows["sent"]
            to_times(columns, OF_ROWS)
            state.rows.columns |= {name: columns.get(name) for name in OF_ROWS}
        to_times(columns, OF_ATTEMPTS)
        state.groups, state.consumers = (_names(columns, kind) for kind in ("g", "c"))
        state.texts = texts_of(columns["texts.lengths"], columns["texts.bytes"])
        state.attempts = {name: columns[f"a.{name}"] for name in ATTEMPT_COLUMNS}
        state.fingerprints = {name: columns[f"fp.{name}"] for name in ("hash", "at")}
        state.events_total = Counter(header["events"])
        state.invalid_total = Counter(header["invalid"])
        state.collectors = header["collectors"]
        state.consumer_states = ConsumerStates.unpack(columns)
        state.failed_batches = {int(k): v for k, v in header["failed_batches"]}
        state.loss_reasons = unpack_reasons(columns, header["loss_reasons"])
        state.refusals = {key: Refusals(*refusals) for key, *refusals in header["refusals"]}
        queues = unpack_lists("s.queues", columns)
        state.segments = [
            TombstoneSegment(
                name=name, rows=rows, last_end=last_end, queues=of_segment, renumbered=renumbered, body=segments[name]
            )
            for (name, rows, last_end, renumbered), of_segment in zip(header["segments"], queues, strict=True)
        ]
        state.renumberings = {serial: (column, columns[f"moved.{serial}"]) for serial, column in header["renumberings"]}
        state.renumbered = header["renumbered"]
        state.high_water = header["high_water"]
        state.now = header["now"]
        return state

    def drop_unused_texts(self) -> None:
        """Drop texts that no row refers to any more, once they are half of all."""
        rows = self.rows
        if not len(self.texts):
            return
        index = rows["text"]
        used = nonzero(index >= 0)
        if len(used) * 2 > len(self.texts):
            return
        self.texts = pc.take(self.texts, pa.array(index[used]))
        if len(used):
            rows.put("text", used, np.arange(len(used), dtype=np.int32))


def _names(columns: dict[str, Array], kind: str) -> Interner:
    texts = texts_of(columns[f"{kind}.lengths"], columns[f"{kind}.bytes"])
    names = ("queue", "time", *CONSUMER_COLUMNS, *GROUP_COLUMNS)
    return Interner(texts=texts, **{name: columns[f"{kind}.{name}"] for name in names})
