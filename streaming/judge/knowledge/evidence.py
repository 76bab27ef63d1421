"""What the broker's counts have shown about one queue so far, and what can be concluded from it. `compare` adds to it.

One contradiction ends a conclusion; a window of agreement restores it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from streaming.core.state.queues import NEVER

REPORTS_LAG_MS = 10_000
"""Clients' reports about the time of a count have arrived by this long after it."""
AGREEMENT_MS = 300_000
"""How long counts must agree before a contradicted conclusion holds again."""
AGREEING_COUNTS = 4
SURE_COUNTS = 2
SURE_COUNTED = 20
"""This many counts of this many messages no longer agree by chance."""
SURE_RATIO = 0.125
"""…if they differ by at most this share: of so few, half may be missing and the sums still agree by chance."""
ESTABLISHED_RATIO = 0.2
"""The same once they have agreed for long."""
FEW = 2
"""Sums may differ by this many messages: some came or went just when the broker counted."""
FEWEST_ABOVE = 5.5
ABOVE_TO_BELOW = 8
"""This many of the latest counts above what is tracked, and this many times as many as below it, are more than chance."""
EXACT_COUNTS = 3
"""This many consecutive counts must match exactly before counts are treated as exact…"""
EXACT_FOR_MS = 600_000
"""…for this long, even if they differ: then some messages are not reported any more."""


