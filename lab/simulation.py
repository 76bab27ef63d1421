"""A discrete-event loop: actions in the order of their times, and one random generator per name."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

T0_MS = 1_700_000_000_000
"""When every simulation begins, epoch milliseconds."""

Action = Callable[[], object]


class Simulation:
    """Simulated time and what is still to happen. The same seed gives the same run."""

    def __init__(self, seed: int, duration_s: float) -> None:
        self.seed = seed
        self.now = T0_MS
        self.ends_at = T0_MS + round(duration_s * 1000)
        self._due: list[tuple[int, int, Action]] = []
        self._scheduled = 0

    def random(self, name: str) -> Random:
        """A generator of its own for each name: one more actor does not change what the others draw."""
        return Random(f"{self.seed}/{name}")

    def at(self, when_ms: int, action: Action) -> None:
        """Do `action` at an epoch millisecond. What is due after the end never happens; the past is now."""
        if when_ms <= self.ends_at:
            self._scheduled += 1
            heapq.heappush(self._due, (max(when_ms, self.now), self._scheduled, action))

    def at_s(self, seconds: float, action: Action) -> None:
        """Do `action` so many seconds after the beginning."""
        self.at(ms(seconds), action)

    def after_s(self, seconds: float, action: Action) -> None:
        """Do `action` so many seconds from now."""
        self.at(self.now + round(seconds * 1000), action)

    def run(self, until_s: float | None = None) -> None:
        """Run to the end, or up to and with an instant in seconds after the beginning.

        Actions of the same millisecond run in the order in which they were scheduled.
        """
        until = self.ends_at if until_s is None else ms(until_s)
        while self._due and self._due[0][0] <= until:
            self.now, _, action = heapq.heappop(self._due)
            action()
        self.now = until


def ms(seconds: float) -> int:
    """Epoch milliseconds of an instant given in seconds after the beginning."""
    return T0_MS + round(seconds * 1000)
