"""Pass frames from the thread that reads the socket to the thread that processes them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Incoming:
    """One frame, or the end of the connection, with the time it was read (epoch milliseconds)."""

    kind: Literal["message", "error", "disconnected"]
    at_ms: int
    subscription: str
    headers: Mapping[str, str]
    body: str | bytes


class Inbox:
    """A bounded queue between threads.

    When it is full the reader waits, and the broker keeps what cannot be processed yet.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: list[Incoming] = []
        self._changed = threading.Condition()
        self._closed = False

    def put(self, *incoming: Incoming) -> None:
        """Add some frames; waits while the inbox is full. After `close` frames are discarded."""
        with self._changed:
            while len(self._waiting) >= self._limit and not self._closed:
                self._changed.wait()
            if self._closed:
                return
            if not self._waiting:
                self._changed.notify_all()
            self._waiting += incoming

    def take(self, within_s: float) -> list[Incoming]:
        """Return all waiting frames, oldest first; waits up to `within_s` seconds for one."""
        with self._changed:
            if not self._waiting and not self._closed:
                self._changed.wait(within_s)
            taken, self._waiting = self._waiting, []
            self._changed.notify_all()
            return taken

    def close(self) -> None:
        """Discard waiting frames, and wake all waiting threads."""
        with self._changed:
            self._closed = True
            self._waiting = []
            self._changed.notify_all()
