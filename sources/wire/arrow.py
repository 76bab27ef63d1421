"""Read events from Arrow IPC streams."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sources.events import MAX_ATTRIBUTES_BYTES
from sources.wire.arrow_sizes import check_sizes, most_bytes
from sources.wire.collected import Collected
from sources.wire.event_json import Row, dump, load_json, read_event, rows_to_table
from sources.wire.invalid import RefusalError
from sources.wire.schema import NAME, PLAIN_SCHEMA, WIRE_SCHEMA

STREAM_MARK: Final = b"\xff\xff\xff\xff"
"""The first bytes of every Arrow IPC stream; no UTF-8 text starts with them."""

_KNOWN: Final = frozenset(PLAIN_SCHEMA.names)
_FITTING: Final = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_timestamp,
    pa.types.is_null,
)
_NAMES: Final = frozenset(field.name for field in WIRE_SCHEMA if field.type == NAME)

GROUP_BYTES: Final = 64 << 20
"""The approximate size of decompressed columns that are converted together."""

_SLOW_ROWS: Final = 1_000
"""Rows converted to Python objects at a time."""

_MOST_ATTRIBUTES: Final = 256
"""The most fields of `attributes` where it is a column of structs, those of its structs included."""

_BYTES_PER_ATTRIBUTE: Final = 16
"""A value of a struct is at least this long as JSON text and as a Python object."""


def read_streams(streams: Iterable[tuple[int, bytes]], collected: Collected) -> None:
    """Read streams, given with their indices in the whole input, into `collected`.

    Streams of one schema are read as one table. When that fails, each is read alone, and a stream whose columns do
    not convert is read row by row, so that a broken stream or row affects no other. The sizes a stream declares are
    checked before it is decompressed: see `arrow_sizes`.
    """
    by_schema: dict[pa.Schema, list[tuple[int, pa.Table]]] = {}
    waiting = 0
    for record, value in streams:
        try:
            declared, table = _open(value)
        except RefusalError as refusal:
            collected.refuse(refusal, record, None, value)
            continue
        by_schema.setdefault(table.schema, []).append((record, table))
        waiting += declared
        if waiting > GROUP_BYTES:
            _read_tables(by_schema, collected)
            by_schema, waiting = {}, 0
    _read_tables(by_schema, collected)


def _read_tables(by_schema: Mapping[pa.Schema, Sequence[tuple[int, pa.Table]]], collected: Collected) -> None:
    for streams in by_schema.values():
        try:
            table = _convert(pa.concat_tables([table for _, table in streams]))
        except (pa.ArrowException, RefusalError):
            for record, alone in streams:
                _read_stream(alone, record, collected)
        else:
            lengths = np.array([len(table) for _, table in streams], np.int64)
            record_of = np.repeat(np.array([record for record, _ in streams], np.int64), lengths)
            first = np.repeat(np.cumsum(lengths) - lengths, lengths)
            collected.add(table, record_of, np.arange(len(table)) - first + 1, _raw_of_row(table))


def _open(value: bytes) -> tuple[int, pa.Table]:
    """Return the number of bytes a stream decompresses to, and its known columns."""
    try:
        messages = pa.ipc.MessageReader.open_stream(value)
        options = _options_for(bytes(messages.read_next_message().serialize()))
        declared = check_sizes(messages, value)
        with pa.ipc.open_stream(value, options=options) as reader:
            table = reader.read_all()
        # Offsets and dictionary indices come from outside: following a wrong one reads unrelated memory.
        table.validate(full=True)
    except RefusalError:
        raise
    except (pa.ArrowException, OSError, ValueError, StopIteration) as error:
        raise RefusalError("not_arrow", f"not a whole Arrow IPC stream: {str(error)[:200]}") from None
    _check_expansion(table, most_bytes(value))
    table = _with_attributes_as_text(_with_integer_times(table), most_bytes(value))
    return declared, table.replace_schema_metadata(None)


@lru_cache(maxsize=64)
def _options_for(schema_message: bytes) -> pa.ipc.IpcReadOptions:
    """Return options that read only the columns of an event: unknown columns are not even decompressed.

    Raises `RefusalError` for a schema that cannot hold events, `pa.ArrowException` when there is none.
    """
    schema = pa.ipc.read_schema(pa.py_buffer(schema_message))
    known = [at for at, name in enumerate(schema.names) if name in _KNOWN]
    for name in ("type", "at"):
        if name not in schema.names:
            raise RefusalError("missing_field", f"the Arrow stream has no column {name!r}")
    for at in known:
        field = schema.field(at)
        if schema.names.count(field.name) > 1:
            raise RefusalError("wrong_type", f"the Arrow stream has two columns {field.name!r}")
        if field.name == "attributes" and pa.types.is_struct(field.type):
            _check_attribute_types(field.type)
        elif (unfit := _unfit(field.type)) is not None:
            raise RefusalError("wrong_type", f"{field.name} is {unfit}; send {PLAIN_SCHEMA.field(field.name).type}")
        if field.name in ("type", "at") and pa.types.is_null(field.type):
            raise RefusalError("wrong_type", f"{field.name} is a column of nulls; every event has one")
    # Passing a stream's few buffers to a thread pool takes longer than decompressing them.
    return pa.ipc.IpcReadOptions(use_threads=False, included_fields=known)


def _unfit(kind: pa.DataType) -> str | None:
    """Return the name of a type that no event column can have; None for a type that may fit.

    Refused types include encodings in which few bytes stand for many (the decoded size cannot be known from them), and
    types whose values Python cannot always hold.
    """
    if pa.types.is_dictionary(kind):
        return str(kind) if pa.types.is_null(kind.value_type) else _unfit(kind.value_type)
    if pa.types.is_run_end_encoded(kind):
        return "run-end encoded"
    return None if any(fits(kind) for fits in _FITTING) else str(kind)


def _with_integer_times(table: pa.Table) -> pa.Table:
    """Convert timestamps to epoch milliseconds: Python cannot represent those before the year 1 or after 9999."""
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            to_ms = pc.CastOptions(pa.timestamp("ms", field.type.tz), allow_time_truncate=True)
            try:
                column = table.column(at).cast(options=to_ms).cast(pa.int64())
            except pa.ArrowException as error:
                raise RefusalError("out_of_range", f"{field.name} is no time in milliseconds: {str(error)[:200]}") from None
            table = table.set_column(at, field.name, column)
    return table


def _check_attribute_types(kind: pa.DataType) -> None:
    """Raise `RefusalError` for structs that hold what JSON cannot, or too many fields."""
    waiting, fields = [kind], 0
    while waiting:
        inner = waiting.pop()
        if pa.types.is_struct(inner) or pa.types.is_list(inner):
            children = [inner.field(at).type for at in range(inner.num_fields)]
            fields += len(children)
            waiting += children
        elif pa.types.is_timestamp(inner) or pa.types.is_dictionary(inner) or _unfit(inner) is not None:
            raise RefusalError("wrong_type", f"attributes holds {inner}; send text, numbers and booleans, or JSON text as string")
        if fields > _MOST_ATTRIBUTES:
            raise RefusalError("too_large", f"attributes has more than {_MOST_ATTRIBUTES} fields; send JSON text as string")


def _with_attributes_as_text(table: pa.Table, most: int) -> pa.Table:
    """Write structs in `attributes` as JSON text. A table has each name in all of its rows, so null is absent."""
    at = table.schema.get_field_index("attributes")
    if at < 0 or not pa.types.is_struct(table.schema.field(at).type):
        return table
    # A list of nulls or of empty structs has no buffers, so that a stream may declare one of any length.
    values = sum(_values_in(chunk) for chunk in table.column(at).chunks)
    if values * _BYTES_PER_ATTRIBUTE > most:
        raise RefusalError("too_large", f"attributes declares {values} values; {most // _BYTES_PER_ATTRIBUTE} are the limit")
    column = table.column(at).combine_chunks()
    given = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    texts: list[str | None] = [None] * len(column)
    for first in range(0, len(given), _SLOW_ROWS):
        rows = given[first : first + _SLOW_ROWS]
        for row, value in zip(rows.tolist(), column.take(pa.array(rows)).to_pylist(), strict=True):
            texts[row] = json.dumps(_without_nulls(value), ensure_ascii=False)
    return table.set_column(at, "attributes", pa.array(texts, pa.string()))


def _values_in(array: pa.Array) -> int:
    """Return how many values an array has at all depths."""
    if pa.types.is_struct(array.type):
        return len(array) + sum(_values_in(array.field(at)) for at in range(array.type.num_fields))
    return len(array) + (_values_in(array.values) if pa.types.is_list(array.type) else 0)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _check_expansion(table: pa.Table, most: int) -> None:
    """Limit the size of dictionary columns when expanded: one long value may occur in every row."""
    expanded = 0
    for field in table.schema:
        if not pa.types.is_dictionary(field.type) or (field.type == NAME and field.name in _NAMES):
            continue
        words = field.type.value_type
        if pa.types.is_string(words) or pa.types.is_large_string(words):
            for chunk in table.column(field.name).chunks:
                expanded += pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0
    if expanded > most:
        raise RefusalError("too_large", f"dictionary-encoded columns hold {expanded} bytes written out; {most} are the limit")


def _convert(table: pa.Table) -> pa.Table:
    """Convert columns to the types of `PLAIN_SCHEMA`; raises when one does not fit without loss."""
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
        fits = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    elif field.type == pa.bool_():
        fits = pa.types.is_boolean(kind)
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
    if not _is_finite(value):
        raise RefusalError("out_of_range", "attributes holds a number that is not finite; leave it out")
    return value


def _is_finite(value: dict[str, Any]) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def _read_stream(table: pa.Table, record: int, collected: Collected) -> None:
    """Read one stream, row by row if its columns do not convert."""
    try:
        converted = _convert(table)
    except (pa.ArrowException, RefusalError):
        pass
    else:
        collected.add(converted, np.full(len(table), record, np.int64), np.arange(len(table)) + 1, _raw_of_row(converted))
        return
    for first in range(0, len(table), _SLOW_ROWS):
        _read_rows(table.slice(first, _SLOW_ROWS), record, first + 1, collected)


def _read_rows(table: pa.Table, record: int, first: int, collected: Collected) -> None:
    rows: list[Row] = []
    numbers: list[int] = []
    for number, event in enumerate(table.to_pylist(), start=first):
        try:
            if isinstance(event.get("attributes"), str):
                event["attributes"] = _load_attributes(event["attributes"])
            rows.append(read_event(event))
            numbers.append(number)
        except RefusalError as refusal:
            collected.refuse(refusal, record, number, partial(dump, event))
    if rows:
        read = rows_to_table(rows)
        collected.add(read, np.full(len(rows), record, np.int64), np.array(numbers, np.int64), _raw_of_row(read))


def _raw_of_row(table: pa.Table) -> Callable[[int], bytes]:
    def raw(row: int) -> bytes:
        event = table.slice(row, 1).to_pylist()[0]
        return dump({name: value for name, value in event.items() if value is not None})

    return raw
