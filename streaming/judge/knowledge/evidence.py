"""What each count of the broker says about the telemetry: does it agree with the messages tracked, the ends, the sends?

SQS counts are eventually consistent: a count may be a minute old and a few per cent off, so a contradiction is one that no
state of the last minute and a half explains. One contradiction ends a conclusion; a window of agreement brings it back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np

from streaming.core.state.queues import Depth
from streaming.judge.history import Window

COUNT_ERROR_RATIO = 0.06
COUNT_LAG_MS = 90_000
REPORTS_LAG_MS = 10_000
"""What clients report of the time of a count has arrived by so long after it."""
AGREEMENT_MS = 300_000
"""So long must counts agree before a conclusion that was contradicted holds again."""
AGREEING_COUNTS = 4
MEMORY_PER_COUNT = 0.98
"""Weight of the past in the running sums: about fifty counts."""
SAMPLING_RATIO = 0.15
CHANCE = 1.5
"""Sums that differ by more than this part of them, and this many times the root of them, show that only some of the messages are
reported."""
FEWEST_IN_FLIGHT = 15
"""Fewer in flight, over the latest counts together, say nothing of who reports."""
SURE_COUNTS = 2
SURE_COUNTED = 20
"""So many counts with so many messages agree by chance no longer."""
FLUKES = 3
"""A count may catch busy consumers with nothing in flight; so many in a row may not."""
ALIVE_FADES = 0.98
EARLY_SLACK = 5
"""At first there is no minute of samples to compare with: counts may differ by so many messages from what is tracked."""
FROZEN_FALL_RATIO = 0.1
"""A backlog that falls by less than this may be the error of the counts."""


@dataclass(slots=True)
class Claim:
    """A statement that counts can contradict. Times are epoch milliseconds."""

    agreed_since: int = 0
    """First count of the present stretch of agreement; 0: the last count contradicted it, or none came yet."""
    agreed: int = 0
    """Counts in that stretch."""
    contradicted_at: int = 0
    """The last contradiction, 0: never."""

    def take(self, at: int, agrees: bool) -> None:
        """Take in what a count of time `at` says."""
        if not agrees:
            self.agreed_since, self.agreed, self.contradicted_at = 0, 0, at
            return
        self.agreed_since = self.agreed_since or at
        self.agreed += 1

    def holds(self, now: int) -> bool:
        """Whether it may be relied on: never contradicted, or agreed with for long enough since."""
        if not self.agreed_since:
            return False
        return not self.contradicted_at or self.is_long(now)

    def is_long(self, now: int) -> bool:
        """Whether the present stretch of agreement is long enough to conclude something from."""
        return self.agreed >= AGREEING_COUNTS and now - self.agreed_since >= AGREEMENT_MS


@dataclass(slots=True)
class Evidence:
    """What the counts of one queue have said so far."""

    seen_at: int = 0
    """The latest count, as a sign of life or none…"""
    counted_at: int = 0
    """…and the latest one that was compared with what is tracked."""
    tracked: Claim = field(default_factory=Claim)
    """Unsettled messages tracked are those the broker has."""
    ends: Claim = field(default_factory=Claim)
    """Every message that leaves is reported to leave."""
    sends: Claim = field(default_factory=Claim)
    """Every message that enters is reported to enter."""
    rows: Claim = field(default_factory=Claim)
    """Every tracked message is still there: no more are tracked than the broker has."""
    exact_ends: int = 0
    """Counts in a row whose number in flight was exactly the one tracked, with something in flight."""
    exact_sends: int = 0
    """Counts in a row that grew by exactly the sends reported, with some sends."""
    counted_sum: float = 0.0
    tracked_sum: float = 0.0
    tracked_sum_late: float = 0.0
    """Sums over the latest counts: the broker's, what was tracked then, what was tracked a minute before."""
    in_flight_sum: float = 0.0
    tracked_in_flight_sum: float = 0.0
    tracked_in_flight_sum_late: float = 0.0
    """The same of messages in flight."""
    frozen_since: int = 0
    """First of the counts in a row that show a visible backlog, nothing in flight and no fall; 0: the last showed life."""
    frozen_counts: int = 0
    frozen_most: int = 0
    life_at: int = 0
    """Not later than this the broker's counts last showed that somebody works."""
    frozen_sure_at: int = 0
    """First of them from which on the backlog is certainly another one than that of busy consumers."""
    alive_most: float = 0.0
    """The largest backlog counted while somebody worked; fades."""
    visible_since: int = 0
    """First of the counts in a row that show a visible backlog."""
    backlog_at: int = 0
    """The latest count of a broker that does not say how much of its backlog is in flight."""
    backlog_since: int = 0
    """First of such counts in a row that show a backlog that never fell, with no delivery or end reported between them…"""
    backlog_first: int = 0
    """…and how much it was then; `backlog_most` since."""
    backlog_most: int = 0
    backlog: int = 0

    def is_sure(self, now: int) -> bool:
        """Whether that all is tracked is more than chance, or nobody counts."""
        several = self.tracked.agreed >= SURE_COUNTS and self.counted_sum >= SURE_COUNTED
        return not self.seen_at or several or self.tracked.is_long(now)

    def to_list(self) -> list[Any]:
        """Plain values for JSON, in the order of the fields."""
        return [_OF_CLAIM(value) if isinstance(value, Claim) else value for value in _OF_EVIDENCE(self)]

    @classmethod
    def from_list(cls, values: list[Any]) -> Evidence:
        """The evidence of `to_list`."""
        known: list[Any] = [Claim(*v) if isinstance(v, list | tuple) else v for v in values]
        return cls(*known)


