"""The wall clock, injected wherever time matters so that tests can move it."""

from __future__ import annotations

import time


def wall_ms() -> int:
    """Return the current time in epoch milliseconds."""
    return time.time_ns() // 1_000_000
