"""A limit on the bytes of request bodies held in memory at once."""

from __future__ import annotations

import threading
from types import TracebackType


class OverBudgetError(Exception):
    """The limit is reached."""


class ByteBudget:
    """A number of bytes that requests acquire and release. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._lock = threading.Lock()

    def take(self, count: int) -> None:
        """Acquire bytes; raises OverBudgetError, without acquiring any, if the limit would be exceeded."""
        with self._lock:
            if self._held + count > self._limit:
                raise OverBudgetError
            self._held += count

    def give_back(self, count: int) -> None:
        """Release acquired bytes."""
        with self._lock:
            self._held -= count


class Share:
    """The bytes one request holds, released at the end of the block."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._held = 0

    def take(self, count: int) -> None:
        """Acquire more bytes; raises OverBudgetError."""
        self._budget.take(count)
        self._held += count

    def __enter__(self) -> Share:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._budget.give_back(self._held)
        self._held = 0
