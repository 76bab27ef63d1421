"""Estimate how long a shrinking backlog takes to drain."""

from __future__ import annotations

from streaming.judge.context import Context

DRAIN_WINDOW_MS = 300_000
DRAIN_MIN_MS = 60_000


def time_to_drain_s(c: Context) -> float | None:
    """Return the backlog divided by its rate of decrease over five minutes or since its peak; None unless it shrinks."""
    if not c.tracked or c.is_dead_letter_queue or c.basis != "messages":
        return None
    if c.recent.peak <= c.tracked:
        return None
    unsettled, settled = c.recent["unsettled"], c.recent["settled"]
    peak = _peak_behind(c)
    if peak is None:
        peak = _began_to_shrink(c)
    if peak is None or c.now - c.recent.at[peak] < DRAIN_MIN_MS or c.settled_total <= settled[peak]:
        return None
    gone = int(unsettled[peak]) - c.tracked
    return round(c.tracked * (c.now - int(c.recent.at[peak])) / gone / 1000, 1) if gone > 0 else None


def _peak_behind(c: Context) -> int | None:
    """Return the index of the largest backlog in the first half of the window, if the second half stayed below it.

    A backlog that goes up and down does not shrink.
    """
    at, unsettled = c.recent.at, c.recent["unsettled"]
    start = max(c.recent.last_before(c.now - DRAIN_WINDOW_MS), 0)
    middle = int(at[start]) + (c.now - int(at[start])) // 2
    first = [i for i in range(start, len(at)) if at[i] <= middle]
    peak = max(first, key=lambda i: (unsettled[i], at[i]))
    later = max([c.tracked, *(int(unsettled[i]) for i in range(start, len(at)) if at[i] > middle)])
    return peak if unsettled[peak] > later else None


def _began_to_shrink(c: Context) -> int | None:
    """Return the index of the sample since which the backlog never grew; None when it grew last."""
    at, unsettled = c.recent.at, c.recent["unsettled"]
    began, later = None, c.tracked
    for i in range(len(at) - 2, -1, -1):
        if unsettled[i] < later or at[i] < c.now - DRAIN_WINDOW_MS:
            break
        began, later = i, int(unsettled[i])
    return began
