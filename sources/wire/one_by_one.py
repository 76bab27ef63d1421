"""Read lines one by one, and records that can only be parsed as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sources.wire.collected import Collected
from sources.wire.event_json import Row, array_elements, dump, load_json, read_event, rows_to_table
from sources.wire.invalid import RefusalError

_ROWS_AT_ONCE: Final = 10_000
"""The number of rows kept as Python objects before they are converted to columns."""


class OneByOneReader:
    """Reads events one at a time into rows for `Collected`."""

    def __init__(self, collected: Collected) -> None:
        self._collected = collected
        self._rows: list[Row] = []
        self._record: list[int] = []
        self._line: list[int] = []
        self._raws: list[bytes] = []

    def read_line(self, record: int, line: int, raw: bytes) -> None:
        try:
            self._read(record, line, load_json(raw), raw)
        except RefusalError as refusal:
            self._collected.refuse(refusal, record, line, raw)

    def read_record(self, record: int, raw: bytes, lines: Sequence[tuple[int, bytes]]) -> None:
        """Read a record as one JSON text or, if it is not one, as the lines it was split into."""
        try:
            value = load_json(raw)
        except RefusalError as refusal:
            if refusal.reason == "too_deep" and raw.startswith(b"[") and (elements := array_elements(raw)):
                # The limit is one of each event: as a line, an element may be as deep as without its array.
                lines = list(enumerate(elements, start=1))
            if any(_is_object(line) for _, line in lines):
                for number, line in lines:
                    self.read_line(record, number, line)
            else:
                self._collected.refuse(refusal, record, None, raw)
            return
        if not isinstance(value, list):
            value = [value]
        for number, item in enumerate(value, start=1):
            self._read(record, number, item, None)

    def _read(self, record: int, line: int, value: Any, raw: bytes | None) -> None:
        try:
            self._rows.append(read_event(value))
        except RefusalError as refusal:
            self._collected.refuse(refusal, record, line, raw if raw is not None else lambda: dump(value))
            return
        self._record.append(record)
        self._line.append(line)
        self._raws.append(raw if raw is not None else dump(value))
        if len(self._rows) >= _ROWS_AT_ONCE:
            self.finish()

    def finish(self) -> None:
        """Add what was read to the result."""
        if self._rows:
            self._collected.add(
                rows_to_table(self._rows),
                np.array(self._record, np.int64),
                np.array(self._line, np.int64),
                self._raws.__getitem__,
            )
            self._rows, self._record, self._line, self._raws = [], [], [], []


def _is_object(raw: bytes) -> bool:
    try:
        return isinstance(load_json(raw), dict)
    except RefusalError:
        return False
