"""Pauses of the consumers of an ordered queue, in which every group waits: no time in which others pass one over."""

from __future__ import annotations

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
    """Return from when until when (epoch milliseconds) busy consumers, or any that work on a schedule, received nothing."""
    past = c.past
    at, received = past.at, past["received"]
    grew = nonzero(np.diff(received) > 0) + 1
    last, next_ = grew[:-1], grew[1:]
    if not scheduled_ms(c):
        minute_before = np.maximum(at.searchsorted(at[last] - BUSY_MS, "right") - 1, 0)
        busy = received[last] - received[minute_before] >= FEWEST_RECEIVED
        last, next_ = last[busy], next_[busy]
    return list(zip(at[last].tolist(), at[next_ - 1].tolist(), strict=True))
