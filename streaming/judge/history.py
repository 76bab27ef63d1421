"""The judge's history of every queue: one table of samples on a shared time axis, a row per queue.

Samples are ten seconds apart for eleven minutes. Older ones thin out: the gap between two grows to a twentieth of their age, so
events ten hours ago are dated to within half an hour, and two weeks take some two hundred samples.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streaming.core.columns import Array
from streaming.core.settings import QueueName
from streaming.judge.window import COLUMN, FIELDS, Ints, Window

SAMPLE_EVERY_MS = 10_000
DENSE_MS = 660_000
AGE_TO_GAP = 20
"""Older than the dense range, a sample is dropped when its neighbours are closer together than their age divided by this."""
KEPT_MS = 14 * 86_400_000
_CODEC = pa.Codec("zstd", compression_level=1)


@dataclass(slots=True)
class _Sample:
    at: int
    rows: Array
    """The row of each queue known then, in the table of rows."""
    packed: bytes = b""
    """Stored as the difference from the previous sample."""


class _Rows:
    """The rows of all samples, a column per field. Of a queue to which nothing happened, several samples have the same row."""

    def __init__(self) -> None:
        self.table: Ints = np.zeros((0, len(FIELDS)), dtype=np.int64)
        self._used = 0
        self._most = 0
        """Rows that no sample has any more are dropped when there are more than this."""

    def __len__(self) -> int:
        return self._used

    def add(self, values: Ints, before: Array) -> Array:
        """Store the rows that differ from those of `before`, the sample before, and return the row of each queue."""
        rows = np.empty(len(values), dtype=np.int32)
        shared = min(len(before), len(values))
        differs = np.ones(len(values), dtype=bool)
        differs[:shared] = (values[:shared] != self.table.take(before[:shared], axis=0)).any(axis=1)
        rows[:shared] = before[:shared]
        new = values[differs]
        if self._used + len(new) > len(self.table):
            room = (self._used + len(new)) * 9 // 8
            table = np.zeros((room, len(FIELDS)), dtype=np.int64)
            table[: self._used] = self.table[: self._used]
            self.table = table
        self.table[self._used : self._used + len(new)] = new
        rows[differs] = np.arange(self._used, self._used + len(new))
        self._used += len(new)
        return rows

    def drop_unused(self, samples: Sequence[_Sample]) -> None:
        """Drop rows that none of the samples has, if there are many."""
        if self._used <= self._most:
            return
        used = np.zeros(self._used, dtype=bool)
        for sample in samples:
            used[sample.rows] = True
        moved = np.cumsum(used, dtype=np.int32) - np.int32(1)
        for sample in samples:
            sample.rows = moved[sample.rows]
        # A quarter more than are needed now: they come one by one.
        kept = int(moved[-1]) + 1
        self.table, self._used, self._most = self.table[: self._used][used], kept, kept + kept // 4


@dataclass(slots=True)
class _Dense:
    """The dense range of some queues."""

    at: Ints
    times: list[int]
    """The same as a list."""
    values: Ints
    """By queue, sample and field."""
    firsts: list[int]
    """Each queue's first sample in which it was known."""
    places: dict[QueueName, int]


