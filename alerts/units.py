"""Formatting of numbers for people and for Prometheus."""

from __future__ import annotations

from alerts.entry import Unit


def number(value: float) -> str:
    """Format a number without a needless decimal point or exponent: 3600, 0.01."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def duration(seconds: float) -> str:
    """Format a duration as Prometheus does, in the largest whole unit: 90 → `90s`, 3600 → `1h`; the smallest is `ms`."""
    milliseconds = round(seconds * 1000)
    if milliseconds == 0:
        return "0s"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def spoken_duration(seconds: float) -> str:
    """Format a duration for a sentence: `5 minutes`, `24 hours`, `1.5 seconds`."""
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        # One day is written as 24 hours, as is usual for retention; two days and more are written as days.
        if seconds % size == 0 and seconds >= size and not (unit == "day" and seconds < 2 * size):
            n = int(seconds // size)
            return f"{n} {unit}{'' if n == 1 else 's'}"
    return f"{number(seconds)} second{'' if seconds == 1 else 's'}"


def spoken(value: float, unit: Unit) -> str:
    """Format a limit with its unit: `10 minutes`, `1%`, `100,000 records`."""
    if unit == "seconds":
        return spoken_duration(value)
    if unit == "ratio":
        return f"{number(round(value * 100, 4))}%"
    figure = f"{value:,.0f}" if float(value).is_integer() else number(value)
    return f"{figure} records" if unit == "records" else figure


def shown(threshold: str, value: float) -> str:
    """Format a threshold with the unit from the end of its name: `_s` seconds, `_ratio` a share, else a count or factor."""
    unit: Unit = "seconds" if threshold.endswith("_s") else "ratio" if threshold.endswith("_ratio") else "count"
    return spoken(value, unit)
