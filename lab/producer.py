"""Producers: Poisson sends at a rate that may vary over time, and bursts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from lab.report import Report, event
from lab.simulation import T0_MS, Simulation
from lab.sqs import Message, SqsQueue

Rate = Callable[[float], float]
"""Messages per second as a function of the seconds since the start."""

Mark = Callable[[Random], dict[str, Any]]
"""Properties of the next message: arguments of SqsQueue.send."""


def steady(per_s: float) -> Rate:
    """Return a constant rate."""
    return lambda _: per_s


def stepwise(*steps: tuple[float, float]) -> Rate:
    """Return a rate from (start second, messages per second) pairs, ascending; zero before the first."""

    def rate(at_s: float) -> float:
        current = 0.0
        for from_s, per_s in steps:
            if at_s < from_s:
                break
            current = per_s
        return current

    return rate


@dataclass
class Producer:
    """Sends to one queue. `peak_per_s` is the highest value `rate` takes."""

    sim: Simulation
    name: str
    queue: SqsQueue
    reports: list[Report]
    rate: Rate
    peak_per_s: float
    groups: Sequence[str] = ()
    mark: Mark | None = None
    sent: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = self.sim.random(f"producer {self.name}")
        if self.peak_per_s:
            self._next()

    def send(self, **particulars: Any) -> Message:
        """Send one message now."""
        if self.groups and "group" not in particulars:
            particulars["group"] = self._random.choice(self.groups)
        message = self.queue.send(**particulars)
        fields: dict[str, Any] = {"message_id": message.id, "group": message.group}
        if message.sequence:
            fields["sequence"] = str(message.sequence)
        reported = event("sent", self.sim.now, self.queue.name, **fields)
        self.reports.append(Report("producer", self.name, message.id, reported))
        self.sent.append(message)
        return message

    def burst(self, at_s: float, count: int, over_s: float = 5.0) -> None:
        """Send `count` additional messages, spread evenly over `over_s` seconds."""
        for n in range(count):
            self.sim.at_s(at_s + over_s * n / count, self._send_marked)

    def _next(self) -> None:
        """Schedule the next send by thinning: candidates at the peak rate, each kept with probability rate / peak."""
        self.sim.after_s(self._random.expovariate(self.peak_per_s), self._candidate)

    def _candidate(self) -> None:
        if self._random.random() * self.peak_per_s < self.rate((self.sim.now - T0_MS) / 1000):
            self._send_marked()
        self._next()

    def _send_marked(self) -> None:
        self.send(**(self.mark(self._random) if self.mark else {}))
