"""The cost of a few hostile bytes is bounded: rows that are only declared, compression bombs, and many invalid events."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sources.wire import Decoded, arrow_sizes, decode_records, encode_arrow, encode_ndjson
from sources.wire.invalid import MOST_KEPT

T = 1_760_000_000_000
SENT = {"type": "sent", "at": T, "system": "aws_sqs", "queue": "orders", "message_id": "m1"}
NEIGHBOUR = encode_ndjson([SENT])


def stream(batch: pa.RecordBatch | pa.Table, compression: str | None = None) -> bytes:
    """Return an IPC stream of one batch or table."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write(batch)
    value: bytes = sink.getvalue().to_pybytes()
    return value


def declared_by(value: bytes) -> int:
    """Return the number of bytes a stream declares."""
    reader = pa.ipc.MessageReader.open_stream(value)
    reader.read_next_message()
    return arrow_sizes.check_sizes(reader, value)


def nulls(count: int) -> bytes:
    """Return a stream that declares `count` rows of nulls in a few hundred bytes."""
    return stream(pa.RecordBatch.from_arrays([pa.nulls(count), pa.nulls(count)], names=["type", "at"]))


def heartbeats(count: int, **columns: Any) -> dict[str, Any]:
    """Return the columns of many equal events."""
    plain = {"type": ["heartbeat"] * count, "at": [T] * count, "consumer": ["c"] * count}
    return plain | columns


def refused(value: bytes) -> tuple[str, str]:
    """Return reason and detail of the invalid record `value`; the record next to it must have been read."""
    decoded = decode_records([value, NEIGHBOUR])
    assert decoded.record_index.tolist() == [1]
    [invalid] = decoded.invalid
    assert (invalid.record, invalid.line) == (0, None)
    assert decoded.refused == {invalid.reason: 1}
    return invalid.reason, invalid.detail


def test_rows_that_are_only_declared_are_refused() -> None:
    """280 bytes declare a thousand million rows."""
    value = nulls(1_000_000_000)
    assert len(value) < 500
    assert refused(value) == ("wrong_type", "type is a column of nulls; every event has one")


@pytest.mark.parametrize("count", [0, 1, 100])
def test_required_columns_of_nulls_are_refused(count: int) -> None:
    """Such columns cannot hold an event, whatever their length."""
    reason, detail = refused(nulls(count))
    assert (reason, detail) == ("wrong_type", "type is a column of nulls; every event has one")


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_decompressed_size_is_checked_before_decompression(compression: str) -> None:
    """A column of zeros takes a few kilobytes and declares hundreds of megabytes."""
    zeros = pa.array(np.zeros(40_000_000, np.int64))
    value = stream(pa.RecordBatch.from_arrays([zeros, zeros], names=["at", "type"]), compression)
    assert len(value) < 4_000_000
    assert refused(value)[0] == "too_large"


def test_a_long_compressed_string_is_bounded_too() -> None:
    """The bound also covers few rows with much in each."""
    value = stream(pa.table(heartbeats(1, reason=["x" * 50_000_000])), "zstd")
    reason, detail = refused(value)
    assert reason == "too_large"
    assert "bytes decompressed" in detail


def test_a_dictionary_is_bounded_by_its_decoded_size() -> None:
    """One long value that repeats in every row counts once per row."""
    words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int8)), pa.array(["r" * 60_000]))
    value = stream(pa.table(heartbeats(20_000, reason=words)))
    assert refused(value)[0] == "too_large"


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.RunEndEncodedArray.from_arrays([100], ["aws_sqs"]), "run-end encoded"),
        (pa.array(["aws_sqs"] * 100, pa.string_view()), "string_view"),
        (pa.array([b"aws_sqs"] * 100, pa.binary_view()), "binary_view"),
        (pa.DictionaryArray.from_arrays(pa.array([0] * 100), pa.nulls(1)), "dictionary<values=null"),
    ],
    ids=["run-end", "string view", "binary view", "dictionary of nulls"],
)
def test_encodings_that_multiply_few_bytes_are_refused(column: pa.Array, words: str) -> None:
    """The detail names the column and what to send."""
    reason, detail = refused(stream(pa.table(heartbeats(100, system=column))))
    assert reason == "wrong_type"
    assert detail.startswith(f"system is {words}")
    assert detail.endswith("; send string")


