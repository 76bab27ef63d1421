"""The decode stage: a packet for every shard, whatever the records hold."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from streaming.core.packet import Packet, unpack
from streaming.core.settings import Settings
from streaming.spark.decode import QUARANTINED_PER_BATCH, decode_and_route
from tests.streaming.spark.packets import T0, batch, event, ndjson

KEYS = [7, 3, 5]


def decoded(*batches: pa.RecordBatch) -> list[tuple[int, int, Packet]]:
    """(shard key, step, packet) of every row the stage gives."""
    out = decode_and_route(KEYS, Settings())(iter(batches))
    return [
        (row["shard"], row["step_ms"], unpack([row["packet"]])) for rows in out for row in rows.to_pylist() if row["part"] == 0
    ]


def test_every_shard_gets_a_packet_empty_ones_included() -> None:
    """A shard that hears nothing must still be told the time."""
    rows = decoded(batch((ndjson(event("sent", "one", sent_at=T0)), T0)))
    assert [(shard, step) for shard, step, _ in rows] == [(key, T0) for key in KEYS]
    assert sum(len(packet.events) for _, _, packet in rows) == 1
    assert sum(len(packet.events) == 0 for _, _, packet in rows) == 2


def test_all_events_of_a_batch_reach_exactly_one_shard_each() -> None:
    """Whatever the records they came in."""
    records = [(ndjson(*[event("sent", f"m{n}-{i}", sent_at=T0) for i in range(50)]), T0) for n in range(4)]
    rows = decoded(batch(*records[:2]), batch(*records[2:]))
    assert sum(len(packet.events) for _, _, packet in rows) == 200
    assert len(rows) == 2 * len(KEYS)


def test_steps_come_in_the_order_of_time() -> None:
    """A recorded batch may hold several."""
    late, early = T0 + 1000, T0
    rows = decoded(
        batch(
            (ndjson(event("sent", "b", late, sent_at=late)), late),
            (ndjson(event("sent", "a", early, sent_at=early)), early),
        )
    )
    assert [step for _, step, _ in rows] == [early] * 3 + [late] * 3


def test_an_invalid_event_is_counted_and_kept_with_its_place_and_spoils_no_other() -> None:
    """By topic, partition and offset, or path, and line."""
    good, bad = ndjson(event("sent", "a", sent_at=T0)), b'{"v": 1, "type": "sent"\n'
    rows = decoded(batch((good + bad, T0), (b"nonsense", T0)))
    packets = [packet for _, _, packet in rows]
    invalid = sum((packet.invalid for packet in packets), Counter[str]())
    kept = {(q.origin, q.line): q for packet in packets for q in packet.quarantine}
    assert invalid.total() == 2
    assert sum(len(packet.events) for packet in packets) == 1
    assert kept["topic/0@100", 2].raw == bad.strip()
    assert any(origin == "topic/0@101" for origin, _ in kept)


def test_a_tombstone_is_an_invalid_record_and_nothing_worse() -> None:
    """A null value, as compacted topics have."""
    rows = decoded(batch((None, T0)))
    assert sum((packet.invalid for _, _, packet in rows), Counter[str]()).total() == 1


def test_a_flood_of_invalid_events_is_counted_whole_and_kept_in_part() -> None:
    """Inspection needs examples, not all of them."""
    flood = QUARANTINED_PER_BATCH + 500
    rows = decoded(batch((b'{"v": 1, "type": "nonsense"}\n' * flood, T0)))
    packets = [packet for _, _, packet in rows]
    counted = sum((packet.invalid for packet in packets), Counter[str]()).total()
    assert counted == flood
    assert sum(len(packet.quarantine) for packet in packets) == QUARANTINED_PER_BATCH


def test_a_file_has_no_position() -> None:
    """Its path says enough."""
    rows = batch((b"nonsense", T0), origin="file:/in/a.ndjson")
    rows = rows.set_column(2, "position", pa.array([None], pa.int64()))
    (kept,) = [q for _, _, packet in decoded(rows) for q in packet.quarantine]
    assert kept.origin == "file:/in/a.ndjson"
