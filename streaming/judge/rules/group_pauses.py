"""Pauses of the consumers of an ordered queue, in which every group waits: no time in which others pass one over."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streaming.core.columns import nonzero
from streaming.core.reporting.report import StuckGroup
from streaming.judge.conditions.conditions import once
from streaming.judge.context import Context
from streaming.judge.rules.stalled import scheduled_ms

BUSY_MS = 60_000
FEWEST_RECEIVED = 10
"""Consumers that received this many messages in their last minute would have received more if they were there…"""
SHORTEST_PAUSE = 0.5
"""…for this part of the time for which a group may stand still. Of fewer messages, more may not have been sent."""


def waited_for_consumers(c: Context, stuck: StuckGroup, limit_ms: float) -> bool:
    """Whether a head that nobody has received waited less than `limit_ms` while consumers were there.

    It is so after a deploy, and on a schedule. What it waited between several pauses adds up.
    """
    head = stuck.group.head
    if head is None or head.last_received_at_ms:
        return False
    pauses = (pause for pause in _gaps(c) if pause[1] - pause[0] >= SHORTEST_PAUSE * limit_ms)
    away_ms = sum(max(0, ended - max(began, stuck.since)) for began, ended in pauses)
    return c.now - stuck.since - away_ms < limit_ms


@once
def _gaps(c: Context) -> list[tuple[int, int]]:
    """Return from when until when (epoch milliseconds) consumers received nothing: busy ones, or such that work on a schedule."""
    return list(_gaps_after(c, 0 if scheduled_ms(c) else FEWEST_RECEIVED))


def _gaps_after(c: Context, fewest: int) -> Iterator[tuple[int, int]]:
    past = c.past
    at, received = past.at, past["received"]
    grew = nonzero(np.diff(received) > 0) + 1
    last, next_ = grew[:-1], grew[1:]
    minute_before = np.maximum(at.searchsorted(at[last] - BUSY_MS, "right") - 1, 0)
    chosen = received[last] - received[minute_before] >= fewest
    yield from zip(at[last][chosen].tolist(), at[next_ - 1][chosen].tolist(), strict=True)