@dataclass(slots=True)
class Claim:
    """A statement that counts can contradict. Times are epoch milliseconds."""

    agreed_since: int = 0
    """First count of the current run of agreement; 0: the last count contradicted it, or none came yet."""
    agreed: int = 0
    """Counts in that run."""
    contradicted_at: int = 0
    """The last contradiction, 0: never."""

    def observe(self, at: int, agrees: bool) -> None:
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

    tracked: Claim = field(default_factory=Claim)
    """The tracked unsettled messages are those the broker has."""
    ends: Claim = field(default_factory=Claim)
    """Every message that leaves is reported to leave."""
    sends: Claim = field(default_factory=Claim)
    """Every message that enters is reported to enter."""
    rows: Claim = field(default_factory=Claim)
    """Every tracked message still exists: no more are tracked than the broker has."""
    seen_at: int = 0
    """The latest count examined for signs of life…"""
    counted_at: int = 0
    """…and the latest one compared with what is tracked."""
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
    """When the broker's counts last showed a consumer: the latest with messages in flight, or the one before the backlog fell."""
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
    backlog_oldest_at: int = 0
    """When the oldest message of that backlog was sent, as its broker reports; 0: not reported."""
    unreported_at: int = 0
    """The latest count of more messages than were tracked: some had come that nobody reported."""
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
    above: float = 0.0
    """How many of the latest counts, about twenty, were above all that was tracked around their time…"""
    below: float = 0.0
    """…and how many below it. With every message reported one is as likely as the other."""
    exact_in_flight: int = 0
    """Of the counts of `exact_ends`, those with two or more in flight: one in flight matches by chance too often."""
    standstill_counted_at: int = 0
    """While nothing leaves and no receive shows whether the sends are complete: the count from which…"""
    standstill_counted: int = 0
    """…and from whose backlog…"""
    standstill_if_complete_at: int = 0
    """…`standstill_at` follows if later counts show that they are; 0: they show that some are not reported."""
    frozen_first: int = 0
    """The backlog counted at `frozen_since`."""
    visible_at: int = 0
    """A count of visible messages only, from a broker that does not report what is in flight, that is still to be compared:
    its time…"""
    visible_then: int = 0
    """…and the number."""
    visible_below: int = 0
    """How many such counts in a row were below all that was tracked as visible around their time…"""
    visible_above: int = 0
    """…and how many were above all that was tracked, visible or not."""
    visible_sum: float = 0.0
    """Sum over the latest of them that agreed."""
    frozen_falls: int = 0
    """How often a standing backlog has fallen without a rise; -1: it rose after fewer falls than show a consumer."""
    oldest_at: int = 0
    """When the oldest message of a counted backlog was sent, as the broker last reported; 0: unknown."""
    standstill_lags_ms: list[int] = field(default_factory=list)
    """How late all counts since then may be, because what was sent that much earlier is exactly what they grew by."""
    at_counts: list[list[int]] = field(default_factory=list)
    """For the latest count and those not compared yet: its time and what was tracked then, visible, in flight, delayed."""

    def is_sure(self, now: int) -> bool:
        """Whether complete tracking is established beyond chance, or there are no counts to contradict it."""
        if self.visible_below or self.visible_above:
            return False
        return not self.seen_at or self.agrees_on_messages() or self.is_established(now)

    def has_counts(self) -> bool:
        """Whether there was a count of any kind, with the messages in flight or without."""
        return self.seen_at > 0 or self.backlog_at > 0

    def stands_for_ms(self, now: int) -> int:
        """Return for how long counts have shown a backlog from which nothing is taken."""
        return now - (self.frozen_since or self.backlog_since or now)

    def was_compared(self) -> bool:
        """Whether any count was compared with what is tracked."""
        return self.tracked.agreed_since > 0 or self.tracked.contradicted_at > 0

    def is_established(self, now: int) -> bool:
        """Whether the counts have agreed for long, one by one and in sum."""
        return self.tracked.is_long(now) and self._sums_are_close(ESTABLISHED_RATIO)

    def agreed_with_consumers(self, *, last_received_at: int, last_settled_at: int, now: int) -> bool:
        """Whether counts have agreed for long enough while messages were reported to leave, or consumers only received.

        In the second case the numbers in flight must agree as well: unseen consumers may fail, or hang, like the others.
        """
        agreed_since = self.tracked.agreed_since or NEVER
        if last_settled_at - agreed_since >= AGREEMENT_MS:
            return True
        return max(self.life_at, last_received_at) - agreed_since >= AGREEMENT_MS and self.ends.is_long(now)

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

    def some_in_flight_are_unseen(self) -> bool:
        """Whether the broker counted clearly more messages in flight than were tracked: some are received by unseen consumers."""
        tracked = self.tracked_in_flight_sum, self.tracked_in_flight_sum_soon, self.tracked_in_flight_sum_late
        return self.in_flight_sum > (1 + ESTABLISHED_RATIO) * max(tracked) + FEW

    def drop_sums(self) -> None:
        """Start the sums over the latest counts anew: what they compare is known to differ, and for another reason."""
        self.counted_sum = self.tracked_sum = self.tracked_sum_soon = self.tracked_sum_late = 0.0
        self.in_flight_sum = self.tracked_in_flight_sum = 0.0
        self.tracked_in_flight_sum_soon = self.tracked_in_flight_sum_late = 0.0

    def some_are_missing(self) -> bool:
        """Whether counts are above what is tracked too often for chance: some messages are not reported at all."""
        return self.above >= FEWEST_ABOVE and self.above >= ABOVE_TO_BELOW * self.below

    def tracked_at(self, at: int) -> list[int] | None:
        """Return what was tracked at the time of a count: visible, in flight, delayed. None where only samples are known."""
        return next((tracked for counted_at, *tracked in self.at_counts if counted_at == at), None)


def distance_outside_range(counted: float, tracked: float, tracked_soon: float) -> float:
    """Return how far a count is outside the range tracked between then and a little later: reports are seconds late."""
    return max(min(tracked, tracked_soon) - counted, counted - max(tracked, tracked_soon), 0)


def _are_close(ratio: float, counted: float, tracked: float, tracked_soon: float, tracked_late: float) -> bool:
    return is_near_tracked(max(ratio * counted, FEW), counted, tracked, tracked_soon, tracked_late)


def is_near_tracked(slack: float, counted: float, tracked: float, tracked_soon: float, tracked_late: float) -> bool:
    """Whether a count differs by at most `slack` from what was tracked: at that time or a little later, or a minute before."""
    # Nearly always the first is true, and every queue with news is asked.
    return (
        abs(counted - tracked) <= slack
        or distance_outside_range(counted, tracked, tracked_soon) <= slack
        or abs(counted - tracked_late) <= slack
    )
