"""The numbers and words of a finding's sentence, and of its evidence."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: `1 message`, `2 messages`."""
    return f"{count} {noun if count == 1 else noun + 's'}"


def refused(times: int, window: str) -> str:
    """Say that deletions came too late: `was refused 2 times: the work takes longer than the visibility window of 30 s`."""
    return f"was refused {plural(times, 'time')}: the work takes longer than the {window}"


def leaving(per_hour: int) -> str:
    """Add to a sentence how many messages leave a queue unprocessed; nothing if none do."""
    return f"; about {per_hour:,} messages an hour are dead-lettered or lost" if per_hour else ""


def seconds(milliseconds: float) -> float:
    """Convert to seconds with at most one decimal, for evidence."""
    return round(milliseconds / 1000, 1)


def age_s(now: int, sent_at: int) -> float:
    """Return the age of a message in seconds, for evidence: 0 where its sender's clock is ahead."""
    return seconds(max(0, now - sent_at))


def duration_ms(milliseconds: float) -> str:
    """Format a duration for a sentence: `45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    s = int(max(0, milliseconds) // 1000)
    if s < 120:
        return f"{s} s"
    minutes, hours, days = s // 60, s // 3600, s // 86_400
    if minutes < 120:
        return f"{minutes} min"
    if hours < 48:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{days} d {hours % 24} h" if hours % 24 else f"{days} d"


def at_least(*, exact: bool) -> str:
    """Mark a number in a sentence as a lower bound; nothing if it is exact."""
    return "" if exact else "at least "


def work_time(milliseconds: float) -> str:
    """Format how long work takes, for a sentence: `13 ms`, `4.2 s`, and as `duration_ms` from two minutes on."""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / 1000:.3g} s" if milliseconds < 120_000 else duration_ms(milliseconds)


def per_second(rate: float) -> str:
    """Format a rate for a sentence: `0.0054`, `8.3`, `150`; no exponents."""
    return f"{rate:.2g}" if rate < 10 else f"{rate:.0f}"