@pytest.mark.parametrize(
    "values", [pa.nulls(2**30), pa.StructArray.from_buffers(pa.struct([]), 2**30, [None])], ids=["nulls", "empty"]
)
def test_a_list_that_only_declares_its_length_is_refused(values: pa.Array) -> None:
    """A list of nulls or of empty structs takes no bytes, whatever its length."""
    long = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    attributes = pa.StructArray.from_arrays([long], names=["a"])
    value = stream(pa.table(heartbeats(1, attributes=attributes)))
    assert len(value) < 2_000
    reason, detail = refused(value)
    assert (reason, "values" in detail) == ("too_large", True)


def test_an_unknown_column_is_not_even_decompressed() -> None:
    """Unknown fields are ignored, whatever their type."""
    unknown = pa.RunEndEncodedArray.from_arrays([100], ["x"])
    decoded = decode_records([stream(pa.table(heartbeats(100, trace=unknown, nothing=pa.nulls(100))))])
    assert decoded.invalid == []
    assert len(decoded.events) == 100


@pytest.mark.parametrize("compression", ["zstd", "lz4", None])
@pytest.mark.parametrize("count", [1, 500, 20_000])
def test_real_streams_are_well_within_the_bounds(compression: Any, count: int) -> None:
    """In practice, events that differ only by a number compress best."""
    value = encode_arrow([SENT | {"message_id": f"m{n}", "at": T + n} for n in range(count)], compression)
    assert declared_by(value) * 5 < arrow_sizes.most_bytes(value)
    assert len(decode_records([value]).events) == count


def test_the_declared_size_is_what_the_reader_allocates() -> None:
    """Sizes come from the stream's own metadata, for dictionaries, compressed buffers and plain ones."""
    words = pa.array(["a", "b"] * 500).dictionary_encode()
    for compression in ("zstd", "lz4", None):
        value = stream(pa.table({"at": np.arange(1_000), "queue": words, "type": ["sent"] * 1_000}), compression)
        table = pa.ipc.open_stream(value).read_all()
        assert table.nbytes <= declared_by(value) <= table.nbytes + 64 * len(table.columns) * 2


@pytest.mark.slow
def test_damaged_metadata_is_refused() -> None:
    """Whichever bytes of the stream change, nothing is raised and the next record is read."""
    value = encode_arrow([SENT | {"message_id": f"m{n}"} for n in range(20)])
    generator = np.random.default_rng(11)
    for _ in range(400):
        damaged = bytearray(value)
        for at in generator.integers(4, len(value), 2).tolist():
            damaged[at] = int(generator.choice([0, 1, 127, 128, 255]))
        decoded = decode_records([bytes(damaged), NEIGHBOUR])
        assert 1 in decoded.record_index.tolist()


@pytest.mark.parametrize(
    "line",
    [b"{}", b"x", b'{"type":"sent"}', b"7", b'{"type":"heartbeat","consumer":"c","at":"soon"}'],
    ids=["empty", "no json", "incomplete", "number", "wrong type"],
)
def test_all_invalid_events_are_counted_and_the_first_are_kept(line: bytes) -> None:
    """They are kept in the order of their lines."""
    decoded = decode_records([b"\n".join([line, NEIGHBOUR.strip()] + [line] * 20_000)])
    assert decoded.refused.total() == 20_001
    assert len(decoded.events) == 1
    assert [one.line for one in decoded.invalid] == [1, *range(3, MOST_KEPT + 2)]


def test_invalid_rows_of_an_arrow_stream_are_counted_too() -> None:
    """This includes rows that are read one by one."""
    wrong = [SENT | {"message_id": f"m{n}", "receive_count": 2**40} for n in range(3_000)]
    decoded = decode_records([stream(pa.Table.from_pylist(wrong))])
    assert decoded.refused == {"out_of_range": 3_000}
    assert [one.line for one in decoded.invalid] == [*range(1, MOST_KEPT + 1)]


