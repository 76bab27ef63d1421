"""Runs actions while a handler is still running: when it takes long, and shortly before its deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

Due = tuple[float, Callable[[], None]]
"""A time (monotonic seconds) and an action, which must not raise."""

_IDLE_S: Final = 3600.0


class Watchdog:
    """One thread for all invocations; arming it costs a lock, and rarely a wake-up."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[Due] = []
        self._wakes_s = float("-inf")
        self._thread: threading.Thread | None = None

    def arm(self, due: Sequence[Due]) -> list[Due]:
        """Schedule the actions; returns a handle for `disarm`. Raises `RuntimeError` if no thread can be started."""
        added = list(due)
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="queuewatch-watchdog", daemon=True)
                self._thread.start()  # first, because it may raise
            elif min(at_s for at_s, _ in added) < self._wakes_s:
                self._changed.notify()
            self._due.extend(added)
        return added

    def disarm(self, due: Sequence[Due]) -> None:
        """Cancel the actions; wait for one that is running."""
        with self._changed:
            self._due = [entry for entry in self._due if entry not in due]

    def _run(self) -> None:
        with self._changed:
            while True:
                now_s = time.monotonic()
                ready = [entry for entry in self._due if entry[0] <= now_s]
                self._due = [entry for entry in self._due if entry[0] > now_s]
                for _, action in ready:
                    action()
                # `disarm` does not notify: a needless wake-up later costs less than waking the thread at each invocation.
                self._wakes_s = min((at_s for at_s, _ in self._due), default=now_s + _IDLE_S)
                self._changed.wait(max(0.0, self._wakes_s - time.monotonic()))