class History:
    """The samples of all queues. Call `add` once per evaluation; rules read `window` and `recent`."""

    def __init__(self) -> None:
        self._place: dict[QueueName, int] = {}
        self._names: Sequence[QueueName] = ()
        self._places: Ints = np.zeros(0, dtype=np.int64)
        self._packed_names: bytes | None = None
        self._samples: list[_Sample] = []
        self._rows = _Rows()
        self._now: tuple[int, Array, Ints] | None = None
        """The present, while it is not one of the samples: its time, each queue's row, and a table of its own."""
        self._dense: _Dense | None = None

    def __len__(self) -> int:
        return len(self._samples)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment] # it changes with every evaluation

    @property
    def rows(self) -> int:
        """Return how many rows are stored for all samples together."""
        return len(self._rows)

    @property
    def last_at(self) -> int:
        """Return when the latest sample was kept, 0 before the first."""
        return self._samples[-1].at if self._samples else 0

    def add(self, at: int, names: Sequence[QueueName], values: Ints) -> None:
        """Add the present of all queues: `values` has a row for each of `names`. Queues not named are forgotten."""
        if names != self._names:
            self._forget(names)
            for name in names:
                self._place.setdefault(name, len(self._place))
            self._names, self._packed_names = names, None
            self._places = np.array([self._place[name] for name in names], dtype=np.int64)
        table = np.zeros((len(self._place), len(FIELDS)), dtype=np.int64)
        table[self._places] = values
        self._dense = None
        self._now = at, np.arange(len(table), dtype=np.int32), table
        if not self._samples or at - self._samples[-1].at >= SAMPLE_EVERY_MS:
            self._keep(at, table)
            self._now = None
        self._thin(at)

    def forget_after(self, now: int) -> None:
        """Drop samples later than `now` (epoch milliseconds): they were taken while the clock was wrong."""
        while self._samples and self._samples[-1].at > now:
            self._samples.pop()
        self._now, self._dense = None, None

    def gather(self, names: Sequence[QueueName]) -> None:
        """Load the dense range of these queues for `recent`."""
        places = [self._place[name] for name in names if name in self._place]
        at, values = self._stack(np.array(places, dtype=np.int64))
        # Store queue by queue in memory: thousands may be read one after the other.
        values = np.ascontiguousarray(values.swapaxes(0, 1))
        present = values[:, :, COLUMN["present"]] > 0
        firsts = (
            np.where(present.any(axis=1), present.argmax(axis=1), len(at)) if len(at) else np.zeros(len(values), dtype=np.int64)
        )
        index = {name: i for i, name in enumerate(name for name in names if name in self._place)}
        self._dense = _Dense(at=at, times=at.tolist(), values=values, firsts=firsts.tolist(), places=index)

    def stretch(self, since: int, queues: Ints) -> tuple[Ints, Callable[[str, Sequence[int]], Ints]]:
        """Return the times of the samples at `since` or later, including the present, and a function that reads a field of them.

        `queues`: indices of the names last added. The function takes a field and indices of samples, and returns a row per sample
        with a value per queue: zero where a queue was not known yet.
        """
        tables = [(at, rows, table) for at, rows, table in self._all() if at >= since]
        places = self._places[queues]
        highest = int(places.max(initial=-1))

        def values(field: str, chosen: Sequence[int]) -> Ints:
            found = np.zeros((len(chosen), len(places)), dtype=np.int64)
            column = COLUMN[field]
            for i, (_, rows, table) in enumerate(tables[at] for at in chosen) if len(places) else ():
                if highest < len(rows):
                    found[i] = table[rows[places], column]
                else:
                    known = places < len(rows)
                    found[i, known] = table[rows[places[known]], column]
            return found

        return np.array([at for at, _, _ in tables], dtype=np.int64), values

    def recent(self, name: QueueName) -> Window:
        """Return the dense range of one queue, including the present."""
        if self._dense is None or name not in self._dense.places:
            self.gather([name])
        assert self._dense is not None
        dense = self._dense
        place = dense.places.get(name)
        if place is None:
            return Window(dense.at[:0], np.zeros((0, len(FIELDS)), dtype=np.int64))
        first = dense.firsts[place]
        return Window(dense.at[first:], dense.values[place, first:], dense.times[first:])

    def window(self, name: QueueName) -> Window:
        """Return all samples of one queue, including the present."""
        place = self._place.get(name)
        known = [] if place is None else [(at, table[rows[place]]) for at, rows, table in self._all() if place < len(rows)]
        found = [(at, values) for at, values in known if values[COLUMN["present"]]]
        if not found:
            return Window(np.zeros(0, dtype=np.int64), np.zeros((0, len(FIELDS)), dtype=np.int64))
        return Window(np.array([at for at, _ in found], dtype=np.int64), np.array([values for _, values in found]))

    def to_bytes(self) -> bytes:
        """Serialize the kept samples; the present is not one of them."""
        if self._packed_names is None:
            self._packed_names = json.dumps([list(name) for name in self._place], separators=(",", ":")).encode()
        head = {"fields": FIELDS, "samples": [[s.at, len(s.rows), len(s.packed)] for s in self._samples]}
        text = json.dumps(head, separators=(",", ":")).encode()[:-1] + b',"queues":' + self._packed_names + b"}"
        return b"".join((struct.pack("<I", len(text)), text, *(s.packed for s in self._samples)))

    @classmethod
    def from_bytes(cls, blob: bytes) -> History:
        """Read the bytes of `to_bytes`. Raises ValueError when damaged. Fields of another release are left out, or zero."""
        try:
            (length,) = struct.unpack_from("<I", blob)
            head: dict[str, Any] = json.loads(blob[4 : 4 + length])
            known = [(i, COLUMN[name]) for i, name in enumerate(head["fields"]) if name in COLUMN]
            history, start = cls(), 4 + length
            history._place = {QueueName(*name): i for i, name in enumerate(head["queues"])}
            before = np.zeros((0, len(head["fields"])), dtype=np.int64)
            for at, rows, size in head["samples"]:
                before = _undo(blob[start : start + size], before, rows, len(head["fields"]))
                values = np.zeros((rows, len(FIELDS)), dtype=np.int64)
                values[:, [here for _, here in known]] = before[:, [there for there, _ in known]]
                history._keep(at, values)
                start += size
        except (struct.error, ValueError, KeyError, IndexError, OSError) as error:
            raise ValueError(f"the judge's history is damaged: {error}") from error
        return history

    def _all(self) -> list[tuple[int, Array, Ints]]:
        """Return each sample's time, each queue's row then, and the table of rows."""
        found: list[tuple[int, Array, Ints]] = [(sample.at, sample.rows, self._rows.table) for sample in self._samples]
        return found if self._now is None else [*found, self._now]

    def _values(self, sample: _Sample) -> Ints:
        return self._rows.table.take(sample.rows, axis=0)

    def _keep(self, at: int, values: Ints) -> None:
        before = self._samples[-1].rows if self._samples else np.zeros(0, dtype=np.int32)
        packed = _difference(self._rows.table.take(before, axis=0), values)
        self._samples.append(_Sample(at, self._rows.add(values, before), packed))
        self._rows.drop_unused(self._samples)

    def _stack(self, places: Ints) -> tuple[Ints, Ints]:
        samples = self._all()
        since = samples[-1][0] - DENSE_MS if samples else 0
        dense = [sample for sample in samples if sample[0] >= since]
        # One sample older than the range gives a baseline where a queue is judged rarely.
        older = [sample for sample in samples if sample[0] < since][-1:]
        return self._stacked(older + dense, places)

    @staticmethod
    def _stacked(samples: Sequence[tuple[int, Array, Ints]], places: Ints) -> tuple[Ints, Ints]:
        values = np.zeros((len(samples), len(places), len(FIELDS)), dtype=np.int64)
        highest = places.max(initial=-1)
        for i, (_, rows, table) in enumerate(samples if len(places) else ()):
            if highest < len(rows):
                # Without this mode, numpy copies once more.
                table.take(rows[places], axis=0, out=values[i], mode="clip")
            else:
                known = places < len(rows)
                values[i, known] = table[rows[places[known]]]
        return np.array([at for at, _, _ in samples], dtype=np.int64), values

    def _forget(self, names: Sequence[QueueName]) -> None:
        gone = self._place.keys() - set(names)
        if not gone:
            return
        kept = np.array([place for name, place in self._place.items() if name not in gone], dtype=np.int64)
        self._place = {name: i for i, name in enumerate(name for name in self._place if name not in gone)}
        before = np.zeros((0, len(FIELDS)), dtype=np.int64)
        for sample in self._samples:
            sample.rows = sample.rows[kept[kept < len(sample.rows)]]
            values = self._values(sample)
            sample.packed, before = _difference(before, values), values

    def _thin(self, now: int) -> None:
        samples = self._samples
        i = 1
        while i < len(samples) - 1 and samples[i].at < now - DENSE_MS:
            before, after = samples[i - 1], samples[i + 1]
            if after.at - before.at <= (now - after.at) // AGE_TO_GAP:
                after.packed = _difference(self._values(before), self._values(after))
                del samples[i]
            else:
                i += 1
        while len(samples) > 2 and samples[0].at < now - KEPT_MS:
            samples[1].packed = _difference(self._rows.table[:0], self._values(samples[1]))
            del samples[0]


def _difference(before: Ints, values: Ints) -> bytes:
    step = values.copy()
    shared = min(len(before), len(values))
    step[:shared] -= before[:shared]
    packed: bytes = _CODEC.compress(np.ascontiguousarray(step.T).tobytes(), asbytes=True) if step.size else b""
    return packed


def _undo(packed: bytes, before: Ints, rows: int, width: int) -> Ints:
    if not packed:
        return np.zeros((rows, width), dtype=np.int64)
    body = _CODEC.decompress(packed, rows * width * 8, asbytes=True)
    values: Ints = np.frombuffer(body, dtype=np.int64).reshape(width, rows).T.copy()
    shared = min(len(before), rows)
    values[:shared] += before[:shared]
    return values
