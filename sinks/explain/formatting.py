"""Formatting of numbers for sentences."""

from __future__ import annotations

from datetime import UTC, datetime

from alerts.units import number

_LATEST_MS = 253_402_300_800_000
"""The year 10,000."""
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def duration(seconds: float) -> str:
    """Format a duration in its two largest units: `19 ms`, `0.4 s`, `12 min 38 s`, `3 d 4 h`; below ten seconds with a tenth."""
    if seconds < 0:
        return "−" + duration(-seconds)
    if 0 < seconds < 0.095:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 9.95:
        tenths = f"{seconds:.1f}".removesuffix(".0")
        return f"{tenths} s"
    left = round(seconds)
    parts: list[str] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def duration_ms(milliseconds: float) -> str:
    """Format a duration in milliseconds. A negative one, where two clocks disagree, counts as zero."""
    return duration(max(milliseconds, 0) / 1000)


def count(number: float, thing: str, things: str | None = None) -> str:
    """Format a count: `1 message`, `1,204 messages`. `things` is the plural where that does not end in a mere s."""
    return f"{number:,.0f} {thing if number == 1 else things or thing + 's'}"


def share(ratio: float) -> str:
    """Format a limit given as a share, with the decimals that it has: `50%`, `0.5%`."""
    return f"{number(round(ratio * 100, 4))}%"


def evidence_words(name: str, value: object) -> str:
    """Format a value of the evidence by its name: `…_at`, `…_since` and `…_until` are milliseconds since 1970, shown in UTC."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    # A time from outside may be beyond any calendar.
    if name.endswith(("_at", "_since", "_until")) and isinstance(value, int) and 0 <= value < _LATEST_MS:
        return f"{datetime.fromtimestamp(value / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return str(value)


def printable(text: str) -> str:
    """Return `text` with escape sequences, direction marks and newlines made visible."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)
