"""Remembers which message a receipt handle stands for: deletes and visibility changes carry only the handle."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_LONGEST_WINDOW_S: Final = 12 * 3600.0
"""No visibility window of SQS is longer, and a handle dies with its window."""

Receipt = tuple[str, str | None]
"""The id of the message behind a handle, and its ordering group if it has one."""


class HandleMap:
    """Handle → message, bounded in number and in age; for many threads, and for signal handlers.

    A handle is some hundred characters: only its hash is kept. Without a lock, which a signal handler could find held
    by the code that it interrupts: each step on the table is whole by itself, and what another thread does in between
    costs at most one early or late eviction.
    """

    def __init__(self, max_handles: int = 100_000, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._max_handles = max_handles
        self._clock_s = clock_s
        self._found: OrderedDict[int, tuple[str, str | None, float]] = OrderedDict()
        self._next_expiry_s = clock_s() + _LONGEST_WINDOW_S
        self.evicted = 0
        """Handles forgotten for want of room while they may still be used."""

    def __len__(self) -> int:
        return len(self._found)

    def remember(self, queue: str, handle: str, message_id: str, group: str | None) -> None:
        """Keep a handle of a queue (its URL)."""
        now_s = self._clock_s()
        found = self._found
        found[hash((queue, handle))] = (message_id, group, now_s)
        if len(found) > self._max_handles or now_s > self._next_expiry_s:
            self._evict(now_s)

    def look_up(self, queue: str, handle: str) -> Receipt | None:
        """The message of a handle, None for a handle that was received elsewhere or long ago."""
        found = self._found.get(hash((queue, handle)))
        return found[:2] if found else None

    def forget(self, queue: str, handle: str) -> Receipt | None:
        """The same for a deleted message, which needs its handle no more."""
        found = self._found.pop(hash((queue, handle)), None)
        return found[:2] if found else None

    def _evict(self, now_s: float) -> None:
        try:
            while True:
                _, _, received_s = self._found[next(iter(self._found))]
                self._next_expiry_s = received_s + _LONGEST_WINDOW_S
                expired = now_s > self._next_expiry_s
                if not expired and len(self._found) <= self._max_handles:
                    return
                self._found.popitem(last=False)
                self.evicted += not expired
        except (KeyError, RuntimeError, StopIteration):
            return  # another thread changed or emptied it between two steps: the next receive evicts
