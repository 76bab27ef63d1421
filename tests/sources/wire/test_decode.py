"""How each form of record is decoded, and how an event that cannot be decoded is reported."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pyarrow as pa
import pytest

from sources.wire import REASONS, WIRE_SCHEMA, Decoded, Reason, blocks, decode_records, encode_arrow, encode_ndjson

T = 1_760_000_000_000


@pytest.fixture(autouse=True, params=["one by one", "in blocks"])
def _few_lines(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with short records parsed line by line and in blocks."""
    if request.param == "in blocks":
        monkeypatch.setattr(blocks, "FEW_LINES", 0)


def event(**fields: Any) -> dict[str, Any]:
    """Return a valid `received` event, changed by `fields`; a field given as None is left out."""
    base = {
        "v": 1,
        "type": "received",
        "at": T,
        "system": "aws_sqs",
        "queue": "orders",
        "message_id": "m1",
        "receive_count": 2,
    }
    return {name: value for name, value in (base | fields).items() if value is not None}


def ids(decoded: Decoded) -> list[tuple[int, int, str]]:
    """Return record, line and message id of every event, in order."""
    found = zip(
        decoded.record_index.tolist(),
        decoded.line.tolist(),
        decoded.events["message_id"].to_pylist(),
        strict=True,
    )
    return sorted(found)


def test_every_form_of_record_in_one_call() -> None:
    """One object, NDJSON, an array, both pretty-printed, and Arrow are recognised by content alone."""
    events = [event(message_id=f"m{n}") for n in range(3)]
    values = [
        json.dumps(events[0]).encode(),
        encode_ndjson(events),
        json.dumps(events).encode(),
        json.dumps(events[1], indent=2).encode(),
        json.dumps(events, indent=2).encode(),
        encode_arrow(events),
        b"\xef\xbb\xbf" + encode_ndjson(events[:1]).replace(b"\n", b"\r\n"),
        b"[]",
    ]
    decoded = decode_records(values)
    assert decoded.invalid == []
    three = [(1, "m0"), (2, "m1"), (3, "m2")]
    expected = {0: three[:1], 1: three, 2: three, 3: [(1, "m1")], 4: three, 5: three, 6: three[:1]}
    assert ids(decoded) == [(record, *place) for record, places in expected.items() for place in places]
    assert decoded.events.schema == WIRE_SCHEMA
    assert all(column.num_chunks <= 1 for column in decoded.events.columns)


def test_every_field_reaches_its_column() -> None:
    """All columns are filled, from JSON and from Arrow."""
    full = event(
        type="dead_lettered",
        scope="123456789012/eu-west-1",
        group="g",
        sequence="18849496460467696128",
        consumer="worker-1",
        to_queue="orders-dlq",
        from_queue="orders",
        new_message_id="m2",
        reason="max_receive_count",
        batch_id="b1",
        sent_at=T - 5,
        first_received_at=T - 4,
        invisible_until=T + 30_000,
        visible_at=T + 1,
        ordered=True,
        attributes={"depth": 1, "tags": {"team": "é"}},
    )
    for value in (json.dumps(full).encode(), encode_arrow([full])):
        row = decode_records([value]).events.to_pylist()[0]
        row["attributes"] = json.loads(row["attributes"])
        assert row == {name: value for name, value in full.items() if name != "v"}


def test_unknown_fields_are_ignored_wherever_they_stand() -> None:
    """Scalar, nested and null fields are ignored, on the fast path and line by line."""
    values = [
        json.dumps(event(trace="t", span={"a": [{"b": 1}]}) | {"nothing": None}).encode(),
        encode_ndjson([event(note="}{"), event(other=[1, 2])]),
    ]
    decoded = decode_records(values)
    assert len(decoded.events) == 3
    assert decoded.invalid == []


def test_a_rare_field_in_a_long_stream_is_not_lost() -> None:
    """Columns are inferred from a sample; a field outside the sample must still be read."""
    lines = [event(message_id=f"m{n}") for n in range(5000)]
    lines[3777] = event(type="redriven", to_queue="orders", new_message_id="n", message_id="m3777")
    decoded = decode_records([encode_ndjson(lines)])
    assert decoded.events["new_message_id"].drop_null().to_pylist() == ["n"]
    assert decoded.events["to_queue"].null_count == 4999


def test_integral_floats_are_integers() -> None:
    """JavaScript and Lua write some integers with a fraction of zero."""
    decoded = decode_records([b'{"type":"heartbeat","consumer":"c","at":1.76e12,"receive_count":2.0}'])
    assert decoded.events.select(["at", "receive_count"]).to_pylist() == [{"at": T, "receive_count": 2}]


