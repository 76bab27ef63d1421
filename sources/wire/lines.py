"""Split records of JSON text into lines, for all records at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sources.wire.event_json import MOST_LEVELS

Ints = np.ndarray[Any, np.dtype[np.int64]]
Int32s = np.ndarray[Any, np.dtype[np.int32]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"

# In JSON an object is followed by a comma, a bracket or the end. A brace that is not may be inside a string, or
# be followed by a second object on the line or by a bare `null`: the block parser reads those as rows of
# their own (and crashes on a null where it expects a first object).
_BRACE_ASTRAY: Final = re.compile(rb"\}\s*[^\s,}\]]")
_ATTRIBUTES: Final = b'"attributes"'

# The block parser reads what the one-by-one path refuses: nesting and numbers without a limit. It would depend on the lines
# around such a line whether it is read.
_LONGEST_NUMBER: Final = 1_000
_LONG_NUMBER: Final = re.compile(rb"[0-9]{%d}" % _LONGEST_NUMBER)


@dataclass(frozen=True)
class Lines:
    """The non-blank lines of `buffer`, as arrays of one length, in order.

    `start` and `end` are byte offsets without the line break; `record` is the index of the value passed in, `number`
    the 1-based line within it.
    """

    buffer: bytes
    start: Ints
    end: Ints
    record: Ints
    number: Ints

    def __len__(self) -> int:
        return len(self.start)

    def part(self, first: int, last: int) -> Lines:
        """Return lines [first, last) over the same buffer."""
        where = slice(first, last)
        return Lines(
            buffer=self.buffer, start=self.start[where], end=self.end[where], record=self.record[where], number=self.number[where]
        )

    def text(self, first: int, last: int) -> bytes:
        """Return the bytes from line `first` to before line `last`."""
        return self.buffer[self.start[first] : self.end[last - 1]]

    def raw(self, index: int) -> bytes:
        """Return the bytes of one line."""
        return self.buffer[self.start[index] : self.end[index]]


def split_lines(buffer: bytes, record_start: Ints) -> Lines:
    """Return the lines of JSON records that start at `record_start` and are joined by one line break each.

    A carriage return before a line break belongs to the break.
    """
    data: Bytes = np.frombuffer(buffer, dtype=np.uint8)
    breaks = np.flatnonzero(data == _NEWLINE)
    start = np.concatenate((np.zeros(1, np.int64), breaks + 1))
    end = np.concatenate((breaks, np.full(1, len(data), np.int64)))
    record, number = _places(record_start, start)
    if b"\r" in buffer:
        last = data[np.maximum(end - 1, 0)] == _RETURN
        end = end - (last & (end > start))
    lines = Lines(buffer=buffer, start=start, end=end, record=record, number=number)
    return _only(lines, end > start) if (end == start).any() else lines


def _places(record_start: Ints, line_start: Ints) -> tuple[Ints, Ints]:
    """Return the record and the line number of each line."""
    count = len(record_start)
    if len(line_start) == count:
        return np.arange(count), np.ones(count, np.int64)
    first = np.searchsorted(line_start, record_start)
    per_record = np.diff(np.append(first, len(line_start)))
    number = np.arange(len(line_start)) - np.repeat(first, per_record) + 1
    return np.repeat(np.arange(count), per_record), number


def all_open(buffer: bytes, record_start: Ints) -> bool:
    """Whether every record starts with an opening brace, as NDJSON and single objects do."""
    data: Bytes = np.frombuffer(buffer, dtype=np.uint8)
    if not len(data) or record_start[-1] == len(data):
        return False
    return bool((data[record_start] == _OPEN).all())


def parsable(lines: Lines) -> tuple[Mask, Mask]:
    """Return which lines look like an event, `{…}`, and which of them the block parser can read.

    These are flat or harmlessly nested objects; the rest (text around the object, `attributes`) take the one-by-one
    path.
    """
    if not len(lines):
        return np.zeros(0, np.bool_), np.zeros(0, np.bool_)
    data: Bytes = np.frombuffer(lines.buffer, dtype=np.uint8)
    shaped: Mask = (data[lines.start] == _OPEN) & (data[lines.end - 1] == _CLOSE)
    closing = data == _CLOSE
    fit = shaped.copy()
    # Each level is opened and closed, so lines of the usual length need not be looked at.
    for index in np.flatnonzero(fit & (lines.end - lines.start > min(2 * MOST_LEVELS, _LONGEST_NUMBER))).tolist():
        raw = lines.raw(index)
        fit[index] = raw.count(b"[") + raw.count(b"{") <= MOST_LEVELS and not _LONG_NUMBER.search(raw)
    if shaped.all() and np.count_nonzero(closing) == len(lines):
        return shaped, fit
    braces = np.flatnonzero(closing)
    line_of = np.searchsorted(lines.end, braces, side="right")
    inner = braces[braces != lines.end[np.minimum(line_of, len(lines) - 1)] - 1]
    for index in np.unique(np.searchsorted(lines.end, inner, side="right")).tolist():
        if index < len(lines) and fit[index]:
            raw = lines.raw(index)
            fit[index] = _ATTRIBUTES not in raw and not _BRACE_ASTRAY.search(raw)
    return shaped, fit


def gather(lines: Lines, chosen: Mask) -> tuple[Lines, Ints]:
    """Copy the chosen lines to a buffer of their own, and return them with their indices in `lines`."""
    index = np.flatnonzero(chosen)
    if len(index) == len(lines):
        return lines, index
    # Neighbouring lines are copied together.
    breaks = np.flatnonzero(np.diff(index) != 1) + 1
    runs = np.split(index, breaks) if len(index) else []
    view = memoryview(lines.buffer)
    pieces = [view[lines.start[run[0]] : lines.end[run[-1]]] for run in runs]
    shift = np.zeros(len(index), np.int64)
    position = 0
    for run, piece, at in zip(runs, pieces, [0, *breaks.tolist()], strict=False):
        shift[at : at + len(run)] = position - lines.start[run[0]]
        position += len(piece) + 1
    kept = _only(lines, chosen)
    return (
        Lines(buffer=b"\n".join(pieces), start=kept.start + shift, end=kept.end + shift, record=kept.record, number=kept.number),
        index,
    )


def _only(lines: Lines, chosen: Mask) -> Lines:
    return Lines(
        buffer=lines.buffer,
        start=lines.start[chosen],
        end=lines.end[chosen],
        record=lines.record[chosen],
        number=lines.number[chosen],
    )
