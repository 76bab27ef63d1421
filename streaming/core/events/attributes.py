"""Validate attributes of queues, consumers and batches. They come from outside and may hold anything.

An attribute that a rule or the tracking reads must have the type and range its name implies; a number may
be text of digits, as in the responses of SQS. An invalid value is ignored as if it had not been reported, and the other
attributes are kept. `null` withdraws a value reported before. Unknown names pass unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeGuard

COUNT_ATTRIBUTES = frozenset(
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

FLAG_ATTRIBUTES = frozenset({"paused", "has_consumer", "throws_on_error", "connected", "network", "connection_open"})
TEXT_ATTRIBUTES = frozenset({"kind", "dead_letter_queue"})
LONGEST_TEXT = 512


def read_attributes(text: str | None) -> dict[str, Any]:
    """Parse the attributes of an event from their JSON text."""
    try:
        reported = json.loads(text) if text else {}
    except (ValueError, RecursionError):  # a number of thousands of digits, a depth no parser takes
        return {}
    if not isinstance(reported, dict):
        return {}
    kept = _valid(reported, _check_of)
    if isinstance(kept.get("redrive_task"), dict):
        kept["redrive_task"] = _valid(kept["redrive_task"], _check_of_redrive_task)
    return kept


def _valid(reported: dict[str, Any], check_of: Callable[[str], Callable[[object], bool] | None]) -> dict[str, Any]:
    """Return the values without the invalid ones. `check_of`: what a value of a name must satisfy; None for anything."""
    kept: dict[str, Any] = {}
    for name, value in reported.items():
        check = check_of(name)
        if check in _NUMBERS and isinstance(value, str) and _DIGITS.fullmatch(value):
            value = int(value)
        if value is None or check is None:
            kept[name] = value
        elif check(value):
            kept[name] = int(value) if check is _is_count else value
    return kept


@lru_cache(maxsize=1024)
def _check_of(name: str) -> Callable[[object], bool] | None:
    """Return what a value of this name must satisfy; None for anything."""
    if name in FLAG_ATTRIBUTES:
        return _is_flag
    if name in TEXT_ATTRIBUTES:
        return _is_text
    if name in COUNT_ATTRIBUTES:
        return _is_count
    if name == "failed":
        return _is_flag_or_count
    if name == "retention_s":
        return _is_retention
    if name.endswith("_s"):
        return _is_duration
    return _is_time if name.endswith(("_at", "_since")) else None


def _check_of_redrive_task(field: str) -> Callable[[object], bool] | None:
    return _OF_REDRIVE_TASK.get(field) or _check_of(field)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TEXT


def _is_count(value: object) -> TypeGuard[float]:
    return _is_number(value, 0, MOST) and value == int(value)


def _is_flag_or_count(value: object) -> bool:
    """Of a batch: whether it failed as a whole, or how many of its messages did."""
    return _is_flag(value) or _is_count(value)


def _is_duration(value: object) -> bool:
    return _is_number(value, 0, LONGEST_S)


def _is_retention(value: object) -> bool:
    """No broker keeps messages for no time: 0 stands for a retention that is not known, or not limited."""
    return _is_duration(value) and value != 0


def _is_time(value: object) -> bool:
    return isinstance(value, int) and _is_number(value, EARLIEST_MS, LATEST_MS)


def _is_number(value: object, least: int, most: int) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


_NUMBERS = frozenset({_is_count, _is_flag_or_count, _is_duration, _is_retention, _is_time})
_DIGITS = re.compile(r"[0-9]{1,15}")
_OF_REDRIVE_TASK: Mapping[str, Callable[[object], bool]] = {
    "moved": _is_count,
    "to_move": _is_count,
    **dict.fromkeys(("status", "failure_reason", "to_queue", "task_id"), _is_text),
}
"""Fields of the attribute `redrive_task`. The others are checked like attributes: `progressed_at` is a time."""
