"""Compare each count of the broker with the telemetry: does it agree with the tracked messages, the ends, the sends?

SQS counts are eventually consistent: a count may be a minute old and a few per cent off, so it is a contradiction only if no
state of the last minute and a half explains it. One contradiction ends a conclusion; a window of agreement restores it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import Any

from streaming.core.state.queues import Depth
from streaming.judge.knowledge.bounds import standstill_bound
from streaming.judge.window import Window

COUNT_ERROR_RATIO = 0.06
COUNT_LAG_MS = 90_000
REPORTS_LAG_MS = 10_000
"""Clients' reports about the time of a count have arrived by this long after it."""
PROMPT_MS = 2_500
"""Reports at most this late are in the sample of their time."""
NEAR_MS = 60_000
"""A count may be a minute old: samples further from it than this cannot be compared with it."""
AGREEMENT_MS = 300_000
"""How long counts must agree before a contradicted conclusion holds again."""
AGREEING_COUNTS = 4
MEMORY_PER_COUNT = 0.98
"""Weight of the past in the running sums: about fifty counts."""
SAMPLING_RATIO = 0.15
CHANCE = 1.5
"""Sums that differ by more than this share of them, plus this many times their square root, show that only some messages are
reported."""
FEWEST_IN_FLIGHT = 15
"""With fewer in flight, summed over the latest counts, nothing can be concluded about who reports."""
SURE_COUNTS = 2
SURE_COUNTED = 20
"""This many counts of this many messages no longer agree by chance."""
SURE_RATIO = 0.125
"""…if they differ by at most this share: of so few, half may be missing and the sums still agree by chance."""
ESTABLISHED_RATIO = 0.2
"""The same once they have agreed for long."""
FEW = 2
"""Sums may differ by this many messages: some came or went just when the broker counted."""
EXACT_COUNTS = 3
"""This many consecutive counts must match exactly before counts are treated as exact…"""
EXACT_FOR_MS = 600_000
"""…for this long, even if they differ: then some messages are not reported any more."""
FLUKES = 3
"""A count may catch busy consumers with nothing in flight; this many in a row may not."""
ALIVE_FADES = 0.98
FEWEST_RECEIVED = 100
"""With a twentieth of the sends not reported, a hundred messages received in a row were all reported once in 170 times."""
EARLY_SLACK = 5
"""Before there is a minute of samples, counts may differ by this many messages from what is tracked."""
FROZEN_FALL_RATIO = 0.1
"""A backlog that falls by less than this may only show the error of the counts."""


@dataclass(slots=True)
class Claim:
    """A statement that counts can contradict. Times are epoch milliseconds."""

    agreed_since: int = 0
    """First count of the current run of agreement; 0: the last count contradicted it, or none came yet."""
    agreed: int = 0
    """Counts in that run."""
    contradicted_at: int = 0
    """The last contradiction, 0: never."""

    def take(self, at: int, agrees: bool) -> None:
        """Record whether a count of time `at` agrees."""
        if not agrees:
            self.agreed_since, self.agreed, self.contradicted_at = 0, 0, at
            return
        self.agreed_since = self.agreed_since or at
        self.agreed += 1

    def holds(self, now: int) -> bool:
        """Whether the claim can be relied on: never contradicted, or agreed with for long enough since."""
        if not self.agreed_since:
            return False
        return not self.contradicted_at or self.is_long(now)

    def is_long(self, now: int) -> bool:
        """Whether the current run of agreement is long enough to draw a conclusion."""
        return self.agreed >= AGREEING_COUNTS and now - self.agreed_since >= AGREEMENT_MS


