"""The state of one shard: a row per (queue, message), small tables beside it, and layers of frozen rows. Versioned blobs.

A message that ended stays until events of its time can no longer arrive (the lateness), so that a late receive does not raise
it from the dead: as a row at first, then frozen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.columns import DAMAGE, Array, UnreadableBlob, pack_columns, unpack_columns
from streaming.core.events.packet import text_columns, texts_of
from streaming.core.hashing import bits_to_uuid, row_key
from streaming.core.settings import QueueName
from streaming.core.state.names import Names
from streaming.core.state.queue_table import QueueTable
from streaming.core.state.queues import ConsumerState
from streaming.core.state.rows import ROW_COLUMNS, Rows
from streaming.core.state.upgrades import FORMAT_VERSION, upgrade_head

ATTEMPT_COLUMNS: dict[str, str] = {
    "key": "u8",
    "at": "i8",
    "code": "u1",
    "receive_count": "i4",
    "end": "i8",
    "consumer": "i4",
    "batch": "u8",
}
_RAW_COLUMNS = frozenset({"hi", "lo", "batch", "a.key", "a.batch", "parent", "fp.hash", "q.hash"})


Buffer = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Layer:
    """Messages put aside together (see `frozen`): immutable, so written once and named by its content."""

    name: str
    rows: int
    last_end: int
    """When the last of them ended, in epoch milliseconds."""
    queues: list[int]
    renumbered: int
    """So many times names had been renumbered before."""
    body: Buffer
    """Keys, ascending, eight bytes each; behind them the packed columns."""

    @property
    def keys(self) -> Array:
        """The key of each row."""
        return np.frombuffer(self.body, dtype=np.uint64, count=self.rows)


class Packed(NamedTuple):
    """A state as bytes. `layers` by name hold what seldom changes: a name always stands for the same bytes."""

    head: bytes
    layers: Mapping[str, Buffer]

    @property
    def size(self) -> int:
        """Bytes of all."""
        return len(self.head) + sum(len(body) for body in self.layers.values())


@dataclass(slots=True)
class ShardState:
    """Everything one shard remembers. Made by `empty` or `unpack`; `track` uses it up and returns the next one."""

    rows: Rows
    queues: QueueTable
    groups: Names
    consumers: Names
    texts: pa.Array
    attempts: dict[str, Array]
    fingerprints: dict[str, Array]
    """`hash` (ascending) and `at` of events that have no number of their own, for as long as they may come again."""
    events_total: Counter[str]
    invalid_total: Counter[str]
    collectors: dict[str, int]
    consumer_states: dict[tuple[int, str], ConsumerState]
    """By queue index and consumer."""
    failed_batches: dict[int, int]
    loss_reasons: dict[int, str]
    """Key of a lost message's row -> why, as reported."""
    frozen: list[Layer]
    """Oldest first."""
    renumberings: dict[int, tuple[str, Array]]
    """By number: which column's names were renumbered, and how, for as long as a layer has the numbers of before."""
    renumbered: int
    high_water: int
    """Latest event time seen, and in a replay the latest `now`."""
    now: int

    @classmethod
    def empty(cls) -> ShardState:
        """A shard that has seen nothing."""
        return cls(
            rows=Rows.empty(),
            queues=QueueTable(),
            groups=Names(),
            consumers=Names(),
            texts=pa.array([], pa.string()),
            attempts={name: np.zeros(0, dtype=dtype) for name, dtype in ATTEMPT_COLUMNS.items()},
            fingerprints={"hash": np.zeros(0, dtype=np.uint64), "at": np.zeros(0, dtype=np.int64)},
            events_total=Counter(),
            invalid_total=Counter(),
            collectors={},
            consumer_states={},
            failed_batches={},
            loss_reasons={},
            frozen=[],
            renumberings={},
            renumbered=0,
            high_water=0,
            now=0,
        )

    def queue_number(self, name: QueueName) -> int:
        """The index of a queue, given to it now if it is new."""
        return self.queues.number(name)

    def message_ids(self, rows: Array) -> list[str]:
        """The ids of the messages of some rows."""
        bits = zip(self.rows.at("hi", rows).tolist(), self.rows.at("lo", rows).tolist(), strict=True)
        ids = [bits_to_uuid(hi, lo) for hi, lo in bits]
        text = self.rows.at("text", rows)
        told = np.flatnonzero(text >= 0)
        if len(told):
            for i, word in zip(told.tolist(), self.texts.take(pa.array(text[told])).to_pylist(), strict=True):
                ids[i] = word
        return ids

    def remember_renumbering(self, column: str, moved: Array) -> None:
        """The names of `column` (group or consumer) have new numbers: `moved[old]`. Layers keep the old ones."""
        oldest = min((layer.renumbered for layer in self.frozen), default=self.renumbered + 1)
        self.renumberings = {serial: told for serial, told in self.renumberings.items() if serial >= oldest}
        if self.frozen:
            self.renumberings[self.renumbered] = (column, moved)
        self.renumbered += 1

    def message_id(self, row: int) -> str:
        """The id of the message of a row as its system writes it."""
        return self.message_ids(np.array([row]))[0]

    @property
    def messages(self) -> int:
        """How many are remembered, frozen ones included."""
        return len(self.rows) + sum(layer.rows for layer in self.frozen)

    def pack(self) -> Packed:
        """The state as bytes."""
        self._tidy()
        columns: dict[str, Array] = {name: values for name, values in self.rows.columns.items() if values is not None}
        columns |= {f"a.{name}": values for name, values in self.attempts.items()}
        columns |= self.queues.pack()
        columns |= {f"fp.{name}": values for name, values in self.fingerprints.items()}
        for kind, names in (("g", self.groups), ("c", self.consumers)):
            columns |= {f"{kind}.queue": names.queue, f"{kind}.time": names.time}
            columns |= {f"{kind}.finished": names.finished, f"{kind}.failed": names.failed}
            columns[f"{kind}.lengths"], columns[f"{kind}.bytes"] = text_columns(names.texts)
        columns |= {f"moved.{serial}": moved for serial, (_, moved) in self.renumberings.items()}
        columns["texts.lengths"], columns["texts.bytes"] = text_columns(self.texts)
        header = {
            "version": FORMAT_VERSION,
            "rows": len(self.rows),
            "events": self.events_total,
            "invalid": self.invalid_total,
            "collectors": self.collectors,
            "consumer_states": [[q, c, *v] for (q, c), v in self.consumer_states.items()],
            "failed_batches": list(self.failed_batches.items()),
            "loss_reasons": list(self.loss_reasons.items()),
            "frozen": [[layer.name, layer.rows, layer.last_end, layer.queues, layer.renumbered] for layer in self.frozen],
            "renumberings": [[serial, column] for serial, (column, _) in self.renumberings.items()],
            "renumbered": self.renumbered,
            "high_water": self.high_water,
            "now": self.now,
        }
        head = pack_columns(columns, header, raw=_RAW_COLUMNS, compress=True)
        return Packed(head, {layer.name: layer.body for layer in self.frozen})

    @classmethod
    def unpack(cls, packed: Packed) -> ShardState:
        """The state of `pack`, of this version or an earlier one. Raises UnreadableBlob when it is damaged or of a newer one."""
        columns, header = unpack_columns(packed.head)
        try:
            upgrade_head(columns, header)
            return cls._of(columns, header, packed.layers)
        except UnreadableBlob:
            raise
        except DAMAGE as error:
            raise UnreadableBlob(f"the state is damaged: {type(error).__name__}: {error}") from error

    @classmethod
    def _of(cls, columns: dict[str, Array], header: dict[str, Any], layers: Mapping[str, Buffer]) -> ShardState:
        row_columns: dict[str, Array | None] = {name: columns.get(name) for name in ROW_COLUMNS}
        state = cls.empty()
        state.queues = QueueTable.unpack(columns)
        if header["rows"]:
            shell = Rows(np.zeros(header["rows"], dtype=np.uint64), row_columns)
            shell.key = row_key(shell["hi"], shell["lo"], state.queues.hashes[shell["queue"]])
            state.rows = shell
        state.groups, state.consumers = (_names(columns, kind) for kind in ("g", "c"))
        state.texts = texts_of(columns["texts.lengths"], columns["texts.bytes"])
        state.attempts = {name: columns[f"a.{name}"] for name in ATTEMPT_COLUMNS}
        state.fingerprints = {name: columns[f"fp.{name}"] for name in ("hash", "at")}
        state.events_total = Counter(header["events"])
        state.invalid_total = Counter(header["invalid"])
        state.collectors = header["collectors"]
        state.consumer_states = {(q, c): ConsumerState(*told) for q, c, *told in header["consumer_states"]}
        state.failed_batches = {int(k): v for k, v in header["failed_batches"]}
        state.loss_reasons = {int(k): v for k, v in header["loss_reasons"]}
        state.frozen = [
            Layer(name, rows, last_end, queues, renumbered, layers[name])
            for name, rows, last_end, queues, renumbered in header["frozen"]
        ]
        state.renumberings = {serial: (column, columns[f"moved.{serial}"]) for serial, column in header["renumberings"]}
        state.renumbered = header["renumbered"]
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


def _names(columns: dict[str, Array], kind: str) -> Names:
    texts = texts_of(columns[f"{kind}.lengths"], columns[f"{kind}.bytes"])
    return Names(texts=texts, **{name: columns[f"{kind}.{name}"] for name in ("queue", "time", "finished", "failed")})
