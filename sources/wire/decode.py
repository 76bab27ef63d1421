"""Decode records to columns.

The data flow: records → by content → lines → blocks (fast) or one by one (exact) → valid columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from sources.wire.arrow import STREAM_MARK, read_streams
from sources.wire.blocks import BlockParser
from sources.wire.collected import Collected, Decoded
from sources.wire.event_json import BYTE_ORDER_MARK
from sources.wire.invalid import MOST_KEPT, RefusalError
from sources.wire.lines import Ints, Lines, Mask, all_open, gather, parsable, split_lines
from sources.wire.one_by_one import OneByOneReader
from sources.wire.records import Group, Values, groups, lengths_of, starts_of

__all__ = ["Decoded", "decode_records"]

_BLANK: Final = b" \t\r\n"
# Raw line breaks are illegal in JSON strings: replacing the text between two elements either cuts the
# array into exactly its elements, or cuts a string and leaves lines that do not parse.
_BETWEEN_ELEMENTS: Final = re.compile(rb"\}\s*,\s*\{")

_ROWS_AT_ONCE: Final = 1 << 16
"""The approximate number of parsed lines that are validated together."""

_EMPTY: Final = RefusalError("empty", "the record is empty; send one event, a JSON array, NDJSON or an Arrow stream")


def decode_records(values: Values, parser: BlockParser | None = None, *, most_kept: int = MOST_KEPT) -> Decoded:
    """Decode record values, each one event, a JSON array, NDJSON or an Arrow IPC stream, recognised by content.

    `values` may also be a pyarrow binary array. Never raises because of a value's content: an event that cannot
    be read or breaks the contract goes to `invalid`, and affects no other event of its value. A null or empty
    value (a Kafka tombstone) is one invalid event. All invalid events are counted, and the first `most_kept` of
    them (for each way of reading) are kept. A `parser` that is passed again remembers the columns of the
    stream.
    """
    collected = Collected(most_kept)
    texts = _TextDecoder(collected, parser or BlockParser())
    streams: list[tuple[int, bytes]] = []
    for group in groups(values):
        streams.extend(texts.decode(group))
    texts.finish()
    read_streams(streams, collected)
    return collected.result()


@dataclass(frozen=True)
class _Texts:
    """JSON records of one group, joined by line breaks; `record` holds their indices in the input.

    `arrays` holds the text of those that were JSON arrays; `buffer` has them as one line per element.
    """

    buffer: bytes
    start: Ints
    record: Ints
    arrays: dict[int, bytes] = field(default_factory=dict)

    def raw(self, i: int) -> bytes:
        """Return the original text of one record."""
        if i in self.arrays:
            return self.arrays[i]
        last = i + 1 == len(self.start)
        return self.buffer[self.start[i] : None if last else self.start[i + 1] - 1]


@dataclass(frozen=True)
class _Part:
    """Parsed lines: `table` in `READ_SCHEMA`, and `index` of its rows among `lines`."""

    table: pa.Table
    lines: Lines
    index: Ints
    record: Ints


class _TextDecoder:
    """Decodes groups of records; JSON is parsed here, Arrow streams are handed back."""

    def __init__(self, collected: Collected, parser: BlockParser) -> None:
        self._collected = collected
        self._parser = parser
        self._one_by_one = OneByOneReader(collected)
        self._parts: list[_Part] = []
        self._rows = 0
        """The number of rows in `_parts`."""

    def decode(self, group: Group) -> list[tuple[int, bytes]]:
        """Decode the JSON records of a group; return the Arrow streams, with their indices."""
        if all_open(group.joined, group.start):
            self._parse(_Texts(group.joined, group.start, np.arange(group.first, group.first + len(group.start))))
            return []
        texts, streams = _by_content(group.first, group.values(), self._collected)
        if len(texts.record):
            self._parse(texts)
        return streams

    def finish(self) -> None:
        """Add everything parsed to the result."""
        self._one_by_one.finish()
        self._flush()

    def _keep(self, part: _Part) -> None:
        self._parts.append(part)
        self._rows += len(part.index)
        # Validate early: almost empty lines become forty times as large as columns and would fill memory.
        if self._rows >= _ROWS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        parts, self._parts, self._rows = self._parts, [], 0
        if not parts:
            return
        firsts = np.cumsum([0, *(len(part.index) for part in parts)])

        def raw(row: int) -> bytes:
            part = int(np.searchsorted(firsts, row, side="right")) - 1
            return parts[part].lines.raw(int(parts[part].index[row - firsts[part]]))

        self._collected.add(
            pa.concat_tables([part.table for part in parts]),
            np.concatenate([part.record for part in parts]),
            np.concatenate([part.lines.number[part.index] for part in parts]),
            raw,
        )

    def _parse(self, texts: _Texts) -> None:
        lines = split_lines(texts.buffer, texts.start)
        shaped, fit = parsable(lines)
        whole = _written_over_lines(lines, shaped)
        slow = ~fit
        if len(whole):
            own = np.isin(lines.record, whole)
            fit &= ~own
            slow &= ~own
        fast, index = gather(lines, fit)
        parts: list[_Part] = []
        for piece in self._parser.parse(fast):
            rows = index[piece.index]
            if piece.table is None:
                slow[rows] = True
                continue
            part = _Part(piece.table, lines, rows, texts.record[lines.record[rows]])
            if texts.arrays:
                parts.append(part)
            else:
                self._keep(part)
        if texts.arrays and slow.any():
            # An element that does not parse alone may be a string cut in two: read its whole array again.
            broken = np.intersect1d(lines.record[slow], np.fromiter(texts.arrays, np.int64))
            whole = np.union1d(whole, broken)
            slow &= ~np.isin(lines.record, broken)
            parts = [_without(broken, part) for part in parts]
        for part in parts:
            self._keep(part)
        self._read_slowly(texts, lines, np.flatnonzero(slow), whole)

    def _read_slowly(self, texts: _Texts, lines: Lines, slow: Ints, whole: Ints) -> None:
        """Read lines one by one, and records that can only be parsed as a whole."""
        ends = zip(*np.searchsorted(lines.record, [whole, whole + 1]).tolist(), strict=True)
        for i, (first, last) in zip(whole.tolist(), ends, strict=True):
            own = [(int(lines.number[n]), lines.raw(n)) for n in range(first, last)]
            self._one_by_one.read_record(int(texts.record[i]), texts.raw(i), own)
        for i in slow.tolist():
            self._one_by_one.read_line(int(texts.record[lines.record[i]]), int(lines.number[i]), lines.raw(i))


def _by_content(first: int, group: Sequence[bytes | None], collected: Collected) -> tuple[_Texts, list[tuple[int, bytes]]]:
    """Sort records into JSON text, and Arrow streams with their indices."""
    texts: list[bytes] = []
    record: list[int] = []
    streams: list[tuple[int, bytes]] = []
    arrays: dict[int, bytes] = {}
    for index, item in enumerate(group, start=first):
        value = bytes(item or b"")
        if value[:4] == STREAM_MARK:
            streams.append((index, value))
            continue
        if value[:1] != b"{":
            text = value.strip(_BLANK).removeprefix(BYTE_ORDER_MARK).strip(_BLANK)
            if not text:
                collected.refuse(_EMPTY, index, None, value)
                continue
            if text[:1] == b"[" and text[-1:] == b"]":
                value = _BETWEEN_ELEMENTS.sub(b"}\n{", text[1:-1].replace(b"\n", b"\r").strip(_BLANK))
                if not value:
                    continue
                arrays[len(texts)] = text
        texts.append(value)
        record.append(index)
    joined = _Texts(b"\n".join(texts), starts_of(lengths_of(texts)), np.array(record, np.int64), arrays)
    return joined, streams


def _written_over_lines(lines: Lines, shaped: Mask) -> Ints:
    """Return the records of several lines without any line that looks like an event: pretty-printed, or not JSON at all."""
    if shaped.all():
        return np.zeros(0, np.int64)
    lines_in = np.bincount(lines.record)
    shaped_in = np.bincount(lines.record[shaped], minlength=len(lines_in))
    return np.flatnonzero((lines_in > 1) & (shaped_in == 0))


def _without(broken: Ints, part: _Part) -> _Part:
    """Remove the rows of records that are read again from what was parsed."""
    kept = ~np.isin(part.lines.record[part.index], broken)
    if kept.all():
        return part
    return _Part(part.table.filter(pa.array(kept)), part.lines, part.index[kept], part.record[kept])
