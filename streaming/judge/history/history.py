"""The judge's history of every queue: one table of samples on a shared time axis, a row per queue.

Samples are ten seconds apart for eleven minutes. Older ones thin out: the gap between two grows to a twentieth of their age, so
events ten hours ago are dated to within half an hour, and two weeks take some two hundred samples.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from streaming.core.columns import CODEC
from streaming.core.settings import QueueName
from streaming.judge.history.sample_rows import Sample, SampleRows, field_of, read_rows
from streaming.judge.history.window import COLUMN, FIELDS, Ints, Window

SAMPLE_EVERY_MS = 10_000
DENSE_MS = 660_000
AGE_TO_GAP = 20
"""Older than the dense range, a sample is dropped when its neighbours are closer together than their age divided by this."""
SAMPLES_KEPT_MS = 14 * 86_400_000
MOST_UNUSED = 1 / 8
"""Of the places in a sample, so many may be those of forgotten queues: to remove them, every sample is compressed again."""


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
    peaks: list[int]
    """Each queue's largest backlog."""
    places: dict[QueueName, int]


class History:
    """The samples of all queues. Call `add` once per evaluation; rules read `window` and `recent`."""

    def __init__(self) -> None:
        self._place: dict[QueueName, int] = {}
        """The place of each known queue in every sample, ascending."""
        self._width = 0
        """How many places there are, with those of queues that were forgotten."""
        self._names: Sequence[QueueName] = ()
        self._places: Ints = np.zeros(0, dtype=np.int64)
        self._in_order = False
        """Whether these are the places of a sample in order, so that the present needs no other."""
        self._packed_names: bytes | None = None
        self._samples: list[Sample] = []
        self._rows = SampleRows()
        self._now: tuple[int, Ints] | None = None
        """The present, while it is not one of the samples: its time, and a row of FIELDS for each queue."""
        self._delay_ms = 0
        """How much later than they happened the latest events have been read."""
        self._dense: _Dense | None = None

    def __len__(self) -> int:
        return len(self._samples)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment] # it changes with every evaluation

    @property
    def first_at(self) -> int:
        """Return when the oldest sample was kept, 0 before the first."""
        return self._samples[0].at if self._samples else 0

    @property
    def last_at(self) -> int:
        """Return when the latest sample was kept, 0 before the first."""
        return self._samples[-1].at if self._samples else 0

    def add(self, at: int, names: Sequence[QueueName], values: Ints, *, delay_ms: int = 0) -> None:
        """Add the present of all queues: `values` has a row for each of `names`. Queues not named are forgotten.

        `delay_ms`: how much later than they happened the latest events have been read.
        """
        if names is not self._names and names != self._names:
            self._forget(names)
            for name in names:
                # One that comes back gets another place: its earlier one has the samples of before.
                if self._place.setdefault(name, self._width) == self._width:
                    self._width += 1
            self._names, self._packed_names = names, None
            self._places = np.array([self._place[name] for name in names], dtype=np.int64)
            self._in_order = np.array_equal(self._places, np.arange(self._width))
        if self._in_order:
            table = values
        else:
            table = np.zeros((len(FIELDS), self._width), dtype=np.int64).T
            table[self._places] = values
        self._dense, self._delay_ms = None, delay_ms
        if not self._samples or at - self._samples[-1].at >= SAMPLE_EVERY_MS:
            self._keep(at, table, delay_ms)
            self._now = None
        else:
            self._now = at, table
        self._thin(at)

    def forget_after(self, now: int) -> None:
        """Drop samples later than `now` (epoch milliseconds): they were taken while the clock was wrong."""
        while self._samples and self._samples[-1].at > now:
            self._samples.pop()
        self._now, self._dense = None, None

    def gather(self, names: Sequence[QueueName]) -> None:
        """Load the dense range of these queues for `recent`."""
        places = np.array([self._place[name] for name in names if name in self._place], dtype=np.int64)
        # One sample older than the range gives a baseline where a queue is judged rarely.
        at, values = self._stacked(self._samples[max(0, self._first_at(self._latest_at - DENSE_MS) - 1) :], places)
        present = values[:, :, COLUMN["present"]] > 0
        firsts = (
            np.where(present.any(axis=1), present.argmax(axis=1), len(at)) if len(at) else np.zeros(len(values), dtype=np.int64)
        )
        peaks = values[:, :, COLUMN["unsettled"]].max(axis=1, initial=0)
        index = {name: i for i, name in enumerate(name for name in names if name in self._place)}
        self._dense = _Dense(at=at, times=at.tolist(), values=values, firsts=firsts.tolist(), peaks=peaks.tolist(), places=index)

    def stretch(self, since: int, queues: Ints) -> tuple[Ints, Callable[[str, Sequence[int]], Ints]]:
        """Return the times of the samples at `since` or later, including the present, and a function that reads a field of them.

        `queues`: indices of the names last added. The function takes a field and indices of samples, and returns a row per sample
        with a value per queue: zero where a queue was not known yet.
        """
        samples = self._samples[self._first_at(since) :]
        times = [sample.at for sample in samples] + ([] if self._now is None else [self._now[0]])
        places = self._places[queues]
        highest = int(places.max(initial=-1))

        def values(field: str, chosen: Sequence[int]) -> Ints:
            found = np.zeros((len(chosen), len(places)), dtype=np.int64)
            stored = field_of(self._rows.table, field)
            for i, at in enumerate(chosen) if len(places) else ():
                if at == len(samples):
                    assert self._now is not None
                    found[i] = self._now[1][places, COLUMN[field]]
                    continue
                rows = samples[at].rows
                if highest < len(rows):
                    found[i] = stored[rows[places]]
                else:
                    known = places < len(rows)
                    found[i, known] = stored[rows[places[known]]]
            return found

        return np.array(times, dtype=np.int64), values

    def read_until(self, at: Ints) -> Ints:
        """Return until when events had been read at each of these times of samples (epoch milliseconds)."""
        delays = {sample.at: sample.delay_ms for sample in self._samples[self._first_at(int(at[0])) :]} if len(at) else {}
        if self._now is not None:
            delays[self._now[0]] = self._delay_ms
        return at - np.array([delays.get(time, 0) for time in at.tolist()], dtype=np.int64)

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
        return Window(dense.at[first:], dense.values[place, first:], dense.times[first:], dense.peaks[place])

    def window(self, name: QueueName) -> Window:
        """Return all samples of one queue, including the present."""
        place = self._place.get(name)
        if place is None:
            return Window(np.zeros(0, dtype=np.int64), np.zeros((0, len(FIELDS)), dtype=np.int64))
        samples = [sample for sample in self._samples if place < len(sample.rows)]
        times, values = [sample.at for sample in samples], read_rows(self._rows.table[[s.rows.item(place) for s in samples]])
        if self._now is not None:
            times.append(self._now[0])
            values = np.concatenate((values, self._now[1][None, place]))
        present = values[:, COLUMN["present"]] > 0
        return Window(np.array(times, dtype=np.int64)[present], values[present])

    def to_bytes(self) -> bytes:
        """Serialize the kept samples; the present is not one of them."""
        if self._packed_names is None:
            used = {place: name for name, place in self._place.items()}
            # No queue has the name of an unused place, so the first `add` after a restart forgets it.
            stored = [used.get(place) or ("", "", str(place)) for place in range(self._width)]
            self._packed_names = json.dumps(stored, separators=(",", ":")).encode()
        head = {"fields": FIELDS, "samples": [[s.at, len(s.rows), len(s.packed), s.delay_ms] for s in self._samples]}
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
            history._width = len(head["queues"])
            before = np.zeros((0, len(head["fields"])), dtype=np.int64)
            for at, rows, size, *delay_ms in head["samples"]:
                before = _undo(blob[start : start + size], before, rows, len(head["fields"]))
                values = np.zeros((rows, len(FIELDS)), dtype=np.int64)
                values[:, [here for _, here in known]] = before[:, [there for there, _ in known]]
                # Earlier releases did not store the delay.
                history._keep(at, values, *delay_ms)
                start += size
        except (struct.error, ValueError, KeyError, IndexError, OSError) as error:
            raise ValueError(f"the judge's history is damaged: {error}") from error
        return history

    @property
    def _latest_at(self) -> int:
        return self.last_at if self._now is None else self._now[0]

    def _first_at(self, at: int) -> int:
        """Return the index of the first sample at `at` or later."""
        return bisect_left(self._samples, at, key=attrgetter("at"))

    def _values(self, sample: Sample) -> Ints:
        return read_rows(self._rows.table[sample.rows])

    def _keep(self, at: int, values: Ints, delay_ms: int = 0) -> None:
        before = self._samples[-1] if self._samples else Sample(0, np.zeros(0, dtype=np.int32))
        values_before = self._values(before)
        rows = self._rows.add(values, before.rows, values_before)
        self._samples.append(Sample(at, rows, delay_ms, _difference(values_before, values)))
        self._rows.drop_unused(self._samples)

    def _stacked(self, samples: Sequence[Sample], places: Ints) -> tuple[Ints, Ints]:
        """Return the times of some samples and the present, and the values by queue, sample and field.

        Those of a queue are together in memory: thousands of queues may be read one after the other.
        """
        rows = np.full((len(samples), len(places)), -1, dtype=np.int32)
        highest = places.max(initial=-1)
        for of_sample, sample in zip(rows, samples, strict=True):
            if highest < len(sample.rows):
                sample.rows.take(places, out=of_sample, mode="clip")
            else:
                known = places < len(sample.rows)
                of_sample[known] = sample.rows[places[known]]
        table, unknown = self._rows.table, rows < 0
        # Without this mode, numpy copies once more.
        stored = table.take(rows, mode="clip") if len(table) else np.zeros(rows.shape, dtype=table.dtype)
        if unknown.any():
            stored[unknown] = 0
        times, values = [sample.at for sample in samples], read_rows(stored.swapaxes(0, 1))
        if self._now is not None:
            times.append(self._now[0])
            values = np.concatenate((values, self._now[1][places, None]), axis=1)
        return np.array(times, dtype=np.int64), values

    def _forget(self, names: Sequence[QueueName]) -> None:
        """Forget all other queues. Their places stay, empty from now on, until many are unused."""
        for name in self._place.keys() - set(names):
            del self._place[name]
        if self._width - len(self._place) <= self._width * MOST_UNUSED:
            return
        kept = np.array(list(self._place.values()), dtype=np.int64)
        self._place, self._width = {name: i for i, name in enumerate(self._place)}, len(self._place)
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
        while len(samples) > 2 and samples[0].at < now - SAMPLES_KEPT_MS:
            samples[1].packed = _difference(np.zeros((0, len(FIELDS)), dtype=np.int64), self._values(samples[1]))
            del samples[0]


def _difference(before: Ints, values: Ints) -> bytes:
    step = values.copy()
    shared = min(len(before), len(values))
    step[:shared] -= before[:shared]
    packed: bytes = CODEC.compress(np.ascontiguousarray(step.T).tobytes(), asbytes=True) if step.size else b""
    return packed


def _undo(packed: bytes, before: Ints, rows: int, width: int) -> Ints:
    if not packed:
        return np.zeros((rows, width), dtype=np.int64)
    body = CODEC.decompress(packed, rows * width * 8, asbytes=True)
    values: Ints = np.frombuffer(body, dtype=np.int64).reshape(width, rows).T.copy()
    shared = min(len(before), rows)
    values[:shared] += before[:shared]
    return values
