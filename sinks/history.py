"""The recent history of every queue, for sparklines: bounded in time, points and memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streaming.core.columns import Array
from streaming.core.settings import QueueName
from streaming.judge.snapshot import QueueView
from streaming.judge.views.view import backlogs

_BACKLOG, _AGE = 0, 1
_EMPTY, _UNKNOWN = -2.0, -1.0
"""Instead of an age. The highest of a step wins: a known age over an unknown one, and that over the 0 of an empty queue."""


@dataclass(frozen=True, slots=True)
class Trend:
    """Equally spaced points, oldest first; `None` where no value is known."""

    step_s: float
    end_ms: int
    """Epoch milliseconds of the last point's step."""
    backlog: tuple[float | None, ...]
    """The maximum number of visible messages in each step."""
    oldest_age_s: tuple[float | None, ...]
    """The maximum age of the oldest unsettled message in each step; 0 where the queue was empty throughout."""


class History:
    """The last `points` steps of `step_s` seconds for each queue of the latest snapshot.

    8 bytes a point and queue: 10,000 queues and 90 points are 7 MB. A queue that vanishes loses its past. It is not thread-safe;
    the store that owns it uses a lock.
    """

    def __init__(self, step_s: float = 10.0, points: int = 90) -> None:
        self._step_ms = int(step_s * 1000)
        self._points = points
        self._rows: dict[QueueName, int] = {}
        self._names: list[QueueName] = []
        """The queues recorded last…"""
        self._rows_of_names = np.zeros(0, np.intp)
        """…and their rows."""
        self._free: list[int] = []
        self._values = np.full((0, points, 2), np.nan, np.float32)
        self._step: int | None = None
        """Number of the current step since the epoch; its point is the last column."""

    def record(self, at_ms: int, queues: Sequence[QueueView], aggregated_queues: Sequence[QueueView] = ()) -> None:
        """Record the state of all these at `at_ms` (epoch ms). A time before the current step is ignored.

        A time before all of the history starts a new one: the service's clock was ahead when the history was recorded.
        """
        step = at_ms // self._step_ms
        if self._step is not None and step < self._step:
            if step > self._step - self._points:
                return
            self._values[:] = np.nan
            self._step = None
        self._advance(0 if self._step is None else step - self._step)
        self._step = step
        single, aggregated = backlogs(queues), backlogs(aggregated_queues)
        rows = self._rows_of([*single.names, *aggregated.names])
        seen = _points(np.concatenate([single.values, aggregated.values]), at_ms)
        self._values[rows, -1] = np.fmax(self._values[rows, -1], seen)

    def of(self, queue: QueueName) -> Trend | None:
        """Return the recent history of one queue, or None if it is not in the latest snapshot."""
        row = self._rows.get(queue)
        if row is None or self._step is None:
            return None
        points = self._values[row]
        return Trend(
            self._step_ms / 1000,
            self._step * self._step_ms,
            tuple(_known(v) for v in points[:, _BACKLOG].tolist()),
            tuple(_known_age(v) for v in points[:, _AGE].tolist()),
        )

    def _advance(self, steps: int) -> None:
        if steps <= 0:
            return
        shift = min(steps, self._points)
        self._values[:, : self._points - shift] = self._values[:, shift:]
        self._values[:, self._points - shift :] = np.nan

    def _rows_of(self, names: list[QueueName]) -> np.ndarray[Any, np.dtype[np.intp]]:
        if names == self._names:
            return self._rows_of_names
        present = set(names)
        for gone in [known for known in self._rows if known not in present]:
            row = self._rows.pop(gone)
            self._values[row] = np.nan
            self._free.append(row)
        new = [name for name in names if name not in self._rows]
        if len(new) > len(self._free):
            self._grow(len(new) - len(self._free))
        for name in new:
            self._rows.setdefault(name, self._free.pop())
        self._names, self._rows_of_names = names, np.array([self._rows[name] for name in names], np.intp)
        return self._rows_of_names

    def _grow(self, at_least: int) -> None:
        old = len(self._values)
        more = max(at_least, old // 2, 16)
        self._values = np.concatenate(
            [self._values, np.full((more, self._points, 2), np.nan, np.float32)],
        )
        self._free.extend(range(old + more - 1, old - 1, -1))


def _points(backlogs: Array, at_ms: int) -> Array:
    """Return the points of some queues: visible messages, and the age of the oldest message or what is known instead."""
    visible, since_ms = backlogs.T
    age_s = np.maximum(0, at_ms - since_ms) / 1000
    age_s[np.isinf(since_ms)], age_s[np.isnan(since_ms)] = _EMPTY, _UNKNOWN
    return np.stack([visible, age_s], axis=1)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)


def _known_age(value: float) -> float | None:
    return 0.0 if value == _EMPTY else None if value == _UNKNOWN else _known(value)
