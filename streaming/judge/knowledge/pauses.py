"""Pauses of a queue's consumers in the broker's counts, from which a schedule is learned where no settlement is reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from streaming.core.state.queues import Depth

PAUSES_KEPT = 100
"""The most pauses kept, the latest ones: consumers that run every quarter of an hour pause 96 times a day."""
CAUGHT_UP_RATIO = 0.5
"""Consumers came back to work if they reduced the backlog to this share: those that leave more may have failed again."""


MOST_WORK_RATIO = 0.45
"""After the only pause that is known, consumers on a schedule work for at most this share of its length.

It is a quarter for three minutes in fifteen, and some more as measured in samples that thin out with age.
"""


class Pause(NamedTuple):
    """A time in which a backlog stood still with nothing in flight, until a count showed consumers. Epoch milliseconds."""

    began_at: int
    ended_at: int
    backlog: int
    """The largest count of the pause."""
    caught_up: bool
    """Whether the consumers reduced the backlog afterwards."""


def pauses_with(pauses: Sequence[Pause], depth: Depth, began_at: int, backlog: int, shortest_ms: int) -> list[Pause]:
    """Return the pauses after a count that shows consumers at work, or an empty queue.

    `began_at`: since when the counts before it had shown a standstill, 0: they had not; `backlog`: the largest of them.
    """
    found = [*pauses, Pause(began_at, depth.at, backlog, False)] if began_at and depth.at - began_at >= shortest_ms else [*pauses]
    if found and not found[-1].caught_up and depth.unsettled <= CAUGHT_UP_RATIO * found[-1].backlog:
        found[-1] = found[-1]._replace(caught_up=True)
    return found[-PAUSES_KEPT:]


def may_be_schedule(pause_ms: int, worked_ms: int) -> bool:
    """Whether the only pause that is known may be one of a schedule: consumers that return from an outage work for longer."""
    return worked_ms <= MOST_WORK_RATIO * pause_ms


def longest_of_schedule(pauses: Sequence[Pause], known_since: int, day_began_at: int, latest: int, worked_until: int) -> int:
    """Return the longest of the `latest` pauses in milliseconds if consumers paused for at least half of the time, else 0.

    `known_since`: when the queue became known; `worked_until`: the last sign of a consumer. Only pauses that ended after
    `day_began_at`, and after which the consumers caught up, count.
    """
    first_kept_at = pauses[0].began_at if len(pauses) == PAUSES_KEPT else 0
    known = [pause for pause in pauses if pause.caught_up]
    counted = [pause for pause in known if pause.ended_at >= day_began_at]
    if not counted:
        return 0
    began_at = min(max(known_since, day_began_at, first_kept_at), counted[0].began_at)
    lengths = [pause.ended_at - pause.began_at for pause in counted]
    if 2 * sum(lengths) < counted[-1].ended_at - began_at:
        return 0
    if len(known) == 1 and not may_be_schedule(lengths[0], worked_until - known[0].ended_at):
        return 0
    return max(lengths[-latest:])
