"""Collect the events and refusals found while decoding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sources.wire.invalid import RAW_LIMIT, InvalidEvent, Reason, RefusalError
from sources.wire.lines import Int32s, Ints
from sources.wire.schema import WIRE_SCHEMA
from sources.wire.validate import validate


@dataclass(frozen=True)
class Decoded:
    """The events and refusals of some records.

    `events`: valid events in `WIRE_SCHEMA`, one chunk a column, in no particular order. `record_index` and
    `line` (int32, one entry per row of `events`) give each event's origin: the index of the value, and the
    1-based line, array element or Arrow row in it. `refused` counts every refused event or whole value
    by reason; `invalid` describes the first of them.
    """

    events: pa.Table
    invalid: list[InvalidEvent]
    refused: Counter[Reason]
    record_index: Int32s
    line: Int32s


class Collected:
    """Collects validated parts of the result."""

    def __init__(self, most_kept: int) -> None:
        self.invalid: list[InvalidEvent] = []
        self.refused: Counter[Reason] = Counter()
        self._most_kept = most_kept
        self._tables: list[pa.Table] = []
        self._record: list[Ints] = []
        self._line: list[Ints] = []

    def add(self, table: pa.Table, record: Ints, line: Ints, raw: Callable[[int], bytes]) -> None:
        """Validate `table` (in `PLAIN_SCHEMA`) and keep its events; `raw(row)` returns a refused event's bytes."""
        checked = validate(table, self._most_kept - len(self.invalid))
        for row, reason, detail in checked.flaws:
            self.invalid.append(
                InvalidEvent(reason=reason, detail=detail, record=int(record[row]), line=int(line[row]), raw=raw(row)[:RAW_LIMIT])
            )
        self.refused.update(checked.refused)
        self._tables.append(checked.events)
        self._record.append(record if checked.kept is None else record[checked.kept])
        self._line.append(line if checked.kept is None else line[checked.kept])

    def refuse(self, refusal: RefusalError, record: int, line: int | None, raw: bytes | Callable[[], bytes]) -> None:
        """Count one refused event, and keep it while there is room. `raw` is its bytes, or a function that returns them."""
        self.refused[refusal.reason] += 1
        if len(self.invalid) < self._most_kept:
            content = raw if isinstance(raw, bytes) else raw()
            self.invalid.append(
                InvalidEvent(reason=refusal.reason, detail=refusal.detail, record=record, line=line, raw=content[:RAW_LIMIT])
            )

    def result(self) -> Decoded:
        if not self._tables:
            nothing = np.zeros(0, np.int32)
            return Decoded(
                events=WIRE_SCHEMA.empty_table(), invalid=self.invalid, refused=self.refused, record_index=nothing, line=nothing
            )
        events = self._tables[0]
        if len(self._tables) > 1:
            events = pa.concat_tables(self._tables).unify_dictionaries().combine_chunks()
        return Decoded(
            events=events,
            invalid=self.invalid,
            refused=self.refused,
            record_index=np.concatenate(self._record).astype(np.int32),
            line=np.concatenate(self._line).astype(np.int32),
        )
