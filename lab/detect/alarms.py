"""Alarms raised by a rule, and conversion of boolean series to alarms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Alarm:
    """An alarm's start and end (epoch milliseconds; None: to the end), its queue, and what else it names."""

    from_ms: int
    to_ms: int | None
    queue: str
    what: str
    names: frozenset[str] = frozenset()
    """Message, group and consumer ids that it names."""
    pages: bool = True
    """Whether it pages."""
    says_what: bool = False
    """Whether `what` says which fault it is, as a signal of queuewatch does; a threshold says only that something is wrong."""
    consumer: str | None = None
    """The consumer that it blames."""


def spans(times: Sequence[int], firing: Iterable[bool]) -> list[tuple[int, int | None]]:
    """Return each span from the first time that fires to the first that does not."""
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
    """Return the alarms of one rule about a whole queue."""
    return [Alarm(begin, end, queue, what) for begin, end in spans(times, firing)]
