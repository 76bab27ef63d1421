"""How many requests a token still has: spent evenly, and not at all while the API asks to wait."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

WINDOW_S: Final = 300.0
"""Cloudflare counts requests over five minutes."""
DEFAULT_PAUSE_S: Final = 60.0
"""After a 429 that does not say how long."""
_FEW_LEFT: Final = 5
_RATELIMIT: Final = re.compile(r"r=(\d+)\s*;\s*t=(\d+)")


class Budget:
    """A token bucket of requests. Used by several threads; the clock is in seconds and only moves forward."""

    def __init__(self, requests_per_window: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rate = requests_per_window / WINDOW_S
        # A short burst is allowed, so that a few queues are looked at together.
        self._most = max(1.0, min(requests_per_window / 10, 50.0))
        self._tokens = self._most
        self._filled_at = clock()
        self._paused_until = float("-inf")
        self._lock = threading.Lock()

    def wait_s(self) -> float:
        """Seconds until the next request may be made; 0 when it may be made now."""
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
        """Make no request for so long (None: the API did not say)."""
        with self._lock:
            wait_s = DEFAULT_PAUSE_S if seconds is None else min(max(seconds, 1.0), WINDOW_S)
            self._paused_until = max(self._paused_until, self._clock() + wait_s)

    def learn(self, headers: Mapping[str, str]) -> None:
        """Heed the `Ratelimit` header: with few requests left in the API's own window, wait for the next one."""
        told = _RATELIMIT.search(headers.get("ratelimit", ""))
        if told and int(told[1]) <= _FEW_LEFT:
            self.pause(float(told[2]))

    def _wait_s(self) -> float:
        now = self._clock()
        self._tokens = min(self._most, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        refill_s = max(0.0, (1 - self._tokens) / self._rate)
        return max(refill_s, self._paused_until - now, 0.0)