@dataclass(slots=True)
class Evidence:
    """What the counts of one queue have shown so far."""

    seen_at: int = 0
    """The latest count examined for signs of life…"""
    counted_at: int = 0
    """…and the latest one compared with what is tracked."""
    tracked: Claim = field(default_factory=Claim)
    """The tracked unsettled messages are those the broker has."""
    ends: Claim = field(default_factory=Claim)
    """Every message that leaves is reported to leave."""
    sends: Claim = field(default_factory=Claim)
    """Every message that enters is reported to enter."""
    rows: Claim = field(default_factory=Claim)
    """Every tracked message still exists: no more are tracked than the broker has."""
    exact_ends: int = 0
    """Consecutive counts whose number in flight was exactly the tracked one, with some in flight."""
    exact_sends: int = 0
    """Consecutive counts that grew by exactly the reported sends, with some sends and nothing leaving."""
    counted_sum: float = 0.0
    tracked_sum: float = 0.0
    tracked_sum_late: float = 0.0
    """Sums over the latest counts: the broker's, those tracked at that time, those tracked a minute before."""
    in_flight_sum: float = 0.0
    tracked_in_flight_sum: float = 0.0
    tracked_in_flight_sum_late: float = 0.0
    """The same for messages in flight."""
    frozen_since: int = 0
    """First of the consecutive counts with a visible backlog, none in flight and no fall; 0: the last count showed life."""
    frozen_counts: int = 0
    frozen_most: int = 0
    life_at: int = 0
    """The latest time by which the broker's counts certainly showed a working consumer."""
    frozen_sure_at: int = 0
    """First of them from which the backlog is certainly not that of busy consumers."""
    alive_most: float = 0.0
    """The largest backlog counted while a consumer worked; decays."""
    visible_since: int = 0
    """First of the consecutive counts with a visible backlog."""
    backlog_at: int = 0
    """The latest count of a broker that does not report how much of its backlog is in flight."""
    backlog_since: int = 0
    """First of consecutive such counts whose backlog never fell, with no delivery or end reported between them…"""
    backlog_first: int = 0
    """…and the backlog then; `backlog_most` is the maximum since."""
    backlog_most: int = 0
    backlog: int = 0
    tracked_sum_soon: float = 0.0
    tracked_in_flight_sum_soon: float = 0.0
    """Those tracked once the reports about the time of the count had arrived: all messages, and those in flight."""
    group_passed_at: int = 0
    """When a younger message of an ordering group was last seen in flight before its head."""
    late_ms: int = 0
    """The smallest lateness of reports between the last two counts…"""
    least_late_ms: int = REPORTS_LAG_MS
    """…and since then."""
    standstill_at: int = 0
    """While nothing leaves: by when the oldest message was sent at the latest; 0: unknown."""
    arrived_at: int = 0
    """When the count of `seen_at` was first examined: later than that where the job catches up with its source."""
    exact_at: int = 0
    """The latest count after several that grew by exactly the reported sends: the broker counts exactly and promptly."""

    def is_sure(self, now: int) -> bool:
        """Whether complete tracking is established beyond chance, or there are no counts to contradict it."""
        return not self.seen_at or self.agrees_on_messages() or self.is_established(now)

    def is_established(self, now: int) -> bool:
        """Whether the counts have agreed for long, one by one and in sum."""
        return self.tracked.is_long(now) and self._sums_are_close(ESTABLISHED_RATIO)

    def agrees_on_messages(self) -> bool:
        """Whether counts of enough messages agree: counts of none agree with a partly tracked queue as well."""
        return self.tracked.agreed >= SURE_COUNTS and self.counted_sum >= SURE_COUNTED and self._sums_are_close(SURE_RATIO)

    def _sums_are_close(self, ratio: float) -> bool:
        """Whether the broker's sums are close to the tracked ones, of all messages and of those in flight."""
        return _are_close(ratio, self.counted_sum, self.tracked_sum, self.tracked_sum_soon, self.tracked_sum_late) and _are_close(
            ratio,
            self.in_flight_sum,
            self.tracked_in_flight_sum,
            self.tracked_in_flight_sum_soon,
            self.tracked_in_flight_sum_late,
        )

    def counts_are_exact(self) -> bool:
        """Whether the broker's counts were exact and prompt lately."""
        return self.exact_at > 0 and self.seen_at - self.exact_at <= EXACT_FOR_MS

    def counts_are_below(self) -> bool:
        """Whether the broker counted no messages yet, or clearly fewer than were tracked: it is late, or some left unseen."""
        return not self.counted_sum or self.counted_sum < (1 - ESTABLISHED_RATIO) * min(self.tracked_sum, self.tracked_sum_soon)

    def drop_sums(self) -> None:
        """Start the sums over the latest counts anew: what they compare is known to differ, and for another reason."""
        self.counted_sum = self.tracked_sum = self.tracked_sum_soon = self.tracked_sum_late = 0.0
        self.in_flight_sum = self.tracked_in_flight_sum = 0.0
        self.tracked_in_flight_sum_soon = self.tracked_in_flight_sum_late = 0.0

    def to_list(self) -> list[Any]:
        """Return plain values for JSON, in field order."""
        return [_OF_CLAIM(value) if isinstance(value, Claim) else value for value in _OF_EVIDENCE(self)]

    @classmethod
    def from_list(cls, values: list[Any]) -> Evidence:
        """Rebuild the evidence from `to_list`."""
        known: list[Any] = [Claim(*v) if isinstance(v, list | tuple) else v for v in values]
        evidence = cls(*known)
        if len(known) <= cls.__slots__.index("tracked_sum_soon"):
            # Stored before these sums existed.
            evidence.tracked_sum_soon, evidence.tracked_in_flight_sum_soon = evidence.tracked_sum, evidence.tracked_in_flight_sum
        return evidence


