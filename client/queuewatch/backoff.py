"""Pauses between the attempts of something that keeps failing."""

from __future__ import annotations

import random


class Backoff:
    """Pauses that double up to a limit. Chance shortens each by up to a half: what failed together must not retry together."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = self._next_s = first_s
        self._longest_s = longest_s

    def pause_s(self) -> float:
        """Return how long to wait before the next attempt."""
        pause_s = self._next_s * random.uniform(0.5, 1.0)
        self._next_s = min(2 * self._next_s, self._longest_s)
        return pause_s

    def reset(self) -> None:
        """Begin again with the first pause."""
        self._next_s = self._first_s