# Thousands are written with every batch: asking dataclasses for their fields costs more than the rest.
_OF_CLAIM, _OF_EVIDENCE = attrgetter(*Claim.__slots__), attrgetter(*Evidence.__slots__)


def compare_count(e: Evidence, depths: list[Depth], depth: Depth, past: Window) -> None:
    """Compare one count of the broker with what is tracked. `depths` are the counts before it, oldest first.

    `past` are the samples up to some seconds after the count: what clients report arrives a little later.
    """
    lately = past.since(depth.at - COUNT_LAG_MS)
    if not len(lately):
        lately = past
    low, high = _range(lately, "unsettled", into="sent", out="departed")
    _add_up(e, depth, past)
    again = e.tracked.contradicted_at > 0
    unsettled = e.counted_sum, e.tracked_sum, e.tracked_sum_late
    early = not e.tracked.contradicted_at and e.tracked.agreed < AGREEING_COUNTS and depth.unsettled > 0
    at_count = int(past["unsettled"][max(past.last_before(depth.at), 0)])
    close = not early or abs(depth.unsettled - at_count) <= max(EARLY_SLACK, 0.1 * high)
    e.tracked.take(depth.at, close and _within(depth.unsettled, low, high) and _add_up_to_the_same(*unsettled, again))
    e.rows.take(depth.at, _floor(low) <= depth.unsettled)
    held = e.in_flight_sum, e.tracked_in_flight_sum, e.tracked_in_flight_sum_late
    e.ends.take(depth.at, _ends_agree(depths, depth, past, lately) and _add_up_to_the_same(*held, e.ends.contradicted_at > 0))
    e.sends.take(depth.at, _sends_agree(depths, depth, past))
    then = max(past.last_before(depth.at), 0)
    in_flight = int(past["tracked_in_flight"][then])
    if depth.in_flight or in_flight:
        e.exact_ends = e.exact_ends + 1 if depth.in_flight == in_flight else 0
    if depths:
        sent = int(past["sent"][then] - past["sent"][max(past.last_before(depths[-1].at), 0)])
        if sent or depth.unsettled != depths[-1].unsettled:
            e.exact_sends = e.exact_sends + 1 if depth.unsettled - depths[-1].unsettled == sent else 0
    e.counted_at = depth.at


def _range(lately: Window, gauge: str, *, into: str, out: str) -> tuple[int, int]:
    """The least and the most a gauge can have been: its samples, and what came and went between any two of them."""
    values, came, went = lately[gauge], np.diff(lately[into]), np.diff(lately[out])
    return int(values.min()) - int(went.max(initial=0)), int(values.max()) + int(came.max(initial=0))


def _floor(low: int) -> int:
    return math.floor(low * (1 - COUNT_ERROR_RATIO))


def _within(counted: int, low: int, high: int) -> bool:
    return _floor(low) <= counted <= math.ceil(high * (1 + COUNT_ERROR_RATIO))


