"""A measured value beside its limit, and how near that is to a signal."""

from __future__ import annotations

from typing import Literal, NamedTuple

from streaming.judge.findings.signals import SignalName

Unit = Literal["milliseconds", "count", "ratio"]


class Measured(NamedTuple):
    """A value and the limit at which its rule fires."""

    value: float
    limit: float
    unit: Unit
    falling: bool = False
    """The rule fires below the limit instead of above it."""
    at_limit: bool = True
    """A rule that fires above its limit also fires at it."""
    healthy: float = 0
    """The value of a healthy queue."""

    @property
    def reached(self) -> bool:
        """Whether the value is where the rule fires."""
        if self.falling:
            return self.value < self.limit
        return self.value >= self.limit if self.at_limit else self.value > self.limit

    @property
    def nearness(self) -> float:
        """The share of the way from the healthy value to the limit, from 0 to 1."""
        way = self.limit - self.healthy
        return min(max((self.value - self.healthy) / way, 0.0), 1.0) if way else 1.0


class Near(NamedTuple):
    """How near a queue is to a signal, yielded by a rule that alone can measure it, where anything of the kind happened."""

    signal: SignalName
    measured: Measured


def farthest_from_limit(*conditions: Measured) -> Measured:
    """Return, for a rule whose conditions must all hold, the condition that is farthest from its limit."""
    return min(conditions, key=lambda measured: measured.nearness)
