"""Decode and route: from whole records to one packed row per shard, inside a Python worker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from sources.wire.blocks import BlockParser
from sources.wire.decode import Decoded, decode_records
from sources.wire.invalid import InvalidEvent
from streaming.core.events.packet import Quarantined, pack
from streaming.core.events.route import route
from streaming.core.gc_pause import gc_paused
from streaming.core.settings import Settings
from streaming.spark.in_task import task_latest_ms
from streaming.spark.internals import prepare_worker
from streaming.spark.spool_in_task import PIECES_READ, planned_pieces
from streaming.spool.reading import Read, Refused

RECORD_SCHEMA: Final = "value binary, origin string, position long"
"""The input of decoding. `origin` and `position` identify the source of a record; a tick has none."""

PACKET_SCHEMA: Final = "shard int, step_ms long, part int, packet binary, read string, newest_ms long"
"""The rows sent to shards. `step_ms` is null in a live run: the time of the batch applies, or that of the newest event where the
job is behind. `newest_ms` is the time of the newest event of the whole packet, for any shard, null without one. `part` numbers
the input tasks, so that packets can be put back in order. `read` tells one shard how many Kafka records and pieces of spool files
the packets came from: JSON, by `topic/partition` and `PIECES_READ`."""

QUARANTINED_PER_PACKET: Final = 1000
"""The most invalid events kept for inspection; all of them are counted."""

EVENTS_PER_PACKET: Final = 2_000_000
"""The approximate number of events a task holds at a time; each takes some 100 bytes."""

NO_EVENTS: Final = decode_records([]).events

Batches = Iterator[pa.RecordBatch]


def decode_and_route(keys: list[int], settings: Settings) -> Callable[[Batches], Batches]:
    """Return the stage for `mapInArrow`: `RECORD_SCHEMA` in, `PACKET_SCHEMA` out.

    Each task sends every shard a packet, even an empty one: a shard without events must still learn the time.
    `keys` are the shards' keys in order.
    """

    def stage(batches: Batches) -> Batches:
        prepare_worker()
        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        now_ms = task_latest_ms() if context is not None else None
        with gc_paused():
            for decoded in _gathered(chain(planned_pieces(context, part), batches)):
                events = decoded.table()
                packets = decoded.packets(events, len(keys), settings, now_ms)
                yield _rows(keys, part, packets, json.dumps(decoded.read) if decoded.read else None, _newest(events, now_ms))

    return stage


@dataclass(slots=True)
class _Gathered:
    """The events decoded so far."""

    tables: list[pa.Table] = field(default_factory=list)
    events: int = 0
    invalid: Counter[str] = field(default_factory=Counter)
    quarantined: list[Quarantined] = field(default_factory=list)
    read: Counter[str] = field(default_factory=Counter)
    """Kafka records by `topic/partition`, and pieces of spool files."""

    def add(self, decoded: Decoded, records: pa.RecordBatch) -> None:
        if records.column("position").null_count < len(records):
            origins = records.column("origin").filter(pc.is_valid(records.column("position")))
            self.read.update({pair["values"]: pair["counts"] for pair in pc.value_counts(origins).to_pylist()})
        self.tables.append(decoded.events)
        self.events += len(decoded.events)
        self.invalid.update(decoded.refused)
        room = QUARANTINED_PER_PACKET - len(self.quarantined)
        self.quarantined += _quarantined(decoded.invalid[:room], records)

    def refuse(self, refused: Refused) -> None:
        """Add a piece of a file that is one invalid event, whatever it holds."""
        self.tables.append(NO_EVENTS)
        self.invalid[refused.refusal.reason] += 1
        if len(self.quarantined) < QUARANTINED_PER_PACKET:
            self.quarantined.append(
                Quarantined(
                    reason=refused.refusal.reason,
                    detail=refused.refusal.detail,
                    raw=refused.raw,
                    origin=refused.origin,
                    line=None,
                )
            )

    def table(self) -> pa.Table:
        """Return the events."""
        return pa.concat_tables(self.tables).unify_dictionaries().combine_chunks()

    def packets(self, events: pa.Table, shards: int, settings: Settings, now_ms: int | None) -> list[bytes]:
        """Return one packed packet per shard with the events and everything else gathered."""
        return [pack(packet) for packet in route(events, self.invalid, self.quarantined, shards, settings, now_ms)]


def _gathered(batches: Iterable[pa.RecordBatch | Read | Refused]) -> Iterator[_Gathered]:
    """Yield the events of all Arrow batches of a task, in several parts if there are very many.

    Arrow batches are small, so that what Java writes is still cached when it is read here; packets should be large.
    """
    parser = BlockParser()
    gathered = _Gathered()
    for batch in batches:
        if gathered.events >= EVENTS_PER_PACKET:
            yield gathered
            gathered = _Gathered()
        if isinstance(batch, Refused):
            gathered.read[PIECES_READ] += 1
            gathered.refuse(batch)
            continue
        if isinstance(batch, Read):
            gathered.read[PIECES_READ] += batch.pieces
            batch = batch.records
        records = batch.filter(pc.is_valid(batch.column("origin"))) if batch.column("origin").null_count else batch
        gathered.add(decode_records(records.column("value"), parser), records)
    if gathered.tables:
        yield gathered


def _newest(events: pa.Table, now_ms: int | None) -> int | None:
    """Return the time of the newest event that is not dated in the future, None if there is none."""
    at = events.column("at")
    if now_ms is not None:
        at = at.filter(pc.less_equal(at, now_ms))
    newest: int | None = pc.max(at).as_py()
    return newest


def _rows(keys: list[int], part: int, packets: list[bytes], read: str | None, newest_ms: int | None) -> pa.RecordBatch:
    n = len(keys)
    columns = [
        pa.array(keys, pa.int32()),
        pa.nulls(n, pa.int64()),
        pa.array([part] * n, pa.int32()),
        pa.array(packets, pa.binary()),
        pa.array([read] + [None] * (n - 1), pa.string()),
        pa.array([newest_ms] * n, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["shard", "step_ms", "part", "packet", "read", "newest_ms"])


def _quarantined(invalid: Iterable[InvalidEvent], records: pa.RecordBatch) -> list[Quarantined]:
    origins, positions = records.column("origin"), records.column("position")
    return [
        Quarantined(
            reason=event.reason,
            detail=event.detail,
            raw=event.raw,
            origin=_origin(origins, positions, event.record),
            line=event.line,
        )
        for event in invalid
    ]


def _origin(origins: pa.Array, positions: pa.Array, record: int) -> str:
    position = positions[record].as_py()
    return str(origins[record]) if position is None else f"{origins[record]}@{position}"
