"""One run to which every rule is applied: the truth of a simulated queue, and what queuewatch published about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from lab.detect.alarms import Alarm
from lab.recording import Recording
from lab.simulation import T0_MS


@dataclass
class Run:
    """A recording, the signals queuewatch raised, and the 99th percentile of the depth in quiet minutes."""

    scenario: str
    kind: str
    recording: Recording
    signals: list[dict[str, Any]] = field(default_factory=list)
    quiet_depth: float | None = None
    _ages: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)

    @property
    def main(self) -> str:
        """The queue that the scenario is about."""
        return next(iter(q for q in self.recording.settings if not self.is_dead_letter_queue(q)))

    def is_dead_letter_queue(self, queue: str) -> bool:
        """Whether some queue names it as its dead-letter queue."""
        return any(s.get("dead_letter_queue") == queue for s in self.recording.settings.values())

    def every(self, seconds: float) -> list[int]:
        """Return epoch milliseconds at this interval, from start to end."""
        return list(range(T0_MS, self.recording.ends_at + 1, round(seconds * 1000)))

    def visible(self, queue: str, times: Sequence[int]) -> list[int]:
        """Return the broker's exact count of visible messages."""
        history = self.recording.history.of(queue)
        return [history.counts(at).visible for at in times]

    def oldest_age_s(self, queue: str, times: Sequence[int]) -> list[float]:
        """Return the true age of the oldest unsettled message, 0 without one."""
        return self._once("true", queue, times, _true_ages_s)

    def cloudwatch_age_s(self, queue: str, times: Sequence[int]) -> list[float]:
        """Return the value of ApproximateAgeOfOldestMessage: 0 without a message."""
        return self._once("cloudwatch", queue, times, cloudwatch_ages_s)

    def _once(self, which: str, queue: str, times: Sequence[int], ages: Ages) -> list[float]:
        key = (which, queue, len(times))
        if key not in self._ages:
            self._ages[key] = ages(self, queue, times)
        return self._ages[key]


Ages = Callable[[Run, str, Sequence[int]], list[float]]


def _true_ages_s(run: Run, queue: str, times: Sequence[int]) -> list[float]:
    history = run.recording.history.of(queue)
    return [0.0 if (sent := history.oldest_sent_at(at)) is None else (at - sent) / 1000 for at in times]


RESTARTS_AFTER = 3
"""The age of a standard queue's message restarts at the end of its 3rd, 6th, 9th… unsuccessful receive."""


def cloudwatch_ages_s(run: Run, queue: str, times: Sequence[int]) -> list[float]:
    """Return ages with CloudWatch's restarts: none on a FIFO queue; in a dead-letter queue, since the move."""
    history = run.recording.history.of(queue)
    from_arrival = run.is_dead_letter_queue(queue)
    restarts: dict[str, list[int]] = {}
    if not queue.endswith(".fifo"):
        failures: dict[str, int] = {}
        for delivery in sorted(history.deliveries, key=lambda d: d.ended_at):
            if delivery.outcome in ("timed_out", "released"):
                count = failures[delivery.message_id] = failures.get(delivery.message_id, 0) + 1
                if count % RESTARTS_AFTER == 0:
                    restarts.setdefault(delivery.message_id, []).append(delivery.ended_at)
    left = {departure.message_id: departure.at for departure in history.departures}
    rows: list[tuple[int, int, int]] = []
    for message_id, arrived_at, sent_at in history.arrivals:
        until = left.get(message_id, 1 << 62)
        clock, since = arrived_at if from_arrival else sent_at, arrived_at
        for at in restarts.get(message_id, []):
            if at < until:
                rows.append((clock, since, at))
                clock = since = at
        rows.append((clock, since, until))
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    ages = []
    for at in times:
        here = (table[:, 1] <= at) & (at < table[:, 2])
        ages.append((at - int(table[here, 0].min())) / 1000 if here.any() else 0.0)
    return ages


class Rule(Protocol):
    """A published rule: its name, its source, and what it would have detected."""

    @property
    def name(self) -> str:
        """Its name in tables."""
        ...

    @property
    def source(self) -> str:
        """Where it is published."""
        ...

    def applies(self, run: Run) -> bool:
        """Whether it is available for this system at all."""
        ...

    def alarms(self, run: Run) -> list[Alarm]:
        """Return what it would have detected, with exact and immediate input."""
        ...
