"""A discrete-event loop: actions in order of time, and one random generator per name."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

T0_MS = 1_700_000_000_000
"""When every simulation starts, in epoch milliseconds."""

Action = Callable[[], object]


class Simulation:
    """Simulated time and pending actions. The same seed gives the same run."""

    def __init__(self, seed: int, duration_s: float) -> None:
        self.seed = seed
        self.now = T0_MS
        self.ends_at = T0_MS + round(duration_s * 1000)
        self._due: list[tuple[int, int, Action]] = []
        self._scheduled = 0

    def random(self, name: str) -> Random:
        """Return a separate generator for each name: an additional actor does not change what the others draw."""
        return Random(f"{self.seed}/{name}")

    def at(self, when_ms: int, action: Action) -> None:
        """Schedule `action` at an epoch millisecond. Actions after the end never run; those in the past run now."""
        if when_ms <= self.ends_at:
            self._scheduled += 1
            heapq.heappush(self._due, (max(when_ms, self.now), self._scheduled, action))

    def at_s(self, seconds: float, action: Action) -> None:
        """Schedule `action` this many seconds after the start."""
        self.at(ms(seconds), action)

    def after_s(self, seconds: float, action: Action) -> None:
        """Schedule `action` this many seconds from now."""
        self.at(self.now + round(seconds * 1000), action)

    def run(self, until_s: float | None = None) -> None:
        """Run to the end, or up to and including an instant in seconds after the start.

        Actions of the same millisecond run in the order in which they were scheduled.
        """
        until = self.ends_at if until_s is None else ms(until_s)
        while self._due and self._due[0][0] <= until:
            self.now, _, action = heapq.heappop(self._due)
            action()
        self.now = until


def ms(seconds: float) -> int:
    """Return the epoch milliseconds of an instant given in seconds after the start."""
    return T0_MS + round(seconds * 1000)
