"""Parse lines of JSON in blocks: flat objects with the compiled scan, the rest with pyarrow's parser.

A block parsed by pyarrow is accepted only when it is certain that every line became one event and no known field
was left out. Otherwise it is split into smaller blocks, and lines that stay doubtful go to the one-by-one path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from sources.wire.event_json import load_json
from sources.wire.invalid import RefusalError
from sources.wire.lines import Ints, Lines, gather
from sources.wire.scan import scan
from sources.wire.schema import NAME, PLAIN_SCHEMA, READ_SCHEMA, no_values

BLOCK_BYTES: Final = 8 << 20
BLOCK_LINES: Final = 1 << 16
"""Blocks of very short lines are smaller: the scan needs 260 bytes per line, whatever it holds."""

SMALLEST_SPLIT: Final = 512
"""The size below which a block that does not parse completely is read line by line."""

FEW_LINES: Final = 40
"""Up to this many lines are read one by one in any case: a call of the block parser costs as much."""

_SPLIT_WAYS: Final = 8
_SAMPLED_LINES: Final = 8


@dataclass(frozen=True)
class Parsed:
    """Some lines, by index: `table` holds their events in `READ_SCHEMA`, or is None when they need the one-by-one path."""

    index: Ints
    table: pa.Table | None


class BlockParser:
    """Parses lines block by block and remembers which columns the stream has."""

    def __init__(self) -> None:
        # Each column costs time in every row, present or not: read the columns seen so far, then check that
        # they sufficed.
        self._seen: set[str] = set()
        self._narrow = True

    def parse(self, lines: Lines) -> Iterator[Parsed]:
        """Parse the lines that `parsable` accepted; yields them in pieces."""
        first = 0
        while first < len(lines):
            limit = int(lines.start[first]) + BLOCK_BYTES
            last = max(first + 1, int(np.searchsorted(lines.end, limit, side="right")))
            last = min(last, first + BLOCK_LINES)
            for piece in self._parse_block(lines.part(first, last)):
                yield Parsed(first + piece.index, piece.table)
            first = last

    def _parse_block(self, lines: Lines) -> Iterator[Parsed]:
        scanned = scan(lines) if _is_utf8(lines.text(0, len(lines))) else None
        if scanned is None:
            yield from self._split(lines, 0, len(lines))
            return
        read, table = scanned
        yield Parsed(np.flatnonzero(read), table)
        rest, index = gather(lines, ~read)
        if len(rest):
            for piece in self._split(rest, 0, len(rest)):
                yield Parsed(index[piece.index], piece.table)

    def _split(self, lines: Lines, first: int, last: int) -> Iterator[Parsed]:
        table = self._parse(lines, first, last) if last - first > FEW_LINES else None
        if table is None and last - first > SMALLEST_SPLIT:
            step = -(-(last - first) // _SPLIT_WAYS)
            for start in range(first, last, step):
                yield from self._split(lines, start, min(start + step, last))
        else:
            yield Parsed(np.arange(first, last), table)

    def _parse(self, lines: Lines, first: int, last: int) -> pa.Table | None:
        block = lines.text(first, last)
        if not _is_utf8(block):
            return None
        if self._narrow:
            self._narrow = self._sample(lines, first, last)
        try:
            table = _read(block, self._seen) if self._narrow else None
            if table is None or not _is_complete(table, block):
                table = _read(block, set(PLAIN_SCHEMA.names))
                self._seen.update(n for n in table.column_names if table.column(n).null_count < len(table))
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None
        if len(table) != last - first:
            return None
        if "attributes" in table.column_names and table.column("attributes").null_count < len(table):
            return None
        return _widen(table)

    def _sample(self, lines: Lines, first: int, last: int) -> bool:
        """Learn the columns from some lines; False when they hold something that a narrow read cannot account for."""
        for index in np.unique(np.linspace(first, last - 1, _SAMPLED_LINES).astype(np.int64)).tolist():
            try:
                event = load_json(lines.raw(index))
            except RefusalError:
                continue
            if any(value is None or key not in _KNOWN for key, value in event.items()):
                return False
            self._seen.update(event)
        return True


_KNOWN: Final = frozenset(PLAIN_SCHEMA.names)


def _read(block: bytes, columns: set[str]) -> pa.Table:
    return pj.read_json(
        pa.BufferReader(block),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema([f for f in PLAIN_SCHEMA if f.name in columns]),
            unexpected_field_behavior="ignore",
        ),
    )


def _is_complete(table: pa.Table, block: bytes) -> bool:
    """Whether the columns read are all the block has, judging by its quotes.

    A key has two quotes, a string value two more; an escaped quote, a null or an unread field adds some. So the sum
    is correct only when nothing was left out.
    """
    quotes = 0
    for field, column in zip(table.schema, table.columns, strict=True):
        quotes += (len(column) - column.null_count) * (4 if field.type == pa.string() else 2)
    return quotes == int(np.count_nonzero(np.frombuffer(block, dtype=np.uint8) == ord('"')))


def _widen(table: pa.Table) -> pa.Table:
    present = set(table.column_names)

    def column(field: pa.Field) -> pa.Array:
        if field.name not in present:
            return no_values(len(table), field.type)
        values = table.column(field.name).combine_chunks()
        return pc.dictionary_encode(values) if field.type == NAME else values

    return pa.Table.from_arrays([column(field) for field in READ_SCHEMA], schema=READ_SCHEMA)


def _is_utf8(block: bytes) -> bool:
    if block.isascii():
        return True
    try:
        block.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
