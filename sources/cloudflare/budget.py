"""The request budget of a token: spent evenly, and not at all while the API asks to wait."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

WINDOW_S: Final = 300.0
"""Cloudflare counts requests over five minutes."""
DEFAULT_PAUSE_S: Final = 60.0
"""The pause after a 429 without a duration."""
_FEW_LEFT: Final = 5
_RATELIMIT: Final = re.compile(r"r=(\d+)\s*;\s*t=(\d+)")


class Budget:
    """A token bucket of requests. Thread-safe; the clock is in seconds and monotonic."""

    def __init__(self, requests_per_window: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rate = requests_per_window / WINDOW_S
        # A short burst is allowed, so that a few queues are read together.
        self._most = max(1.0, min(requests_per_window / 10, 50.0))
        self._tokens = self._most
        self._filled_at = clock()
        self._paused_until = float("-inf")
        self._lock = threading.Lock()

    def wait_s(self) -> float:
        """Return the seconds until the next request may be made; 0 when it may be made now."""
        with self._lock:
            return self._wait_s()

    def take(self) -> bool:
        """Spend one request; False when `wait_s` is not yet over."""
        with self._lock:
            if self._wait_s() > 0:
                return False
            self._tokens -= 1
            return True

    def pause(self, seconds: float | None) -> None:
        """Make no request for this long (None: the API gave no duration)."""
        with self._lock:
            wait_s = DEFAULT_PAUSE_S if seconds is None else min(max(seconds, 1.0), WINDOW_S)
            self._paused_until = max(self._paused_until, self._clock() + wait_s)

    def learn(self, headers: Mapping[str, str]) -> None:
        """Apply the `Ratelimit` header: with few requests left in the API's own window, wait for the next one."""
        stated = _RATELIMIT.search(headers.get("ratelimit", ""))
        if stated and int(stated[1]) <= _FEW_LEFT:
            self.pause(float(stated[2]))

    def _wait_s(self) -> float:
        now = self._clock()
        self._tokens = min(self._most, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        refill_s = max(0.0, (1 - self._tokens) / self._rate)
        return max(refill_s, self._paused_until - now, 0.0)
