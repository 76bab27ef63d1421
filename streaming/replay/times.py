"""Parsing of durations and times from the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from sources.events import EARLIEST_MS, LATEST_MS

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_FIRST_MS = 10**11
"""Epoch milliseconds have been larger than this since 1973; smaller numbers are seconds."""


def parse_duration_ms(text: str) -> int:
    """Parse `90s`, `1h30m`, `250ms` or plain seconds to milliseconds. The ValueError says what is expected."""
    cleaned = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", cleaned):
        milliseconds = float(cleaned) * 1000
    elif cleaned and _PART.sub("", cleaned) == "":
        milliseconds = sum(float(n) * _UNITS_MS[unit] for n, unit in _PART.findall(cleaned))
    else:
        raise ValueError(f"{text!r} is not a duration: write 60s, 5m, 1h30m or 250ms")
    if milliseconds < 1:
        raise ValueError(f"{text!r} is too short: give a duration of at least 1ms")
    if milliseconds > LATEST_MS - EARLIEST_MS:
        raise ValueError(f"{text!r} is too long: events span 99 years at most")
    return int(round(milliseconds, 3))  # 1.001 s is 1000.9999999999999 ms


def parse_time_ms(text: str) -> int:
    """Parse epoch milliseconds or seconds, or ISO 8601 (UTC if it has no zone). The ValueError says what is expected."""
    cleaned = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", cleaned):
        number = float(cleaned)
        milliseconds = number if number >= _FIRST_MS else number * 1000
    else:
        try:
            when = datetime.fromisoformat(cleaned)
        except ValueError as error:
            raise ValueError(f"{text!r} is not a time: write 2026-11-21T10:00:00Z or epoch milliseconds") from error
        milliseconds = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000
    if not EARLIEST_MS <= milliseconds <= LATEST_MS:
        raise ValueError(f"{text!r} is not a time that an event can have: give one from 2001 to 2099")
    return int(milliseconds)
