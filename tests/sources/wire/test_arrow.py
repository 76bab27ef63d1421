"""Arrow streams from other senders: which are accepted, and that a broken one does no harm."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sources.wire import decode_records, encode_arrow, encode_ndjson

T = 1_760_000_000_000
SENT = {"type": "sent", "at": T, "system": "aws_sqs", "queue": "orders", "message_id": "m1"}


def stream(table: pa.Table) -> bytes:
    """Return a table as an IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    value: bytes = sink.getvalue().to_pybytes()
    return value


def table_of(*rows: dict[str, Any], **types: pa.DataType) -> pa.Table:
    """Return a table with the given types, and inferred types for the other columns."""
    table = pa.Table.from_pylist(list(rows))
    for name, kind in types.items():
        at = table.schema.get_field_index(name)
        column = table.column(name)
        if pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp("ms", tz=kind.tz))
        table = table.set_column(at, name, column.cast(kind))
    return table


@pytest.mark.parametrize(
    "types",
    [
        {},
        {"queue": pa.large_string(), "message_id": pa.large_string()},
        {
            "queue": pa.dictionary(pa.int8(), pa.string()),
            "message_id": pa.dictionary(pa.int32(), pa.string()),
        },
        {"at": pa.timestamp("ms", tz="UTC")},
        {"at": pa.timestamp("us")},
        {"at": pa.float64(), "receive_count": pa.uint64()},
        {"scope": pa.null()},
    ],
)
def test_columns_of_compatible_types_are_accepted(types: dict[str, pa.DataType]) -> None:
    """Arrow writers in other languages choose other widths and encodings for the same data."""
    row = SENT | {"receive_count": 1, "scope": None}
    decoded = decode_records([stream(table_of(row, row | {"message_id": "m2"}, **types))])
    assert decoded.invalid == []
    assert decoded.events.select(["at", "queue", "message_id", "receive_count"]).to_pylist() == [
        {"at": T, "queue": "orders", "message_id": "m1", "receive_count": 1},
        {"at": T, "queue": "orders", "message_id": "m2", "receive_count": 1},
    ]


def test_attributes_may_be_a_column_of_structs() -> None:
    """So a table made from events has them; it gives what the events give, whose absent attributes are nulls in the table."""
    state = {"type": "queue_state", "at": T, "system": "aws_sqs", "queue": "orders", "message_id": None}
    given = [
        {"visible": 3, "kind": "standard", "tags": {"team": "a"}, "dead_letter_sources": ["b", "c"]},
        {"paused": True, "tags": {"owner": "d\u00e9"}},
    ]
    rows = [SENT | {"attributes": None}, *(state | {"attributes": attributes} for attributes in given)]
    decoded = decode_records([stream(pa.Table.from_pylist(rows))])
    assert decoded.invalid == []
    column = decoded.events["attributes"].to_pylist()
    assert [text and json.loads(text) for text in column] == [None, *given]


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        (pa.array([{"a": b"x"}]), "attributes holds binary"),
        (pa.array([[1]]), "attributes is list"),
        (pa.array([{"a": {f"b{n}": n for n in range(256)}}]), "more than 256 fields"),
    ],
    ids=["binary", "no struct", "too many fields"],
)
def test_structs_that_are_no_attributes_are_refused(attributes: pa.Array, says: str) -> None:
    """The record is refused, with what to send."""
    decoded = decode_records([stream(table_of(SENT).append_column("attributes", attributes)), encode_ndjson([SENT])])
    assert len(decoded.events) == 1
    assert [says in i.detail for i in decoded.invalid] == [True]


def test_a_struct_with_a_number_that_is_not_finite_costs_one_event() -> None:
    """As in JSON text."""
    rows = [SENT | {"attributes": {"visible": visible}} for visible in (1.0, float("nan"), 2.0)]
    decoded = decode_records([stream(pa.Table.from_pylist(rows))])
    assert [(i.line, i.reason) for i in decoded.invalid] == [(2, "out_of_range")]
    assert len(decoded.events) == 2


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (table_of(SENT | {"at": "soon"}), "wrong_type"),
        (table_of(SENT | {"at": True}), "wrong_type"),
        (table_of(SENT | {"receive_count": 2**40}), "out_of_range"),
        (table_of(SENT | {"attributes": "[1]"}), "wrong_type"),
        (table_of(SENT | {"attributes": "{"}), "not_json"),
        (table_of(SENT | {"type": "lost"}), "unknown_type"),
    ],
)
def test_a_wrong_row_is_refused_and_the_other_streams_are_read(table: pa.Table, reason: str) -> None:
    """This holds even for streams that share a schema and are normally read together."""
    other = stream(table.set_column(0, "type", pa.array(["nothing"])))
    decoded = decode_records([encode_arrow([SENT]), stream(table), other, encode_ndjson([SENT])])
    assert decoded.record_index.tolist() in ([0, 3], [3, 0])
    assert decoded.invalid[0].reason == reason or decoded.invalid[1].reason == reason
    assert {(i.record, i.line) for i in decoded.invalid} == {(1, 1), (2, 1)}


def test_one_invalid_row_costs_one_event() -> None:
    """A value that does not fit its column is reported with its row."""
    rows = [SENT | {"receive_count": 1 if n != 7 else 2**40, "message_id": f"m{n}"} for n in range(20)]
    decoded = decode_records([stream(table_of(*rows))])
    assert len(decoded.events) == 19
    assert [(i.line, i.reason) for i in decoded.invalid] == [(8, "out_of_range")]
    assert b'"m7"' in decoded.invalid[0].raw


def test_missing_columns_are_named() -> None:
    """A stream without a time is not telemetry."""
    decoded = decode_records([stream(pa.table({"type": ["sent"]}))])
    assert [(i.reason, i.line) for i in decoded.invalid] == [("missing_field", None)]
    assert "'at'" in decoded.invalid[0].detail


@pytest.mark.slow
def test_a_damaged_stream_never_reads_outside_its_memory() -> None:
    """Whichever bytes change, the result is events or a refusal, and the next record is read."""
    value = encode_arrow([SENT | {"message_id": f"m{n}", "group": f"g{n % 3}"} for n in range(50)], None)
    neighbour = encode_ndjson([SENT])
    generator = np.random.default_rng(7)
    for _ in range(300):
        damaged = bytearray(value)
        for at in generator.integers(4, len(value), 3).tolist():
            damaged[at] = int(generator.integers(0, 256))
        decoded = decode_records([bytes(damaged), neighbour])
        assert 1 in decoded.record_index.tolist()
        decoded.events.validate(full=True)
        decoded.events.to_pylist()


def test_encoding_refuses_what_the_reader_would() -> None:
    """The sender learns of an invalid event where it is created."""
    with pytest.raises(ValueError, match="event 1: at=1760000000 looks like seconds"):
        encode_arrow([SENT, SENT | {"at": T // 1000}])
    with pytest.raises(ValueError, match="at is text"):
        encode_arrow([SENT | {"at": "now"}])
