"""Groups whose head waits its turn: SQS keeps no order between groups, so one may wait for long by chance."""

from __future__ import annotations

import math

import numpy as np

from streaming.core.reporting.report import OrderedQueueReport, StuckGroup
from streaming.core.reporting.views import MessageView
from streaming.judge.context import Context

FEWEST_IN_TURN = 10
"""With fewer groups, it takes slow consumers for chance to explain a wait: the contract's plain rule holds there."""
CHANCE = 1 / 10_000
"""A group is passed over if any of the groups that take turns would be left out for so long more rarely than this."""


def waits_its_turn(c: Context, stuck: StuckGroup, limit_ms: float) -> bool:
    """Whether other groups wait all the time as well, and chance explains that they came since this one could be received.

    A head that came back more than once is no matter of chance.
    """
    ordered, head = c.summary.ordered_facts, stuck.group.head
    if ordered is None or ordered.in_turn < FEWEST_IN_TURN or head is None or head.state == "in_flight" or head.receive_count > 1:
        return False
    return _others_wait(c, stuck, limit_ms) and _is_chance(c, ordered, could_be_received_since(stuck, head))


def _others_wait(c: Context, stuck: StuckGroup, limit_ms: float) -> bool:
    """Whether others waited all the time for which a group may stand still: consumers take the only group that waits."""
    latest = c.samples_of(int(limit_ms)).since(c.now - int(limit_ms))
    return len(latest) > 0 and bool((latest["tracked_visible"] > stuck.group.visible).all())


def _is_chance(c: Context, ordered: OrderedQueueReport, since: int) -> bool:
    """Whether a group may be left out of all receives since then by chance.

    One receive leaves out a certain one of n groups that wait with the probability 1 - 1/n, so it does not matter for how long
    there were no consumers.
    """
    past = c.past.since(since)
    if len(past) < 2:
        return True
    # Every group that waits has a visible message, and is one of those that take turns.
    visible = np.maximum(past["tracked_visible"][:-1], past["tracked_visible"][1:])
    groups = np.clip(visible, 2, max(ordered.in_turn, 2))
    turns = np.diff(past["received"]) / ordered.most_per_receive
    return float((turns * np.log1p(-1 / groups)).sum()) > math.log(CHANCE / ordered.in_turn)


def received_since(c: Context, stuck: StuckGroup) -> int:
    """Return how many messages were received since the head could be."""
    assert stuck.group.head is not None
    return c.past.change("received", could_be_received_since(stuck, stuck.group.head))


def could_be_received_since(stuck: StuckGroup, head: MessageView) -> int:
    """Return since when a head that is not in flight could be received: since it came back, if it was received before."""
    if not head.last_received_at_ms:
        return stuck.since
    ends = [attempt.end_ms for attempt in head.attempts if attempt.what == "received" and attempt.end_ms is not None]
    return ends[-1] if ends else head.last_received_at_ms