# Thousands are written in every batch: asking dataclasses for their fields costs more than the rest.
_OF_CLAIM, _OF_EVIDENCE = attrgetter(*Claim.__slots__), attrgetter(*Evidence.__slots__)


def compare_count(e: Evidence, depths: list[Depth], depth: Depth, past: Window) -> None:
    """Compare one count of the broker with what is tracked. `depths` are the counts before it, oldest first.

    `past` holds the samples up to some seconds after the count, because clients' reports arrive a little later. A count without a
    nearby sample before and after it is not compared: nothing was tracked at its time.
    """
    if not is_framed(depth.at, past):
        return
    e.late_ms, e.least_late_ms = e.least_late_ms, REPORTS_LAG_MS
    depths = [before for before in depths if past.last_before(before.at) >= 0]
    lately = past.since(depth.at - COUNT_LAG_MS)
    if not len(lately):
        lately = past
    low, high = _range(lately, "unsettled", into="sent", out="departed")
    then, soon = then_and_soon(e, depth.at, past)
    _add_up(e, depth, past, then, soon)
    again = e.tracked.contradicted_at > 0
    unsettled = e.counted_sum, e.tracked_sum, e.tracked_sum_soon, e.tracked_sum_late
    early = not e.tracked.contradicted_at and e.tracked.agreed < AGREEING_COUNTS and depth.unsettled > 0
    late = max(past.last_before(depth.at - 60_000), 0)
    off = _apart(depth.unsettled, *(past.value("unsettled", i) for i in (then, soon, late)))
    close = not early or off <= max(EARLY_SLACK, 0.1 * high)
    e.tracked.take(depth.at, close and _within(depth.unsettled, low, high) and _add_up_to_the_same(*unsettled, again))
    e.rows.take(depth.at, _floor(low) <= depth.unsettled)
    held = e.in_flight_sum, e.tracked_in_flight_sum, e.tracked_in_flight_sum_soon, e.tracked_in_flight_sum_late
    e.ends.take(depth.at, _ends_agree(depths, depth, past, lately) and _add_up_to_the_same(*held, e.ends.contradicted_at > 0))
    e.sends.take(depth.at, _sends_agree(depths, depth, past))
    in_flight = past.value("tracked_in_flight", then)
    if depth.in_flight or in_flight:
        e.exact_ends = e.exact_ends + 1 if depth.in_flight == in_flight else 0
    if depths:
        before = max(past.last_before(depths[-1].at), 0)
        sent, departed = (past.value(name, then) - past.value(name, before) for name in ("sent", "departed"))
        growth = depth.unsettled - depths[-1].unsettled
        if sent or growth:
            # While messages leave, seen or not, a part of the sends may equal the growth by chance.
            stands = not departed and depth.in_flight == in_flight
            e.exact_sends = e.exact_sends + 1 if stands and growth == sent else 0
            if e.exact_sends >= EXACT_COUNTS:
                e.exact_at = depth.at
    e.counted_at = depth.at


def is_far_below(e: Evidence, depth: Depth, tracked: int, recent: Window) -> bool:
    """Whether the first non-empty count, not compared yet, is far below what is tracked: many messages left unseen."""
    if depth.at <= e.counted_at or e.counted_sum > 0 or not depth.unsettled or not is_framed(depth.at, recent):
        return False
    return tracked - recent.change("sent", depth.at) > EARLY_SLACK + 2 * depth.unsettled


