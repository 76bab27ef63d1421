"""The three forms of Kafka records for a table of events, encoded column by column."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

Form = Literal["single", "ndjson", "arrow"]
FORMS: Final[tuple[Form, ...]] = ("ndjson", "single", "arrow")
EVENTS_PER_RECORD: Final[dict[Form, int]] = {"single": 1, "ndjson": 500, "arrow": 10_000}
FORM_NAMES: Final[dict[Form, str]] = {
    "single": "JSON, one event per record",
    "ndjson": "JSON, 500 events per record",
    "arrow": "Arrow IPC, 10,000 events per record",
}


def records(table: pa.Table, form: Form, per_record: int | None = None) -> Iterator[bytes]:
    """Yield the record values of `table`, in order. `per_record` overrides `EVENTS_PER_RECORD`."""
    size = per_record or EVENTS_PER_RECORD[form]
    if form == "arrow":
        for begin in range(0, table.num_rows, size):
            yield arrow_stream(table.slice(begin, size))
        return
    lines = json_lines(table)
    _, offsets_buffer, text = lines.buffers()
    offsets = memoryview(offsets_buffer).cast("i")
    view = memoryview(text)
    for begin in range(0, len(lines), size):
        # Every line ends with a newline, so a record is a slice of the column's bytes. A single event needs no newline.
        end = offsets[min(begin + size, len(lines))] - (1 if size == 1 else 0)
        yield bytes(view[offsets[begin] : end])


def arrow_stream(table: pa.Table) -> bytes:
    """Encode one Arrow IPC stream, compressed with zstd. Its dictionaries hold only the names used in this record."""
    used = [name for name in table.column_names if table[name].null_count < table.num_rows]
    columns = [_narrow(table[name].combine_chunks()) for name in used]
    batch = pa.RecordBatch.from_arrays(columns, names=used)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1))
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def json_lines(table: pa.Table) -> pa.StringArray:
    """Return one JSON object per row, without absent fields, each ending with a newline."""
    parts: list[pa.Array | str] = []
    for name in table.column_names:
        column = table[name].combine_chunks()
        if column.null_count < len(column):
            parts.append(_members(name, column, first=not parts))
    return pc.binary_join_element_wise("{", *parts, "}\n", "", null_handling="replace", null_replacement="")


def _members(name: str, column: pa.Array, first: bool) -> pa.Array:
    """Return `,"name":value` per row; null if the value is null."""
    start = f'{"" if first else ","}"{name}":'
    if pa.types.is_dictionary(column.type):
        words = column.dictionary.to_pylist()
        members = pa.array([start + json.dumps(word) for word in words], pa.string())
        return pa.DictionaryArray.from_arrays(column.indices, members).cast(pa.string())
    if pa.types.is_string(column.type) and name != "attributes":
        # Ids and sequences of a load need no escaping.
        return pc.binary_join_element_wise(start + '"', column, '"', "")
    return pc.binary_join_element_wise(start, column.cast(pa.string()), "")


def _narrow(column: pa.Array) -> pa.Array:
    if not pa.types.is_dictionary(column.type):
        return column
    return column.cast(pa.string()).dictionary_encode()