def _add_up(e: Evidence, depth: Depth, past: Window) -> None:
    """Keep the sums over the latest counts: single counts of a queue that goes up and down may agree by chance."""
    then, late = max(past.last_before(depth.at), 0), max(past.last_before(depth.at - 60_000), 0)
    unsettled, in_flight = past["unsettled"], past["tracked_in_flight"]
    for name, value in (
        ("counted_sum", depth.unsettled),
        ("tracked_sum", unsettled[then]),
        ("tracked_sum_late", unsettled[late]),
        ("in_flight_sum", depth.in_flight),
        ("tracked_in_flight_sum", in_flight[then]),
        ("tracked_in_flight_sum_late", in_flight[late]),
    ):
        setattr(e, name, MEMORY_PER_COUNT * getattr(e, name) + int(value))


def _add_up_to_the_same(counted: float, tracked: float, tracked_late: float, again: bool) -> bool:
    """Whether what the broker counts and what is tracked, then or a minute before, come to the same over the latest counts.
    `again`: it was contradicted before, so that chance is not a reason to believe it."""
    slack = (COUNT_ERROR_RATIO if again else SAMPLING_RATIO) * counted + CHANCE * math.sqrt(counted) + 1
    return min(abs(counted - tracked), abs(counted - tracked_late)) <= slack


def _change(past: Window, total: str, since: int) -> int:
    """How much a running total grew from `since`, or a little before it, until now."""
    column = past[total]
    return int(column[-1] - column[max(past.last_before(since), 0)])


def _ends_agree(depths: list[Depth], depth: Depth, past: Window, lately: Window) -> bool:
    """All who take messages are instrumented: the number in flight is the one tracked, no receive counts jump, and the backlog
    never falls by more than the ends reported."""
    low, high = _range(lately, "tracked_in_flight", into="received", out="received")
    if not _within(depth.in_flight, low, high):
        return False
    if _change(past, "unseen_receives", depth.at - COUNT_LAG_MS) > 0:
        return False
    for before in depths:
        fall = before.unsettled * (1 - COUNT_ERROR_RATIO) - depth.unsettled * (1 + COUNT_ERROR_RATIO)
        if fall - 1 > _change(past, "departed", before.at - COUNT_LAG_MS):
            return False
    return True


def _sends_agree(depths: list[Depth], depth: Depth, past: Window) -> bool:
    """All who send are instrumented: the backlog never grows by more than the sends reported."""
    if _change(past, "touched_unsent", depth.at - COUNT_LAG_MS) > 0:
        return False
    for before in depths:
        growth = depth.unsettled * (1 - COUNT_ERROR_RATIO) - before.unsettled * (1 + COUNT_ERROR_RATIO)
        if growth - 1 > _change(past, "sent", before.at - COUNT_LAG_MS):
            return False
    return True


def see_life(e: Evidence, depths: list[Depth], depth: Depth, visibility_ms: int) -> None:
    """Whether the counts show that somebody receives: something is in flight, or the backlog falls by more than their error."""
    e.seen_at = depth.at
    previous = depths[-1].at if depths else depth.at
    e.visible_since = (e.visible_since or depth.at) if depth.visible else 0
    fell = depth.unsettled < (1 - FROZEN_FALL_RATIO) * e.frozen_most
    if depth.visible and not depth.in_flight and not fell:
        e.frozen_since = e.frozen_since or depth.at
        e.frozen_counts += 1
        e.frozen_most = max(e.frozen_most, depth.unsettled)
        larger = depth.unsettled > (1 + FROZEN_FALL_RATIO) * e.alive_most + 1
        if not e.frozen_sure_at and (larger or e.frozen_counts >= FLUKES):
            e.frozen_sure_at = depth.at
        return
    # Who is in flight at a count was received a visibility timeout earlier at the latest; a fall came since the count before.
    since = depth.at - min(visibility_ms, 60_000) if depth.in_flight else previous
    e.life_at = max(e.life_at, min(since, depth.at))
    e.frozen_since = e.frozen_counts = e.frozen_sure_at = 0
    e.frozen_most = depth.unsettled
    e.alive_most = max(ALIVE_FADES * e.alive_most, depth.unsettled)


def see_backlog(e: Evidence, at: int, backlog: int, active_at: int) -> None:
    """Take in a count of a broker that does not tell what is in flight, less what is known to be delayed. `active_at` is when
    somebody last received or settled: with an instrumented consumer, the only sign of life there is."""
    previous, e.backlog_at, e.backlog = e.backlog_at, at, backlog
    fell = backlog < (1 - FROZEN_FALL_RATIO) * e.backlog_most
    if backlog <= 0 or fell or active_at > previous:
        e.backlog_since, e.backlog_first, e.backlog_most = 0, backlog, backlog
        return
    e.backlog_since = e.backlog_since or at
    e.backlog_most = max(e.backlog_most, backlog)
