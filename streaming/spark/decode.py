"""Decode and route: from whole records to one packed row per shard, inside a Python worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from sources.wire.decode import decode_records
from sources.wire.invalid import InvalidEvent
from streaming.core.packet import Quarantined, empty_packet, pack
from streaming.core.route import route
from streaming.core.settings import Settings

RECORD_SCHEMA: Final = "value binary, origin string, position long, step_ms long"
"""What is decoded. `origin` and `position` say where a record came from; `step_ms` is the time it is judged at."""

PACKET_SCHEMA: Final = "shard int, step_ms long, part int, packet binary"
"""What goes to the shards. `part` numbers the input tasks, so that packets can be put in the same order again."""

QUARANTINED_PER_BATCH: Final = 1000
"""Of one Arrow batch so many invalid events are kept for inspection; all are counted."""

Batches = Iterator[pa.RecordBatch]


def decode_and_route(keys: list[int], settings: Settings) -> Callable[[Batches], Batches]:
    """The stage for `mapInArrow`: `RECORD_SCHEMA` in, `PACKET_SCHEMA` out.

    Each Arrow batch gives every shard one packet per step, empty ones included: a shard that hears nothing must
    still be told the time. `keys` are the shards' keys in order.
    """

    def stage(batches: Batches) -> Batches:
        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        for batch in batches:
            for step_ms, records in _by_step(batch):
                yield _packets(records, step_ms, part, keys, settings)

    return stage


def empty_packet_blob() -> bytes:
    """The packet of a shard for which nothing happened."""
    return pack(empty_packet())


def _packets(records: pa.RecordBatch, step_ms: int, part: int, keys: list[int], settings: Settings) -> pa.RecordBatch:
    decoded = decode_records(records.column("value"))
    reasons = Counter(event.reason for event in decoded.invalid)
    kept = _quarantined(decoded.invalid[:QUARANTINED_PER_BATCH], records)
    blobs = [pack(packet) for packet in route(decoded.events, Counter(reasons), kept, len(keys), settings)]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.int32()),
            pa.array([step_ms] * len(keys), pa.int64()),
            pa.array([part] * len(keys), pa.int32()),
            pa.array(blobs, pa.binary()),
        ],
        names=["shard", "step_ms", "part", "packet"],
    )


def _quarantined(invalid: Iterable[InvalidEvent], records: pa.RecordBatch) -> list[Quarantined]:
    origins, positions = records.column("origin"), records.column("position")
    return [
        Quarantined(event.reason, event.detail, event.raw, _origin(origins, positions, event.record), event.line)
        for event in invalid
    ]


def _origin(origins: pa.Array, positions: pa.Array, record: int) -> str:
    position = positions[record].as_py()
    return str(origins[record]) if position is None else f"{origins[record]}@{position}"


def _by_step(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each step, in the order of time; in a live run a batch is one step."""
    steps = batch.column("step_ms")
    distinct = sorted(pc.unique(steps).to_pylist())
    if len(distinct) == 1:
        yield distinct[0], batch
        return
    for step_ms in distinct:
        yield step_ms, batch.filter(pc.equal(steps, step_ms))
