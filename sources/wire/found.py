"""What decoding has found, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sources.wire.invalid import RAW_LIMIT, InvalidEvent, RefusalError
from sources.wire.lines import Int32s, Ints
from sources.wire.schema import WIRE_SCHEMA
from sources.wire.validate import validate


@dataclass(frozen=True)
class Decoded:
    """What some records held.

    `events`: valid events in `WIRE_SCHEMA`, one chunk a column, in no particular order. `record_index` and
    `line` (int32, one entry per row of `events`) say where each came from: the index of the value, and the
    1-based line, array element or Arrow row in it. `invalid`: one entry for each event, or whole value, that
    was refused.
    """

    events: pa.Table
    invalid: list[InvalidEvent]
    record_index: Int32s
    line: Int32s


class Found:
    """Collects validated parts of the result."""

    def __init__(self) -> None:
        self.invalid: list[InvalidEvent] = []
        self._tables: list[pa.Table] = []
        self._record: list[Ints] = []
        self._line: list[Ints] = []

    def add(self, table: pa.Table, record: Ints, line: Ints, raw: Callable[[int], bytes]) -> None:
        """Validate `table` (in `PLAIN_SCHEMA`) and keep its events; `raw(row)`: a refused one's bytes."""
        events, kept, flaws = validate(table)
        for row, reason, detail in flaws:
            self.invalid.append(InvalidEvent(reason, detail, int(record[row]), int(line[row]), raw(row)[:RAW_LIMIT]))
        self._tables.append(events)
        self._record.append(record if kept is None else record[kept])
        self._line.append(line if kept is None else line[kept])

    def refuse(self, refusal: RefusalError, record: int, line: int | None, raw: bytes) -> None:
        self.invalid.append(InvalidEvent(refusal.reason, refusal.detail, record, line, raw[:RAW_LIMIT]))

    def result(self) -> Decoded:
        if not self._tables:
            nothing = np.zeros(0, np.int32)
            return Decoded(WIRE_SCHEMA.empty_table(), self.invalid, nothing, nothing)
        events = self._tables[0]
        if len(self._tables) > 1:
            events = pa.concat_tables(self._tables).unify_dictionaries().combine_chunks()
        return Decoded(
            events,
            self.invalid,
            np.concatenate(self._record).astype(np.int32),
            np.concatenate(self._line).astype(np.int32),
        )