REFUSED = [
    # The record as a whole
    (b"", "empty", "the record is empty", None),
    (b" \n ", "empty", "the record is empty", None),
    (b"hello\nworld", "not_json", "Expecting value", None),
    (b"[1, 2", "not_json", "Expecting", 1),
    (b"null", "not_an_object", "an event is a JSON object, not null", 1),
    (b"[5]", "not_an_object", "not a number", 1),
    (b'"' + b"[" * 500 + b'"', "not_an_object", "not text", 1),
    (b'{"queue":"\xff"}', "bad_text", "encode events as UTF-8", 1),
    (b'{"a":' + b"[" * 100_000, "too_deep", "nested too deeply", 1),
    (b"\xff\xff\xff\xff\x10\x00", "not_arrow", "not a whole Arrow IPC stream", None),
    # One field
    (event(type=None), "missing_field", "type is missing; send one of sent, received", 1),
    (event(type="recieved"), "unknown_type", "did you mean 'received'?", 1),
    (event(v=2), "unsupported_version", "v=2; this reader knows v=1", 1),
    (event(message_id=None), "missing_field", "message_id is missing; a 'received' event needs it", 1),
    (event(queue=""), "missing_field", "queue is missing", 1),
    (event(system=None), "missing_field", "system is missing", 1),
    (event(type="queue_state", message_id=None), "missing_field", "attributes is missing", 1),
    ({"type": "heartbeat", "at": T}, "missing_field", "consumer is missing; a 'heartbeat' event needs it", 1),
    (event(at=1_700_000_000), "out_of_range", "at=1700000000 looks like seconds; send integer epoch mil", 1),
    (event(sent_at=T * 1000), "out_of_range", "looks like microseconds", 1),
    (event(sent_at=T * 10**6), "out_of_range", "looks like nanoseconds", 1),
    (event(first_received_at=0), "out_of_range", "leave the field out when it is not known", 1),
    (event(at=True), "wrong_type", "at is a boolean; send an integer", 1),
    (event(at=str(T)), "wrong_type", "at is text; send an integer", 1),
    (event(at=T + 0.5), "wrong_type", "is not an integer; send it without a fraction", 1),
    (event(at=2**63), "out_of_range", "at does not fit 64 bits", 1),
    (event(receive_count=2**31), "out_of_range", "receive_count does not fit 32 bits", 1),
    (event(receive_count=-1), "out_of_range", "receive_count=-1 is negative", 1),
    (event(sequence=7), "wrong_type", 'sequence is a number; send it in quotes: "7"', 1),
    (event(ordered=1), "wrong_type", "ordered is a number; send true or false", 1),
    (event(message_id="m" * 513), "too_long", "message_id is longer than 512 characters", 1),
    (event(group="g" * 513), "too_long", "group is longer than 512 characters", 1),
    (event(attributes=[1]), "wrong_type", "attributes is an array; send a JSON object", 1),
    (event(attributes={"x": "y" * 70_000}), "too_long", "attributes is longer than 65536 bytes", 1),
    (event(queue="\ud800"), "bad_text", "queue holds half a surrogate pair", 1),
]


@pytest.mark.parametrize(("value", "reason", "detail", "line"), REFUSED)
def test_an_invalid_event_is_reported_and_affects_no_other(
    value: bytes | dict[str, Any], reason: str, detail: str, line: int | None
) -> None:
    """The reason is a stable slug, the detail names the field and the fix, and position and bytes are kept."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    decoded = decode_records([encode_ndjson([event()]), raw, encode_ndjson([event()])])
    assert len(decoded.events) == 2
    [invalid] = decoded.invalid
    assert (invalid.reason, invalid.record, invalid.line) == (reason, 1, line)
    assert detail in invalid.detail
    assert invalid.raw == (b"5" if raw == b"[5]" else raw[:4096])
    assert invalid.reason in REASONS


def test_a_compressed_file_is_named_as_one() -> None:
    """In a spool folder nothing uncompresses it."""
    [first, *_] = decode_records([gzip.compress(encode_ndjson([event()]))]).invalid
    assert first.detail == "it is gzip; give the file or the record uncompressed"


def test_one_bad_line_in_a_large_record_costs_one_event() -> None:
    """The other 8,999 lines are decoded, and the bad one is reported by its number."""
    lines = [json.dumps(event(message_id=f"m{n}")).encode() for n in range(9000)]
    lines[4321] = b'{"type": oops'
    decoded = decode_records([b"\n".join(lines)])
    assert len(decoded.events) == 8999
    assert [(i.line, i.raw) for i in decoded.invalid] == [(4322, b'{"type": oops')]


def test_the_valid_elements_of_a_broken_array_are_read() -> None:
    """An array with an invalid element is read element by element."""
    good = json.dumps(event()).encode()
    decoded = decode_records([b"[" + good + b',{"type":},' + good + b"]"])
    assert len(decoded.events) == 2
    assert [i.line for i in decoded.invalid] == [2]


def test_a_long_reason_is_truncated_and_its_event_kept() -> None:
    """A reason is prose, not an identifier."""
    decoded = decode_records([encode_ndjson([event(reason="é" * 600)])])
    assert decoded.events["reason"].to_pylist() == ["é" * 512]


def test_a_null_after_an_object_is_not_passed_to_the_block_parser() -> None:
    """pyarrow's parser reads it as a row, and crashes on one that comes first."""
    decoded = decode_records([b"{}null{}", b"null", b"{} null\n{}"])
    assert len(decoded.events) == 0
    assert {i.reason for i in decoded.invalid} <= {"not_json", "not_an_object", "missing_field"}


