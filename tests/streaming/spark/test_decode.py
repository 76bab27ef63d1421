"""The decode stage returns a packet for every shard, whatever the records contain."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from streaming.core.events.packet import Packet, unpack
from streaming.core.settings import Settings
from streaming.spark import decode
from streaming.spark.decode import QUARANTINED_PER_PACKET, decode_and_route
from tests.streaming.spark.packets import T0, batch, event, ndjson, ticks

KEYS = [7, 3, 5]


def decoded(*batches: pa.RecordBatch) -> list[tuple[int, Packet]]:
    """Return the shard key and packet of every row the stage returns."""
    out = decode_and_route(KEYS, Settings())(iter(batches))
    rows = [row for rows in out for row in rows.to_pylist()]
    assert all(row["part"] == 0 and row["step_ms"] is None for row in rows)
    return [(row["shard"], unpack([row["packet"]])) for row in rows]


def test_every_shard_gets_a_packet_even_an_empty_one() -> None:
    """A shard without events still needs the time."""
    rows = decoded(batch(ndjson(event("sent", "one", sent_at=T0))))
    assert [shard for shard, _ in rows] == KEYS
    assert sorted(len(packet.events) for _, packet in rows) == [0, 0, 1]


@pytest.mark.parametrize("count", [1, 100_000])
def test_any_number_of_ticks_reaches_every_shard(count: int) -> None:
    """After an outage there is one tick per second of it; ticks are neither events nor tombstones."""
    rows = decoded(ticks(count))
    assert [shard for shard, _ in rows] == KEYS
    assert all(len(packet.events) == 0 and not packet.invalid for _, packet in rows)


def test_all_events_of_a_batch_reach_exactly_one_shard_each() -> None:
    """It does not matter which records contained them."""
    records = [ndjson(*[event("sent", f"m{n}-{i}", sent_at=T0) for i in range(50)]) for n in range(4)]
    rows = decoded(batch(*records[:2]), batch(*records[2:]))
    assert sum(len(packet.events) for _, packet in rows) == 200
    assert [shard for shard, _ in rows] == KEYS, "all batches of a task go in one packet a shard"


def test_every_packet_has_the_time_of_the_newest_event_of_all() -> None:
    """All shards must be at the same time. A tick alone has none."""
    out = decode_and_route(KEYS, Settings())(iter([batch(ndjson(event("sent", "a", T0 + 5), event("sent", "b", T0)))]))
    assert [row["newest_ms"] for rows in out for row in rows.to_pylist()] == [T0 + 5] * 3
    out = decode_and_route(KEYS, Settings())(iter([ticks(1)]))
    assert [row["newest_ms"] for rows in out for row in rows.to_pylist()] == [None] * 3


def test_a_time_in_the_future_is_not_that_of_the_newest_event() -> None:
    """A sender whose clock is ahead does not show how far the job has read."""
    at = pa.table({"at": [T0, T0 + 9_000, T0 + 600_000]})
    assert decode._newest(at, T0 + 10_000) == T0 + 9_000


def test_a_task_with_very_many_events_returns_several_packets_per_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task then does not hold all events at once."""
    monkeypatch.setattr(decode, "EVENTS_PER_PACKET", 100)
    records = [ndjson(*[event("sent", f"m{n}-{i}", sent_at=T0) for i in range(60)]) for n in range(5)]
    rows = decoded(*[batch(record) for record in records])
    assert [shard for shard, _ in rows] == 3 * KEYS
    assert [sum(len(packet.events) for _, packet in rows[at : at + 3]) for at in (0, 3, 6)] == [120, 120, 60]


def test_an_invalid_event_is_kept_with_its_position_and_affects_no_other() -> None:
    """The position is topic, partition and offset, or the path, and the line; the event is counted too."""
    good, bad = ndjson(event("sent", "a", sent_at=T0)), b'{"v": 1, "type": "sent"\n'
    rows = decoded(batch(good + bad, b"nonsense"))
    packets = [packet for _, packet in rows]
    invalid = sum((packet.invalid for packet in packets), Counter[str]())
    kept = {(q.origin, q.line): q for packet in packets for q in packet.quarantine}
    assert invalid.total() == 2
    assert sum(len(packet.events) for packet in packets) == 1
    assert kept["topic/0@100", 2].raw == bad.strip()
    assert any(origin == "topic/0@101" for origin, _ in kept)


def test_a_tombstone_counts_as_an_invalid_record() -> None:
    """Compacted topics contain such null values."""
    rows = decoded(batch(None))
    assert sum((packet.invalid for _, packet in rows), Counter[str]()).total() == 1


def test_all_of_many_invalid_events_are_counted_and_some_are_kept() -> None:
    """Inspection needs examples, not all of them."""
    flood = QUARANTINED_PER_PACKET + 500
    bad = b'{"v": 1, "type": "nonsense"}\n'
    rows = decoded(batch(bad * (QUARANTINED_PER_PACKET - 1)), batch(bad * (flood - QUARANTINED_PER_PACKET + 1)))
    packets = [packet for _, packet in rows]
    counted = sum((packet.invalid for packet in packets), Counter[str]()).total()
    assert counted == flood
    assert sum(len(packet.quarantine) for packet in packets) == QUARANTINED_PER_PACKET


def test_a_file_has_no_position() -> None:
    """Its path is sufficient."""
    rows = batch(b"nonsense", origin="file:/in/a.ndjson")
    rows = rows.set_column(2, "position", pa.array([None], pa.int64()))
    (kept,) = [q for _, packet in decoded(rows) for q in packet.quarantine]
    assert kept.origin == "file:/in/a.ndjson"
