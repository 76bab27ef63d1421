"""The wall clock."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the wall time in epoch milliseconds."""
    return time.time_ns() // 1_000_000