def test_values_may_be_a_pyarrow_array_with_nulls() -> None:
    """Spark passes binary columns; a null value is a Kafka tombstone."""
    one = json.dumps(event()).encode()
    array = pa.array([b"x", one, None], pa.binary())[1:]
    for values in (array, array.cast(pa.large_binary()), pa.chunked_array([array[:1], array[1:]])):
        decoded = decode_records(values)
        assert len(decoded.events) == 1
        assert [(i.record, i.reason) for i in decoded.invalid] == [(1, "empty")]
    sliced = pa.array([b"x", one, one, b"y"], pa.binary())[1:3]
    assert decode_records(sliced).record_index.tolist() == [0, 1]


def test_no_records_give_no_events() -> None:
    """An empty batch has the schema too."""
    decoded = decode_records([])
    assert decoded.events.schema == WIRE_SCHEMA
    assert len(decoded.events) == len(decoded.record_index) == len(decoded.line) == 0


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("9" * 5_000, "out_of_range"),
        ("[" * 1_500 + "]" * 1_500, "too_deep"),
        ('{"a":' * 950 + "1" + "}" * 950, "too_deep"),
        ("[" * 400 + "]" * 400, "too_deep"),
        ("[" * 399 + "]" * 399, None),
        ('"' + "[" * 1_500 + '"', None),
        ("[" + "[]," * 1_500 + "1]", None),
    ],
    ids=[
        "digits",
        "arrays",
        "objects",
        "one level too many",
        "as many levels as are read",
        "brackets in a string",
        "side by side",
    ],
)
def test_neither_its_neighbours_nor_the_stack_decide_whether_a_line_is_read(value: str, reason: Reason | None) -> None:
    """Ingest acknowledges what it can read of a body; a task reads the same lines among others, deeper in its stack."""
    lines = [encode_ndjson([event(message_id=f"m{i}")]).strip()[:-1] + f',"x":{value}}}'.encode() for i in range(100)]

    def read(records: list[bytes], frames: int = 0) -> Decoded:
        return read(records, frames - 1) if frames else decode_records(records)

    for decoded in (
        read([b"\n".join(lines)]),
        read([b'{"broken"}\n' + b"\n".join(lines)]),
        read([b"\n".join(lines)], frames=200),
    ):
        assert len(decoded.events) == (0 if reason else 100)
        assert decoded.refused[reason or "too_deep"] == (100 if reason else 0)


@pytest.mark.parametrize(("levels", "read"), [(399, ["a", "b"]), (400, ["b"]), (1_500, ["b"])])
def test_the_levels_of_an_array_s_element_are_those_it_has_alone(levels: int, read: list[str]) -> None:
    """The array is no level of its elements, and one that is too deep costs no other, even where a string looks like an end."""
    deep = encode_ndjson([event(message_id="a")]).strip()[:-1] + f',"x":{"[" * levels + "]" * levels}}}'.encode()
    other = json.dumps(event(message_id="b", reason='"}, {"')).encode()
    for first, second in ((deep, other), (other, deep)):
        decoded = decode_records([b"[" + first + b",\n" + second + b"]"])
        assert sorted(decoded.events["message_id"].to_pylist()) == read
        assert decoded.refused.total() == decoded.refused["too_deep"] == 2 - len(read)
