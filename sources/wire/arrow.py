"""Read events from Arrow IPC streams."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sources.events import MAX_ATTRIBUTES_BYTES
from sources.wire.careful import Row, load_json, read_event, rows_to_table
from sources.wire.invalid import RAW_LIMIT, InvalidEvent, RefusalError
from sources.wire.schema import NAME, PLAIN_SCHEMA

STREAM_MARK: Final = b"\xff\xff\xff\xff"
"""The first bytes of every Arrow IPC stream; no UTF-8 text begins so."""

# Handing a stream's few buffers to a pool takes longer than decompressing them.
_ONE_THREAD: Final = pa.ipc.IpcReadOptions(use_threads=False)

Ints = np.ndarray[Any, np.dtype[np.int64]]


class ArrowEvents:
    """Events of some streams: `table` in `PLAIN_SCHEMA`, names encoded; `record`, 1-based `row` of each."""

    def __init__(self, table: pa.Table, record: Ints, row: Ints) -> None:
        self.table = table
        self.record = record
        self.row = row


def read_streams(values: Sequence[bytes], records: Sequence[int]) -> tuple[list[ArrowEvents], list[InvalidEvent]]:
    """Read streams; `records` are their indices in the whole input.

    Streams of one schema are read as one table. When that fails each is read alone, and a stream whose
    columns do not convert is read row by row, so that a broken stream or row spoils no other.
    """
    invalid: list[InvalidEvent] = []
    by_schema: dict[pa.Schema, list[tuple[int, pa.Table]]] = {}
    for value, record in zip(values, records, strict=True):
        try:
            table = _open(value)
        except RefusalError as refusal:
            invalid.append(InvalidEvent(refusal.reason, refusal.detail, record, None, value[:RAW_LIMIT]))
            continue
        by_schema.setdefault(table.schema, []).append((record, table))
    found: list[ArrowEvents] = []
    for streams in by_schema.values():
        try:
            found.append(_place(_convert(pa.concat_tables([t for _, t in streams])), streams))
        except (pa.ArrowException, RefusalError):
            for record, table in streams:
                events, refused = _read_rows(table, record)
                found.append(events)
                invalid.extend(refused)
    return found, invalid


def _open(value: bytes) -> pa.Table:
    try:
        with pa.ipc.open_stream(value, options=_ONE_THREAD) as reader:
            table = reader.read_all()
        # Offsets and dictionary indices come from outside: following a wrong one reads foreign memory.
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RefusalError("not_arrow", f"not a whole Arrow IPC stream: {str(error)[:200]}") from None
    missing = [name for name in ("type", "at") if name not in table.column_names]
    if missing:
        raise RefusalError("missing_field", f"the Arrow stream has no column {missing[0]!r}")
    known = [name for name in PLAIN_SCHEMA.names if table.schema.get_field_index(name) >= 0]
    return table.select(known).replace_schema_metadata(None)


def _convert(table: pa.Table) -> pa.Table:
    """Bring columns to the types of `PLAIN_SCHEMA`; raises when one does not fit without loss."""
    table = table.unify_dictionaries().combine_chunks()
    present = set(table.column_names)
    columns = [
        _convert_column(field, table.column(field.name).combine_chunks())
        if field.name in present
        else pa.nulls(len(table), field.type)
        for field in PLAIN_SCHEMA
    ]
    converted = pa.Table.from_arrays(columns, names=PLAIN_SCHEMA.names)
    _check_attributes(converted.column("attributes"))
    return converted


def _convert_column(field: pa.Field, column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_null(kind):
        return pa.nulls(len(column), field.type)
    if pa.types.is_dictionary(kind):
        if field.type == pa.string() and kind == NAME and not column.dictionary.null_count:
            return column
        column, kind = column.cast(kind.value_type), kind.value_type
    if field.type == pa.string():
        fits = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    elif field.type == pa.bool_():
        fits = pa.types.is_boolean(kind)
    elif pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("ms")).cast(pa.int64())
    else:
        fits = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if not fits:
        raise RefusalError("wrong_type", f"{field.name} is {kind}; send {field.type}")
    return column.cast(field.type)


def _check_attributes(column: pa.ChunkedArray) -> None:
    if column.null_count == len(column):
        return
    for text in pc.drop_null(column).to_pylist():
        _load_attributes(text)


def _load_attributes(text: str) -> dict[str, Any]:
    raw = text.encode("utf-8")
    if len(raw) > MAX_ATTRIBUTES_BYTES:
        raise RefusalError("too_long", f"attributes is longer than {MAX_ATTRIBUTES_BYTES} bytes; send fewer of them")
    value = load_json(raw)
    if not isinstance(value, dict):
        raise RefusalError("wrong_type", "attributes is not the JSON text of an object")
    return value


def _place(table: pa.Table, streams: Sequence[tuple[int, pa.Table]]) -> ArrowEvents:
    lengths = np.array([len(t) for _, t in streams], np.int64)
    record = np.repeat(np.array([record for record, _ in streams], np.int64), lengths)
    first = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return ArrowEvents(table, record, np.arange(len(table)) - first + 1)


def _read_rows(table: pa.Table, record: int) -> tuple[ArrowEvents, list[InvalidEvent]]:
    try:
        return _place(_convert(table), [(record, table)]), []
    except (pa.ArrowException, RefusalError):
        pass
    rows: list[Row] = []
    numbers: list[int] = []
    invalid: list[InvalidEvent] = []
    for number, event in enumerate(table.to_pylist(), start=1):
        try:
            if isinstance(event.get("attributes"), str):
                event["attributes"] = _load_attributes(event["attributes"])
            rows.append(read_event(event))
            numbers.append(number)
        except RefusalError as refusal:
            raw = json.dumps(event, default=str).encode()[:RAW_LIMIT]
            invalid.append(InvalidEvent(refusal.reason, refusal.detail, record, number, raw))
    where = np.full(len(rows), record, np.int64)
    return ArrowEvents(rows_to_table(rows), where, np.array(numbers, np.int64)), invalid