def _range(lately: Window, gauge: str, *, into: str, out: str) -> tuple[int, int]:
    """Return the least and the most a gauge can have been, from its samples and the arrivals and departures between them."""
    # A few dozen samples: plain lists take half the time of numpy.
    values = lately[gauge].tolist()
    came, went = (max((b - a for a, b in pairwise(lately[total].tolist())), default=0) for total in (into, out))
    return min(values) - max(went, 0), max(values) + max(came, 0)


def _floor(low: int) -> int:
    # However inexact, a count of zero is not that of a queue that held a message all the time.
    return max(math.floor(low * (1 - COUNT_ERROR_RATIO)), min(low, 1))


def _within(counted: int, low: int, high: int) -> bool:
    return _floor(low) <= counted <= math.ceil(high * (1 + COUNT_ERROR_RATIO))


def _add_up(e: Evidence, depth: Depth, past: Window, then: int, soon: int) -> None:
    """Update the sums over the latest counts: single counts of a queue that goes up and down may agree by chance.

    `then`, `soon`: the samples around the count, see `then_and_soon`.
    """
    late = max(past.last_before(depth.at - 60_000), 0)
    kept = MEMORY_PER_COUNT
    e.counted_sum = kept * e.counted_sum + depth.unsettled
    e.tracked_sum = kept * e.tracked_sum + past.value("unsettled", then)
    e.tracked_sum_soon = kept * e.tracked_sum_soon + past.value("unsettled", soon)
    e.tracked_sum_late = kept * e.tracked_sum_late + past.value("unsettled", late)
    e.in_flight_sum = kept * e.in_flight_sum + depth.in_flight
    e.tracked_in_flight_sum = kept * e.tracked_in_flight_sum + past.value("tracked_in_flight", then)
    e.tracked_in_flight_sum_soon = kept * e.tracked_in_flight_sum_soon + past.value("tracked_in_flight", soon)
    e.tracked_in_flight_sum_late = kept * e.tracked_in_flight_sum_late + past.value("tracked_in_flight", late)


def see_lateness(e: Evidence, now: int, last_taken_at: int) -> None:
    """Update how late reports are: the age of the newest delivery or end is an upper limit."""
    if last_taken_at:
        e.least_late_ms = min(e.least_late_ms, max(now - last_taken_at, 0))


def is_framed(at: int, past: Window) -> bool:
    """Whether there are samples near this time on both sides of it."""
    then, times = past.last_before(at), past.times
    if then < 0 or at - times[then] > NEAR_MS:
        return False
    after = min(then + (times[then] < at), len(times) - 1)
    return 0 <= times[after] - at <= NEAR_MS


def then_and_soon(e: Evidence, at: int, past: Window) -> tuple[int, int]:
    """Return the indices of the samples around a count: the last before it, and the next, or a later one where reports are late.

    They are equal where a sample has exactly the count's time. Between two samples a backlog grows or shrinks.
    """
    then = max(past.last_before(at), 0)
    soon = then if past.times[then] == at else min(then + 1, len(past) - 1)
    return then, soon if e.late_ms <= PROMPT_MS else max(past.last_before(at + REPORTS_LAG_MS), soon)


def _outside(counted: float, tracked: float, tracked_soon: float) -> float:
    """Return how far a count is outside the range tracked between then and a little later: reports are seconds late."""
    return max(min(tracked, tracked_soon) - counted, counted - max(tracked, tracked_soon), 0)


def _add_up_to_the_same(counted: float, tracked: float, tracked_soon: float, tracked_late: float, again: bool) -> bool:
    """Whether the broker's and the tracked messages add up to the same over the latest counts.

    The broker's sum is compared with what was tracked at that time or a little later (for late reports) or a minute before (for
    late counts). `again`: it was contradicted before, so agreement by chance is ruled out more strictly.
    """
    slack = (COUNT_ERROR_RATIO if again else SAMPLING_RATIO) * counted + CHANCE * math.sqrt(max(counted, tracked)) + 1
    return _apart(counted, tracked, tracked_soon, tracked_late) <= slack


