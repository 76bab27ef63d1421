"""How many bytes of bodies are held at once, over all requests."""

from __future__ import annotations

import threading
from types import TracebackType


class OverBudgetError(Exception):
    """As much as may be held is held already."""


class ByteBudget:
    """A number of bytes that requests take from and give back. Safe between threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """Bytes held now."""
        return self._held

    def take(self, count: int) -> None:
        """Raises OverBudgetError, and takes nothing, when that would be more than the limit."""
        with self._lock:
            if self._held + count > self._limit:
                raise OverBudgetError
            self._held += count

    def give_back(self, count: int) -> None:
        """Bytes that were taken."""
        with self._lock:
            self._held -= count


class Share:
    """What one request holds; given back at the end of the block."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._held = 0

    def take(self, count: int) -> None:
        """Raises OverBudgetError."""
        self._budget.take(count)
        self._held += count

    def __enter__(self) -> Share:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._budget.give_back(self._held)
        self._held = 0