def test_numbers_that_fit_no_column_are_refused() -> None:
    """1e999 parses as infinity, which is not an integer."""
    odd = [b"1e999", b"-1e999", b"NaN", b"Infinity", b"1e18", b"-1", b"1e-9", b"9" * 400, b"1e308", b"-0.0"]
    for name in ("at", "sent_at", "receive_count", "v"):
        for number in odd:
            line = json.dumps(SENT).encode()[:-1] + b', "' + name.encode() + b'": ' + number + b"}"
            for value in (line, b"[" + line + b"]", b"\n".join([line] * 50)):
                decoded = decode_records([value, NEIGHBOUR])
                assert 1 in decoded.record_index.tolist()
                assert len(decoded.events) + decoded.refused.total() == 1 + value.count(name.encode() + b'": ' + number)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array([2**62] * 3, pa.timestamp("s")), "out_of_range"),
        (pa.array([-(2**40)] * 3, pa.timestamp("s", "UTC")), "out_of_range"),
        (pa.array([2**62] * 3, pa.timestamp("us")), "out_of_range"),
        (pa.array([2**30] * 3, pa.date32()), "wrong_type"),
        (pa.array([2**62] * 3, pa.duration("ns")), "wrong_type"),
        (pa.array([[{"a": 2**62}]] * 3, pa.list_(pa.struct([("a", pa.timestamp("s"))]))), "wrong_type"),
        (pa.array([float("inf")] * 3), "wrong_type"),
        (pa.array([float("nan")] * 3), "wrong_type"),
        (pa.array([2**64 - 1] * 3, pa.uint64()), "out_of_range"),
    ],
    ids=str,
)
@pytest.mark.parametrize("field", ["at", "sent_at"])
def test_times_beyond_python_s_range_are_refused(column: pa.Array, reason: str, field: str) -> None:
    """Python's dates end with the year 9999; converting a later time raises."""
    decoded = decode_records([stream(pa.table(heartbeats(3) | {field: column})), NEIGHBOUR])
    assert decoded.record_index.tolist() == [1]
    assert {one.reason for one in decoded.invalid} == {reason}


def test_infinity_in_attributes_of_an_arrow_stream_is_refused() -> None:
    """JSON events with 1e999 or NaN are refused too."""
    for number in ("1e999", "-1e999", "NaN", "Infinity"):
        text = '{"visible": 1, "tags": {"x": ' + number + "}}"
        line = json.dumps({"type": "heartbeat", "at": T, "consumer": "c", "attributes": {"y": "?"}})
        for value in (
            stream(pa.table(heartbeats(2, attributes=["{}", text]))),
            line.replace('"?"', number).encode(),
        ):
            decoded = decode_records([value])
            assert [one.reason for one in decoded.invalid] == ["out_of_range"]


def peak(code: str) -> tuple[float, float]:
    """Return the peak-memory growth in MiB and the CPU seconds of `code` in a fresh process."""
    script = f"""
    import resource, sys, time
    import pyarrow as pa
    from sources.wire import decode_records, encode_ndjson
    decode_records([encode_ndjson([{SENT!r}])] * 100)
    value = {code}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    decode_records([value])
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, time.process_time() - began)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    grown_kib, seconds = done.stdout.split()
    return float(grown_kib) / 1024, float(seconds)


@pytest.mark.slow
def test_a_megabyte_of_invalid_events_needs_little_memory() -> None:
    """350,000 empty objects in one record took 330 MB when each one was described."""
    grown, _ = peak("b'{}\\n' * 350_000")
    assert grown < 100


def test_decoded_counts_refusals() -> None:
    """Without refusals the count is empty."""
    decoded: Decoded = decode_records([NEIGHBOUR])
    assert not decoded.refused


def test_messages_are_what_arrow_says_they_are() -> None:
    """Kind and length of the body are read from the metadata alone."""
    names = pa.array(["a", "b", "a"]).dictionary_encode()
    messages = list(pa.ipc.MessageReader.open_stream(stream(pa.RecordBatch.from_arrays([names], names=["queue"]))))
    kinds = {"schema": arrow_sizes.SCHEMA, "dictionary": arrow_sizes.DICTIONARY_BATCH, "record batch": arrow_sizes.RECORD_BATCH}
    assert [message.type for message in messages] == list(kinds)
    for message in messages:
        read = arrow_sizes.message_kind_and_body(message.metadata.to_pybytes())
        assert read == (kinds[message.type], len(message.body or b""))


def metadata(*, back: int, kind: int = 1, body: int = 0, fields_at: int = 28) -> bytes:
    """Return the metadata of a message: its table is at 8, and the positions of its fields `back` bytes before that."""
    made = bytearray(40)
    struct.pack_into("<I4xiB3xq", made, 0, 8, back, kind, body)
    struct.pack_into("<6H", made, fields_at, 12, 16, 0, 4, 0, 8)
    return bytes(made)


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(metadata(back=20), id="fields before the beginning, which would be read from the end"),
        pytest.param(metadata(back=-20, body=-8), id="a body of negative length"),
        pytest.param(metadata(back=-200), id="fields after the end"),
    ],
)
def test_the_damaged_metadata_of_a_message_is_refused(damaged: bytes) -> None:
    """It is never read from another place than it names."""
    assert arrow_sizes.message_kind_and_body(metadata(back=-20, body=24)) == (arrow_sizes.SCHEMA, 24)
    with pytest.raises(ValueError, match="its metadata is damaged"):
        arrow_sizes.message_kind_and_body(damaged)
