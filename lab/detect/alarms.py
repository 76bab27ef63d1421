"""An alarm that a rule raised, and rows of yes and no as alarms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Alarm:
    """From when to when (epoch milliseconds; None: to the end), about which queue, and whom it names beside it."""

    from_ms: int
    to_ms: int | None
    queue: str
    what: str
    names: frozenset[str] = frozenset()
    """Message, group and consumer ids that it names."""
    pages: bool = True
    """Whether it wakes somebody."""


def spans(times: Sequence[int], firing: Iterable[bool]) -> list[tuple[int, int | None]]:
    """From the first time that fires to the first that does not, each."""
    found: list[tuple[int, int | None]] = []
    since: int | None = None
    for at, fires in zip(times, firing, strict=True):
        if fires and since is None:
            since = at
        elif not fires and since is not None:
            found.append((since, at))
            since = None
    if since is not None:
        found.append((since, None))
    return found


def alarms_of(queue: str, what: str, times: Sequence[int], firing: Iterable[bool]) -> list[Alarm]:
    """The alarms of one rule about a whole queue."""
    return [Alarm(begin, end, queue, what) for begin, end in spans(times, firing)]
