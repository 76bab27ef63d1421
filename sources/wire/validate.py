"""Check whole columns of events at once: what each type must say, and in which range."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sources.events import (
    EARLIEST_MS,
    EVENT_TYPES,
    LATEST_MS,
    MAX_NAME_CHARS,
    MAX_REASON_CHARS,
    REQUIRED,
    WIRE_VERSION,
)
from sources.wire.invalid import Reason
from sources.wire.schema import NAME, NAME_FIELDS, TIME_FIELDS, WIRE_SCHEMA, no_values

Flaw = tuple[int, Reason, str]
"""Row, reason, detail."""

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def validate(table: pa.Table) -> tuple[pa.Table, Mask | None, list[Flaw]]:
    """Split a table in `PLAIN_SCHEMA` (names may be dictionary-encoded already) into events and flaws.

    Returns the valid rows in `WIRE_SCHEMA`, the mask of the rows kept (None when all are) and one flaw for
    each row refused, in row order. A row with several flaws is named by the first in the order of the checks.
    """
    table = table.combine_chunks()
    columns = {name: _single(table.column(name)) for name in table.column_names}
    for name in WIRE_SCHEMA.names:
        if WIRE_SCHEMA.field(name).type == NAME and columns[name].type != NAME:
            columns[name] = _encode(columns[name])
    flaws: dict[int, Flaw] = {}
    for row, reason, detail in _checks(columns):
        flaws.setdefault(row, (row, reason, detail))
    columns["reason"] = _shorten(columns["reason"])
    events = pa.Table.from_arrays([columns[name] for name in WIRE_SCHEMA.names], schema=WIRE_SCHEMA)
    if not flaws:
        return events, None, []
    kept = np.ones(table.num_rows, dtype=np.bool_)
    kept[list(flaws)] = False
    return events.filter(pa.array(kept)), kept, sorted(flaws.values())


def _checks(columns: dict[str, pa.Array]) -> Iterator[Flaw]:
    yield from _check_version(columns["v"])
    yield from _check_type(columns["type"])
    yield from _check_required(columns)
    for name in TIME_FIELDS:
        yield from _check_time(name, columns[name])
    yield from _check_count("receive_count", columns["receive_count"])
    for name in NAME_FIELDS:
        if name != "type":
            yield from _check_length(name, columns[name])


def _check_version(versions: pa.Array) -> Iterator[Flaw]:
    if _within(versions, WIRE_VERSION, WIRE_VERSION):
        return
    for row in _rows(pc.not_equal(versions, WIRE_VERSION)):
        yield row, "unsupported_version", f"v={versions[row]}; this reader knows v={WIRE_VERSION}"


def _check_type(types: pa.DictionaryArray) -> Iterator[Flaw]:
    if types.null_count:
        for row in _rows(pc.is_null(types)):
            yield row, "missing_field", f"type is missing; send one of {', '.join(EVENT_TYPES)}"
    known = pc.is_in(types.dictionary, pa.array(EVENT_TYPES))
    if pc.all(known).as_py() is not False:
        return
    for row in _rows(pc.invert(known).take(types.indices)):
        name = types[row].as_py()
        near = difflib.get_close_matches(name[:64], EVENT_TYPES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"send one of {', '.join(EVENT_TYPES)}"
        yield row, "unknown_type", f"type={_short(name)}; {hint}"


def _check_required(columns: dict[str, pa.Array]) -> Iterator[Flaw]:
    types: pa.DictionaryArray = columns["type"]
    present = set(types.dictionary.to_pylist())
    for name, needed_by in REQUIRED.items():
        column = columns[name]
        if name == "type" or not (present & needed_by):
            continue
        absent = _absent(column)
        if absent is None:
            continue
        needed = pc.fill_null(pc.is_in(types.dictionary, pa.array(sorted(needed_by))).take(types.indices), False)
        for row in np.flatnonzero(absent & needed.to_numpy(zero_copy_only=False)):
            yield (
                int(row),
                "missing_field",
                f"{name} is missing; a {types[int(row)].as_py()!r} event needs it",
            )


def _absent(column: pa.Array) -> Mask | None:
    """Which rows have no value, an empty name counting as none; None when all have one."""
    empty = pa.types.is_string(column.type) or pa.types.is_dictionary(column.type)
    if empty:
        lengths = pc.binary_length(_texts(column))
        empty = len(lengths) > 0 and pc.min(lengths).as_py() == 0
    if not empty and not column.null_count:
        return None
    absent = pc.is_null(column)
    if empty:
        blank = pc.equal(lengths, 0)
        if pa.types.is_dictionary(column.type):
            blank = blank.take(column.indices)
        absent = pc.or_(absent, pc.fill_null(blank, False))
    mask: Mask = absent.to_numpy(zero_copy_only=False)
    return mask


def _check_time(name: str, times: pa.Array) -> Iterator[Flaw]:
    if _within(times, EARLIEST_MS, LATEST_MS):
        return
    outside = pc.or_(pc.less(times, EARLIEST_MS), pc.greater(times, LATEST_MS))
    for row in _rows(outside):
        yield row, "out_of_range", _time_detail(name, times[row].as_py())


def _time_detail(name: str, value: int) -> str:
    if value <= 0:
        return f"{name}={value} is not a time; leave the field out when it is not known"
    for unit, per_ms in (("seconds", 0.001), ("microseconds", 1e3), ("nanoseconds", 1e6)):
        if EARLIEST_MS <= value / per_ms <= LATEST_MS:
            return f"{name}={value} looks like {unit}; send integer epoch milliseconds"
    return f"{name}={value} is outside 2001 to 2100; send integer epoch milliseconds UTC"


def _check_count(name: str, counts: pa.Array) -> Iterator[Flaw]:
    if _within(counts, 0, None):
        return
    for row in _rows(pc.less(counts, 0)):
        yield row, "out_of_range", f"{name}={counts[row]} is negative"


def _check_length(name: str, column: pa.Array) -> Iterator[Flaw]:
    texts = _texts(column)
    # Bytes are free to look at and never fewer than characters.
    if not len(texts) or _within(pc.binary_length(texts), None, MAX_NAME_CHARS):
        return
    long = pc.greater(pc.utf8_length(texts), MAX_NAME_CHARS)
    if pa.types.is_dictionary(column.type):
        long = long.take(column.indices)
    for row in _rows(long):
        yield row, "too_long", f"{name} is longer than {MAX_NAME_CHARS} characters"


def _shorten(reasons: pa.Array) -> pa.Array:
    """A reason is prose: the end of a long one is cut instead of refusing its event."""
    if reasons.null_count == len(reasons) or _within(pc.binary_length(reasons), None, MAX_REASON_CHARS):
        return reasons
    return pc.utf8_slice_codeunits(reasons, 0, MAX_REASON_CHARS)


def _within(column: pa.Array, low: int | None, high: int | None) -> bool:
    """Whether every value that is there lies in [low, high]."""
    if column.null_count == len(column):
        return True
    ends = pc.min_max(column)
    return (low is None or ends["min"].as_py() >= low) and (high is None or ends["max"].as_py() <= high)


def _rows(mask: pa.Array) -> list[int]:
    """Rows where the mask is true; null is not."""
    found: list[int] = np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False)).tolist()
    return found


def _texts(column: pa.Array) -> pa.Array:
    return column.dictionary if pa.types.is_dictionary(column.type) else column


def _encode(column: pa.Array) -> pa.DictionaryArray:
    if column.null_count == len(column):
        return no_values(len(column), NAME)
    return pc.dictionary_encode(column)


def _single(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.nulls(0, column.type) if column.num_chunks == 0 else column.combine_chunks()


def _short(text: str) -> str:
    return repr(text if len(text) <= 64 else text[:61] + "...")
