"""Events older than the newest one by more than the lateness: they change known messages, and never create one.

A live run compares an event with the newest one of the steps before. A replay knows the arrival time of each event, and marks
those that are late itself: a step of it may contain the newest event and one that came too late after it.
"""

from __future__ import annotations

from streaming.core.columns import Array
from streaming.core.events.flags import LATE

MARKED_LATE = "marked_late"
"""The column that is true for an event known to be late. A table without it has no such event."""


def is_late(at: Array, flags: Array, oldest_timely_at: int) -> Array:
    """Return which events with these times and flags are late."""
    result: Array = (at < oldest_timely_at) | ((flags & LATE) != 0)
    return result