def _are_close(ratio: float, counted: float, tracked: float, tracked_soon: float, tracked_late: float) -> bool:
    slack = max(ratio * counted, FEW)
    # Nearly always the first is true, and every queue with news is asked.
    return abs(counted - tracked) <= slack or _apart(counted, tracked, tracked_soon, tracked_late) <= slack


def _apart(counted: float, tracked: float, tracked_soon: float, tracked_late: float) -> float:
    """Return how far a count is from what was tracked: at that time or a little later, or a minute before."""
    return min(_outside(counted, tracked, tracked_soon), abs(counted - tracked_late))


def _ends_agree(depths: list[Depth], depth: Depth, past: Window, lately: Window) -> bool:
    """Whether all consumers are instrumented.

    The number in flight matches the tracked one, no receive counts jump, and the backlog never falls by more than the reported
    ends.
    """
    low, high = _range(lately, "tracked_in_flight", into="received", out="received")
    if not _within(depth.in_flight, low, high):
        return False
    if past.change("unseen_receives", depth.at - COUNT_LAG_MS) > 0:
        return False
    for before in depths:
        fall = before.unsettled * (1 - COUNT_ERROR_RATIO) - depth.unsettled * (1 + COUNT_ERROR_RATIO)
        if fall > 1 and fall - 1 > past.change("departed", before.at - COUNT_LAG_MS):
            return False
    return True


def _sends_agree(depths: list[Depth], depth: Depth, past: Window) -> bool:
    """Whether all producers are instrumented: the backlog never grows by more than the reported sends."""
    if past.change("touched_unsent", depth.at - COUNT_LAG_MS) > 0:
        return False
    for before in depths:
        growth = depth.unsettled * (1 - COUNT_ERROR_RATIO) - before.unsettled * (1 + COUNT_ERROR_RATIO)
        if growth > 1 and growth - 1 > past.change("sent", before.at - COUNT_LAG_MS):
            return False
    return True


def see_life(e: Evidence, depths: list[Depth], depth: Depth, visibility_ms: int, now: int) -> None:
    """Update whether the counts show a consumer: some are in flight, or the backlog falls by more than the counts' error."""
    e.seen_at, e.arrived_at = depth.at, now
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
    # A message in flight at a count was received at most a visibility timeout earlier; a fall happened since the previous count.
    since = depth.at - min(visibility_ms, 60_000) if depth.in_flight else previous
    e.life_at = max(e.life_at, min(since, depth.at))
    e.frozen_since = e.frozen_counts = e.frozen_sure_at = e.standstill_at = 0
    e.frozen_most = depth.unsettled
    e.alive_most = max(ALIVE_FADES * e.alive_most, depth.unsettled)


def see_standstill(e: Evidence, depth: Depth, past: Window) -> None:
    """Conclude from the first count that is certainly about a standstill when the oldest message was sent, at the latest.

    A count may be old: that nothing has left since it was true is certain only when it is later than the standstill by its lag.
    That the backlog never grew by more than the sends does not show that all sends are reported: what was received shows it.
    """
    if e.standstill_at or not e.frozen_sure_at or depth.at < e.frozen_sure_at + COUNT_LAG_MS or not e.sends.agreed_since:
        return
    since = e.sends.agreed_since
    if past.change("touched", since) >= FEWEST_RECEIVED and not past.change("touched_unsent", since):
        e.standstill_at = standstill_bound(past, depth.visible, depth.at + REPORTS_LAG_MS, since) or 0


def see_backlog(e: Evidence, at: int, backlog: int, active_at: int) -> None:
    """Apply a count, less known delayed messages, of a broker that does not report what is in flight.

    `active_at` is when a consumer last received or settled: with an instrumented consumer, the only sign of life there is.
    """
    previous, e.backlog_at, e.backlog = e.backlog_at, at, backlog
    fell = backlog < (1 - FROZEN_FALL_RATIO) * e.backlog_most
    if backlog <= 0 or fell or active_at > previous:
        e.backlog_since, e.backlog_first, e.backlog_most = 0, backlog, backlog
        return
    e.backlog_since = e.backlog_since or at
    e.backlog_most = max(e.backlog_most, backlog)
