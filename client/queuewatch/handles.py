"""Maps receipt handles to messages, because deletes and visibility changes carry only the handle."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from queuewatch.signal_handlers import raise_if_of_signal_handler

_LONGEST_WINDOW_S: Final = 12 * 3600.0
"""The longest visibility window of SQS; a handle expires with its window."""

Receipt = tuple[str, str | None]
"""The message id of a handle, and its ordering group if it has one."""


class HandleMap:
    """Maps handles to messages, bounded in number and age; safe for threads and signal handlers.

    The key is the handle alone: it is unique among all queues, and one queue has several URLs. A handle has several hundred
    characters, so only its hash is kept. There is no lock, because a signal handler could interrupt code that holds it. Each step
    on the table is atomic, and interference by another thread costs at most one early or late eviction.
    """

    def __init__(self, max_handles: int = 100_000, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._max_handles = max_handles
        self._clock_s = clock_s
        self._found: OrderedDict[int, tuple[str, str | None, float]] = OrderedDict()
        self._next_expiry_s = clock_s() + _LONGEST_WINDOW_S
        self.evicted = 0
        """Number of handles evicted because of `max_handles` although they could still be used."""

    def __len__(self) -> int:
        return len(self._found)

    def remember(self, handle: str, message_id: str, group: str | None) -> None:
        """Remember a handle of a message."""
        now_s = self._clock_s()
        found = self._found
        found[hash(handle)] = (message_id, group, now_s)
        if len(found) > self._max_handles or now_s > self._next_expiry_s:
            self._evict(now_s)

    def look_up(self, handle: str) -> Receipt | None:
        """Return the message of a handle, or None if it was received elsewhere or long ago."""
        found = self._found.get(hash(handle))
        return found[:2] if found else None

    def forget(self, handle: str) -> Receipt | None:
        """Remove a handle, because its message is deleted, and return the message."""
        found = self._found.pop(hash(handle), None)
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
        except (KeyError, RuntimeError, StopIteration) as error:
            raise_if_of_signal_handler(error)
            return  # another thread changed or emptied the table in between; the next receive evicts
