"""Validate whole columns of events at once: required fields and ranges by event type."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
from sources.wire.lines import Ints, Mask
from sources.wire.schema import NAME, NAME_FIELDS, TIME_FIELDS, WIRE_SCHEMA, no_values

Flaw = tuple[int, Reason, str]
"""Row, reason, detail."""


@dataclass(frozen=True)
class Checked:
    """`events`: the valid rows in `WIRE_SCHEMA`; `kept`: the mask of those rows, None when all are.

    `refused` counts all other rows by reason; `flaws` describes the first of them, in row order.
    """

    events: pa.Table
    kept: Mask | None
    flaws: list[Flaw]
    refused: Counter[Reason]


@dataclass(frozen=True)
class _Failed:
    """The rows that failed one check, and the description of one of them."""

    rows: Ints
    reason: Reason
    detail: Callable[[int], str]


def validate(table: pa.Table, most_described: int) -> Checked:
    """Check the rows of a table in `PLAIN_SCHEMA` (names may be dictionary-encoded already).

    A row with several flaws is counted and described by the first in the order of the checks. Only the first
    `most_described` are described: a detail is a string, and a record can hold half a million flaws.
    """
    table = table.combine_chunks()
    columns = {name: _single(table.column(name)) for name in table.column_names}
    for name in WIRE_SCHEMA.names:
        if WIRE_SCHEMA.field(name).type == NAME and columns[name].type != NAME:
            columns[name] = _encode(columns[name])
    failures = [failed for failed in _checks(columns) if len(failed.rows)]
    columns["reason"] = _shorten(columns["reason"])
    events = pa.Table.from_arrays([columns[name] for name in WIRE_SCHEMA.names], schema=WIRE_SCHEMA)
    if not failures:
        return Checked(events, None, [], Counter())
    first_failure = np.full(table.num_rows, len(failures), np.int64)
    for number in reversed(range(len(failures))):
        first_failure[failures[number].rows] = number
    kept = first_failure == len(failures)
    refused: Counter[Reason] = Counter()
    for number, count in zip(*np.unique(first_failure[~kept], return_counts=True), strict=True):
        refused[failures[number].reason] += int(count)
    flaws: list[Flaw] = []
    for row in np.flatnonzero(~kept)[: max(0, most_described)].tolist():
        failed = failures[first_failure[row]]
        flaws.append((row, failed.reason, failed.detail(row)))
    return Checked(events.filter(pa.array(kept)), kept, flaws, refused)


def _checks(columns: dict[str, pa.Array]) -> Iterator[_Failed]:
    yield from _check_version(columns["v"])
    yield from _check_type(columns["type"])
    yield from _check_required(columns)
    for name in TIME_FIELDS:
        yield from _check_time(name, columns[name])
    yield from _check_count("receive_count", columns["receive_count"])
    for name in NAME_FIELDS:
        if name != "type":
            yield from _check_length(name, columns[name])


def _check_version(versions: pa.Array) -> Iterator[_Failed]:
    if not _within(versions, WIRE_VERSION, WIRE_VERSION):
        wrong = _rows(pc.not_equal(versions, WIRE_VERSION))
        yield _Failed(wrong, "unsupported_version", lambda row: f"v={versions[row]}; this reader knows v={WIRE_VERSION}")


def _check_type(types: pa.DictionaryArray) -> Iterator[_Failed]:
    if types.null_count:
        missing = f"type is missing; send one of {', '.join(EVENT_TYPES)}"
        yield _Failed(_rows(pc.is_null(types)), "missing_field", lambda _: missing)
    known = pc.is_in(types.dictionary, pa.array(EVENT_TYPES))
    if pc.all(known).as_py() is not False:
        return

    def detail(row: int) -> str:
        name = types[row].as_py()
        near = difflib.get_close_matches(name[:64], EVENT_TYPES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"send one of {', '.join(EVENT_TYPES)}"
        return f"type={_short(name)}; {hint}"

    yield _Failed(_rows(pc.invert(known).take(types.indices)), "unknown_type", detail)


def _check_required(columns: dict[str, pa.Array]) -> Iterator[_Failed]:
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
        rows = np.flatnonzero(absent & needed.to_numpy(zero_copy_only=False))

        def detail(row: int, name: str = name) -> str:
            return f"{name} is missing; a {types[row].as_py()!r} event needs it"

        yield _Failed(rows, "missing_field", detail)


def _absent(column: pa.Array) -> Mask | None:
    """Return which rows have no value, or an empty name; None when all have one."""
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


def _check_time(name: str, times: pa.Array) -> Iterator[_Failed]:
    if not _within(times, EARLIEST_MS, LATEST_MS):
        outside = pc.or_(pc.less(times, EARLIEST_MS), pc.greater(times, LATEST_MS))
        yield _Failed(_rows(outside), "out_of_range", lambda row: _time_detail(name, times[row].as_py()))


def _time_detail(name: str, value: int) -> str:
    if value <= 0:
        return f"{name}={value} is not a time; leave the field out when it is not known"
    for unit, per_ms in (("seconds", 0.001), ("microseconds", 1e3), ("nanoseconds", 1e6)):
        if EARLIEST_MS <= value / per_ms <= LATEST_MS:
            return f"{name}={value} looks like {unit}; send integer epoch milliseconds"
    return f"{name}={value} is outside 2001 to 2100; send integer epoch milliseconds UTC"


def _check_count(name: str, counts: pa.Array) -> Iterator[_Failed]:
    if not _within(counts, 0, None):
        yield _Failed(_rows(pc.less(counts, 0)), "out_of_range", lambda row: f"{name}={counts[row]} is negative")


def _check_length(name: str, column: pa.Array) -> Iterator[_Failed]:
    texts = _texts(column)
    # Byte lengths cost nothing to read and are never less than the number of characters.
    if not len(texts) or _within(pc.binary_length(texts), None, MAX_NAME_CHARS):
        return
    long = pc.greater(pc.utf8_length(texts), MAX_NAME_CHARS)
    if pa.types.is_dictionary(column.type):
        long = long.take(column.indices)
    yield _Failed(_rows(long), "too_long", lambda _: f"{name} is longer than {MAX_NAME_CHARS} characters")


def _shorten(reasons: pa.Array) -> pa.Array:
    """Cut a long reason, which is prose, instead of refusing its event."""
    if reasons.null_count == len(reasons) or _within(pc.binary_length(reasons), None, MAX_REASON_CHARS):
        return reasons
    return pc.utf8_slice_codeunits(reasons, 0, MAX_REASON_CHARS)


def _within(column: pa.Array, low: int | None, high: int | None) -> bool:
    """Whether every value present lies in [low, high]."""
    if column.null_count == len(column):
        return True
    ends = pc.min_max(column)
    return (low is None or ends["min"].as_py() >= low) and (high is None or ends["max"].as_py() <= high)


def _rows(mask: pa.Array) -> Ints:
    """Return the rows where the mask is true; null counts as false."""
    return np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False))


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
