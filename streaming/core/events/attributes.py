"""Validate attributes of queues, consumers and batches. They come from outside and may hold anything.

An attribute that a rule or the tracking reads must have the type and range its name implies; an invalid value is ignored as if
it had not been reported, and the other attributes are kept. `null` withdraws a value reported before. Unknown names pass
unchanged.
"""

from __future__ import annotations

import json
from typing import Any

COUNTS = frozenset(
    {
        "visible",
        "in_flight",
        "delayed",
        "max_receive_count",
        "look_ahead",
        "max_in_flight",
        "max_retries",
        "max_batch_size",
        "max_concurrency",
        "backoff_cap_exceeded_at_attempt",
        "prefetch",
        "dispatched",
        "returned",
        "size",
        "acked",
        "retried",
    }
)
MOST = 10**12
"""The largest count accepted."""

LONGEST_S = 315_360_000
"""Ten years: no setting is longer. Attributes ending in `_s` are in seconds."""

EARLIEST_MS, LATEST_MS = 978_307_200_000, 4_102_444_800_000
"""2001 and 2100. Attributes ending in `_at` or `_since` are epoch milliseconds."""

FLAGS = frozenset({"paused", "has_consumer", "throws_on_error", "connected", "network", "connection_open"})
TEXTS = frozenset({"kind", "dead_letter_queue"})
LONGEST_TEXT = 512


def read_attributes(text: str | None) -> dict[str, Any]:
    """Parse the attributes of an event from their JSON text."""
    try:
        reported = json.loads(text) if text else {}
    except (ValueError, RecursionError):  # a number of thousands of digits, a depth no parser takes
        return {}
    if not isinstance(reported, dict):
        return {}
    kept = {name: value for name, value in reported.items() if fits(name, value)}
    return kept | {name: int(kept[name]) for name in COUNTS & kept.keys() if kept[name] is not None}


def fits(name: str, value: object) -> bool:
    """Whether the value is valid for an attribute of this name."""
    if value is None:
        return True
    if name in FLAGS:
        return isinstance(value, bool)
    if name in TEXTS:
        return isinstance(value, str) and len(value) <= LONGEST_TEXT
    if name in COUNTS:
        return isinstance(value, int | float) and _is_number(value, 0, MOST) and value == int(value)
    if name.endswith("_s"):
        return _is_number(value, 0, LONGEST_S)
    if name.endswith(("_at", "_since")):
        return isinstance(value, int) and _is_number(value, EARLIEST_MS, LATEST_MS)
    return True


def _is_number(value: object, least: int, most: int) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
