"""Consumers that seem to hold more than the broker dispatched to them: what they held was settled unseen.

That happens where nobody watched for a while: an ActiveMQ collector that is started again does not learn what was acknowledged
meanwhile. Which messages are gone is not known. They stay tracked until the queue is empty, but nobody is blamed for them.
"""

from __future__ import annotations

from collections.abc import Mapping

from streaming.core.reporting.report import ConsumerHolds
from streaming.judge.conditions.conditions import conditions, once
from streaming.judge.context import Context

BELIEVED_AFTER_MS = 60_000
"""A collector that was just started has not asked the broker yet, and reports what it has seen itself."""


@conditions("held_unconfirmed")
def unconfirmed_since(c: Context) -> Mapping[str, int]:
    """Consumers that seemed to hold more messages than the broker counted at its last count of them, each with that count's time.

    The comparison is only made while the messages held at that time are still known: what was settled later no longer counts.
    So it stands until the next count, which continues it or ends it.
    """
    if not c.summary.consumer_states:
        return {}
    found = {}
    for held in c.summary.consumers:
        counted_at, dispatched = _count(c, held)
        part = _part(held.consumer, counted_at)
        if held.held_at_count > dispatched or unconfirmed_since.key(part) in c.memory.since:
            found[part] = _known_since(c, held.consumer)
    return found


@once
def unconfirmed(c: Context) -> frozenset[str]:
    """Return the consumers that have been in doubt for long enough."""
    long = (part for part, since in unconfirmed_since(c).items() if c.now - since >= BELIEVED_AFTER_MS)
    return frozenset(part.rpartition("@")[0] for part in long)


def _count(c: Context, held: ConsumerHolds) -> tuple[int, float]:
    """Return when the broker last counted what this consumer holds, and how much that was; infinite where it never did."""
    state = c.summary.consumer_states.get(held.consumer)
    dispatched = state.attributes.get("dispatched") if state is not None else None
    if state is None or not isinstance(dispatched, int):
        return 0, float("inf")
    return state.dispatched_at, dispatched


def _known_since(c: Context, consumer: str) -> int:
    """Return since when the counts before this one have shown the same, the present if none did."""
    # The name of a consumer may have an @, too.
    earlier = unconfirmed_since.key(consumer)
    return min((at for name, at in c.memory.since.items() if name.rpartition("@")[0] == earlier), default=c.now)


def _part(consumer: str, counted_at: int) -> str:
    return f"{consumer}@{counted_at}"
