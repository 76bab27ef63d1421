"""Read lines of JSON by their likeness: the fastest path.

A sender writes the same keys in the same order with the same spaces, thousands of times. So one line of a kind is
taken apart carefully and kept as a `Template`; every other line with as many quotes is compared with it, byte by
byte where it must be the same, and its values are cut out where they may differ, for all lines at once. The type,
the system and the like differ so seldom that they belong to the template. What is not exactly alike is left to the
block parser: nothing is guessed here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sources.wire.cutting import PAD, Buffer, can_cut, texts_of, whole_numbers
from sources.wire.found import Int32s
from sources.wire.lines import Ints, Lines, Mask
from sources.wire.schema import CONSTANTS, NAME, PLAIN_SCHEMA, READ_SCHEMA

FEWEST_LINES: Final = 2_000
"""Below this the block parser is as fast."""

_LONGEST_SAME: Final = PAD - 16
"""Bytes between two values that may differ: longer keys are none of ours, nor are longer scopes."""
_MOST_TEMPLATES: Final = 64
_MOST_SCOPES: Final = 4
"""With more of them (accounts, brokers), a template for each would be too many."""
_LESSONS_PER_BLOCK: Final = 8
_LEFT_OVER: Final = 0.002
"""So few lines that are unlike the others are not worth a template."""
_GIVE_UP_AFTER: Final = 3
"""Blocks in a row of which less than half was alike."""

_FIELD: Final = re.compile(
    rb'[,{][ \t]*"(?P<key>[^"\\]+)"[ \t]*:[ \t]*(?:"(?P<text>[^"\\]*)"|(?P<number>[0-9]+)|(?P<truth>true|false))'
)
_NUMBER: Final = re.compile(rb"0|[1-9][0-9]{0,15}")
_END: Final = re.compile(rb"[ \t]*\}")
_TRUE, _FALSE = (int.from_bytes(word, "little") for word in (b"true", b"fals"))


@dataclass(frozen=True)
class _Field:
    """A key and where its value lies. `same` is what stands between the value before and this one.

    `same` begins `before` bytes ahead of the line's quote number `quote`; a text value ends at quote number
    `closing`, any other where the next `same` begins.
    """

    name: str
    kind: str
    same: bytes
    quote: int
    before: int
    closing: int


@dataclass(frozen=True)
class Template:
    """One kind of line: how many quotes it has, its fields in order, and what stands after the last value.

    `constants` are the values that stand in what is the same.
    """

    quotes: int
    fields: tuple[_Field, ...]
    tail: bytes
    constants: Mapping[str, str | int]


def template_of(line: bytes, constant: Collection[str] = CONSTANTS) -> Template | None:
    """Take a line of UTF-8 apart; None when it is more than a flat object of texts, whole numbers and truths of right types.

    The values of the keys in `constant` belong to the template.
    """
    fields: list[_Field] = []
    constants: dict[str, str | int] = {}
    kinds: dict[str, str] = {}
    at, value_end, quotes = 0, 0, 0
    while found := _FIELD.match(line, at):
        kind = str(found.lastgroup)
        name = found["key"].decode("utf-8")
        if name in kinds or _KINDS.get(name, kind) != kind:
            return None
        kinds[name] = kind
        start, at = found.span(kind)[0], found.end()
        if name in constant:
            if kind == "number" and not _NUMBER.fullmatch(found[kind]):
                return None
            constants[name] = int(found[kind]) if kind == "number" else found[kind].decode("utf-8")
            continue
        same = line[value_end:start]
        fields.append(_Field(name, kind, same, quotes, same.index(b'"'), quotes + same.count(b'"')))
        quotes += same.count(b'"')
        value_end = found.end(kind)
    end_found = _END.match(line, at)
    if not fields or end_found is None or end_found.end() != len(line):
        return None
    tail = line[value_end:]
    if max(len(tail), *(len(field.same) for field in fields)) > _LONGEST_SAME:
        return None
    return Template(quotes + tail.count(b'"'), tuple(fields), tail, constants)


class ShapeReader:
    """Reads blocks of lines and remembers the templates of the stream."""

    def __init__(self) -> None:
        self._templates: list[Template] = []
        self._constant: Collection[str] = CONSTANTS
        self._failures = 0 if can_cut() else _GIVE_UP_AFTER

    def read(self, lines: Lines) -> tuple[Mask, pa.Table] | None:
        """The lines that are alike and their events in `READ_SCHEMA`, or None when it is not worth it.

        `lines` are neighbours in UTF-8, and `parsable`.
        """
        if len(lines) < FEWEST_LINES or self._failures >= _GIVE_UP_AFTER:
            return None
        constant = self._constant
        found = self._match(lines)
        if self._constant is not constant:
            found = self._match(lines)
        if np.count_nonzero(found.matched) < len(lines) / 2:
            self._failures += 1
            return None
        self._failures = 0
        return found.table()

    def _match(self, lines: Lines) -> _Block:
        found = _Block(lines)
        for template in self._templates:
            found.match(template)
        self._learn(found)
        return found

    def _learn(self, found: _Block) -> None:
        """Make templates of lines unlike any so far, while there are many of them."""
        for _ in range(_LESSONS_PER_BLOCK):
            index = found.first_left_over() if len(self._templates) < _MOST_TEMPLATES else None
            if index is None:
                break
            template = template_of(found.lines.raw(index), self._constant)
            if template is not None:
                self._templates.append(template)
                found.match(template)
            found.give_up(index)
        scopes = {template.constants.get("scope") for template in self._templates}
        if "scope" in self._constant and len(scopes) > _MOST_SCOPES:
            self._constant = [name for name in self._constant if name != "scope"]
            self._templates.clear()


class _Block:
    """The quotes of some lines, and where the values of the lines matched so far lie."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.buffer = Buffer(lines.buffer, int(lines.start[0]), int(lines.end[-1]))
        self._start = lines.start - lines.start[0] + self.buffer.first
        self._end = lines.end - lines.start[0] + self.buffer.first
        data = self.buffer.data
        self._quotes = np.flatnonzero(data == ord('"'))
        self._first_quote = np.searchsorted(self._quotes, self._start)
        counts = np.diff(np.append(self._first_quote, len(self._quotes)))
        # A quote behind a backslash is none; a control character makes a text invalid.
        strange = self.buffer.strange(len(lines) - 1)
        if len(strange):
            counts[np.searchsorted(self._end, strange, side="right").clip(max=len(lines) - 1)] = -1
        self._counts = counts
        self.matched: Mask = np.zeros(len(lines), np.bool_)
        self._from: dict[tuple[str, str], Ints] = {}
        self._to: dict[tuple[str, str], Ints] = {}
        self._constants: dict[str, _Constants] = {}

    def first_left_over(self) -> int | None:
        """A line worth a template of its own, None when few are left."""
        left = np.flatnonzero(~self.matched & (self._counts > 0))
        return int(left[0]) if len(left) > _LEFT_OVER * len(self.lines) else None

    def give_up(self, index: int) -> None:
        """Leave a line to the block parser."""
        if not self.matched[index]:
            self._counts[index] = -1

    def match(self, template: Template) -> None:
        """Find the lines that are like `template`, and where their values lie."""
        rows = np.flatnonzero((self._counts == template.quotes) & ~self.matched)
        if not len(rows):
            return
        base = self._first_quote[rows]
        fields = template.fields
        begins: list[Ints] = []
        # From the end: kinds of lines that begin alike differ there.
        for field in reversed(fields):
            begin = self._quotes[base + field.quote] - field.before
            alike = self.buffer.equal(begin, field.same)
            if not alike.all():
                rows, base, begin = rows[alike], base[alike], begin[alike]
                begins = [earlier[alike] for earlier in begins]
            begins.append(begin)
        begins.reverse()
        tail_at = self._end[rows] - len(template.tail)
        whole = (begins[0] == self._start[rows]) & self.buffer.equal(tail_at, template.tail)
        if not whole.all():
            rows, base, tail_at = rows[whole], base[whole], tail_at[whole]
            begins = [begin[whole] for begin in begins]
        for field, begin, following in zip(fields, begins, [*begins[1:], tail_at], strict=True):
            key = (field.name, field.kind)
            self._column(self._from, key)[rows] = begin + len(field.same)
            ends = self._quotes[base + field.closing] if field.kind == "text" else following
            self._column(self._to, key)[rows] = ends
        for name, value in template.constants.items():
            if name not in self._constants:
                self._constants[name] = _Constants(np.full(len(self.lines), -1, np.int32))
            self._constants[name].put(rows, value)
        self.matched[rows] = True

    def table(self) -> tuple[Mask, pa.Table]:
        """The matched lines whose numbers and truths are such, and their events."""
        numbers: dict[str, Ints] = {}
        for (name, kind), starts in self._from.items():
            if kind != "text":
                values, good = self._values(kind, starts, self._to[name, kind])
                numbers[name] = values
                if name == "receive_count":
                    good &= values < 1 << 31
                self.matched &= good
        rows = np.flatnonzero(self.matched)
        everything = len(rows) == len(self.lines)
        columns = []
        for field in READ_SCHEMA:
            kind = _KINDS[field.name]
            starts = self._from.get((field.name, kind), _NOTHING)
            if field.name in self._constants:
                columns.append(self._constants[field.name].column(rows, field.type))
            elif not len(starts):
                columns.append(
                    pa.array([None] * len(rows), field.type) if field.type == NAME else pa.nulls(len(rows), field.type)
                )
            else:
                ends = self._to[field.name, kind]
                if not everything:
                    starts, ends = starts[rows], ends[rows]
                if kind == "text":
                    texts = texts_of(self.buffer, starts, ends)
                    columns.append(pc.dictionary_encode(texts) if field.type == NAME else texts)
                else:
                    values = numbers[field.name] if everything else numbers[field.name][rows]
                    absent = starts == 0
                    columns.append(pa.array(values, field.type, mask=absent if absent.any() else None))
        return self.matched, pa.Table.from_arrays(columns, schema=READ_SCHEMA)

    def _values(self, kind: str, starts: Ints, ends: Ints) -> tuple[Any, Mask]:
        """Values, and whether each is one or absent (where `starts` is 0)."""
        if kind == "number":
            values, good = whole_numbers(self.buffer, starts, ends)
        else:
            word = self.buffer.words[starts] & np.uint64(0xFFFFFFFF)
            values = word == _TRUE
            ending = (ends - starts == 5) & (self.buffer.data[np.maximum(ends - 1, 0)] == ord("e"))
            good = (values & (ends - starts == 4)) | ((word == _FALSE) & ending)
        return values, good | (starts == 0)

    def _column(self, table: dict[tuple[str, str], Ints], key: tuple[str, str]) -> Ints:
        if key not in table:
            table[key] = np.zeros(len(self.lines), np.int64)
        return table[key]


class _Constants:
    """The values of a key that stand in templates: `codes` has the index of each line's, -1 where there is none."""

    def __init__(self, codes: Int32s) -> None:
        self._codes = codes
        self._values: dict[str | int, int] = {}

    def put(self, rows: Ints, value: str | int) -> None:
        """Say what the lines `rows` have."""
        self._codes[rows] = self._values.setdefault(value, len(self._values))

    def column(self, rows: Ints, kind: pa.DataType) -> pa.Array:
        """The values of the lines `rows`."""
        codes = self._codes[rows]
        absent = codes < 0
        indices = pa.array(codes, mask=absent if absent.any() else None)
        if kind == NAME:
            return pa.DictionaryArray.from_arrays(indices, pa.array(list(self._values), pa.string()))
        return pa.array(list(self._values), kind).take(indices)


_NOTHING: Final = np.zeros(0, np.int64)


def _kind_of(field: pa.Field) -> str:
    if field.name == "attributes":
        return "object"  # never matched
    return {pa.string(): "text", pa.bool_(): "truth"}.get(field.type, "number")


_KINDS: Final[Mapping[str, str]] = {field.name: _kind_of(field) for field in PLAIN_SCHEMA}
