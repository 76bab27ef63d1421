"""Groups whose head waits its turn: SQS keeps no order between groups, so one may wait for long by chance."""

from __future__ import annotations

import math

import numpy as np

from streaming.core.reporting.report import OrderedQueueReport, StuckGroup
from streaming.core.reporting.views import MessageView
from streaming.judge.context import Context

CHANCE = 1 / 10_000
"""A group is passed over if any of the groups that take turns would be left out for so long more rarely than this."""


def waits_its_turn(c: Context, stuck: StuckGroup, limit_ms: float) -> bool:
    """Whether other groups wait as well, and chance explains that their heads were received since this one could be.

    A head that came back more than once is no matter of chance.
    """
    ordered, head = c.summary.ordered_facts, stuck.group.head
    if ordered is None or not ordered.in_turn or head is None or head.state == "in_flight" or head.receive_count > 1:
        return False
    return not _waits_alone(c, stuck, head, limit_ms) and _is_chance(c, ordered, could_be_received_since(stuck, head))


def _waits_alone(c: Context, stuck: StuckGroup, head: MessageView, limit_ms: float) -> bool:
    """Whether nothing else waited for most of the time for which a group may stand still.

    Consumers that are there take the only group that waits. Where nobody has received its head, a receive shows that they were
    there before the last half of that time.
    """
    since = c.now - int(limit_ms)
    latest = c.samples_of(int(limit_ms)).since(since)
    if 2 * int((latest["tracked_visible"] > stuck.group.visible).sum()) >= len(latest):
        return False
    return bool(head.last_received_at_ms) or latest.until(c.now - int(limit_ms) // 2).change("received", since) > 0


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
