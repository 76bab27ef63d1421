"""Dead letters known by the depth of their queue, matched with those whose arrival is reported.

The two may come in either order: a move is usually reported before the broker counts it, but a dead letter that nobody reports
becomes known by its first receive, long after it was counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from streaming.core.reporting.report import Arrival
from streaming.core.state.queues import Depth
from streaming.judge.broker_counts import COUNT_ERROR_RATIO, COUNT_LAG_MS

MOST_EXACT = 16
"""Up to this many messages, counts are taken to be exact: a rise by one is an arrival."""
GRACE_MS = 120_000
"""A rise is announced only if no message has explained it within this time."""
QUIET_IDS_KEPT = 1_000


@dataclass(slots=True)
class CountedArrivals:
    """What is remembered of one dead-letter queue. Times are epoch milliseconds."""

    depth: int = -1
    """The last count applied, -1 before the first."""
    arrived: int = 0
    """Arrivals reported by messages when that count was applied."""
    unexplained: int = 0
    """How far the depth has risen beyond the arrivals reported so far."""
    since: int = 0
    """When the current unexplained rise was first counted."""
    announced: int = 0
    """Arrivals announced from counts that are still in the queue: arrivals reported later are matched to these."""
    shown: int = 0
    """How many arrivals the current announcement is about…"""
    at: int = 0
    """…and when it was made."""
    uncounted: int = 0
    """Reported arrivals that no count has shown yet…"""
    uncounted_at: int = 0
    """…and the time of the latest of them."""
    rose_at: int = 0
    """The time of the latest count that rose."""
    before: int = 0
    """Messages that were in the queue before any count, and may still be."""
    base: int = 0
    """The depth before the first rise of the current announcement, or what it has fallen to since."""
    fell_at: int = 0
    """The time of a count below `depth` that no second one has confirmed yet, 0 for none…"""
    fell_to: int = 0
    """…and that count."""
    shown_at: int = 0
    """The time of the latest count that had risen when the current announcement was made…"""
    shown_depth: int = 0
    """…and the depth it showed."""
    quiet_ids: list[str] = field(default_factory=list)
    """Messages whose arrival was reported later and is not announced again."""

    @property
    def untracked(self) -> int:
        """How many messages of the queue may not be tracked: no arrival of them was reported."""
        return self.before + self.unexplained + self.announced

    def report(self, arrived: int, latest: Sequence[Arrival]) -> None:
        """Apply the total of reported arrivals; `latest` are the newest of them by rank, as far as they are listed."""
        new = max(arrived - self.arrived, 0)
        self.arrived = arrived
        if not new:
            return
        listed = latest[-new:]
        counted = [arrival for arrival in listed if self._may_be_counted(arrival)]
        # Arrivals beyond those that are listed are many at once: which of them were counted is not known.
        reported = len(counted) + new - len(listed)
        explained = min(reported, self.unexplained)
        self.unexplained -= explained
        late = min(reported - explained, self.announced)
        self.announced -= late
        if late:
            self.quiet_ids = [*self.quiet_ids, *(arrival.message_id for arrival in counted[-late:])][-QUIET_IDS_KEPT:]
        if new > explained + late:
            self.uncounted += new - explained - late
            self.uncounted_at = max([self.uncounted_at, *(arrival.at for arrival in listed)])

    def _may_be_counted(self, arrival: Arrival) -> bool:
        """Whether the latest rise may be this arrival: a first receive may be long after it, other reports have its own time."""
        return arrival.known_by == "first_receive" or arrival.at <= self.rose_at

    def count(self, depth: Depth, now: int) -> None:
        """Apply the broker's latest count."""
        counted = depth.unsettled
        if self.depth < 0:
            self.depth, self.before = counted, max(counted - self.arrived, 0)
        self.before = min(self.before, counted)
        slack = _slack(max(counted, self.depth))
        rise = counted - self.depth
        if rise > slack:
            if not self.unexplained and not self.shown:
                self.base = self.depth
            more = max(rise - self.uncounted, 0)
            self.uncounted -= rise - more
            if more and not self.unexplained:
                self.since = now
            self.unexplained += more
            self.depth, self.rose_at = counted, depth.at
        if -rise > slack:
            self._fall(depth.at, counted)
        else:
            self.fell_at = 0
        if depth.at >= self.uncounted_at + COUNT_LAG_MS and not self.fell_at:
            # This count shows all of them: those beyond the rise that may be hidden in its error have left the queue again.
            self.uncounted = min(self.uncounted, max(counted - self.depth, 0) + slack)

    def _fall(self, at: int, counted: int) -> None:
        """Apply a count clearly below the depth. A single one may be stale, and the next one's return to the depth no arrival."""
        if not self.fell_at:
            self.fell_at, self.fell_to = at, counted
        elif at > self.fell_at:
            self.depth, self.fell_at = max(counted, self.fell_to), 0
            self.announced, self.base = min(self.announced, self.depth), min(self.base, self.depth)

    def announce(self, now: int, quiet_ms: int) -> int:
        """Return how many arrivals are announced from counts now, 0 for none."""
        if self.unexplained and now - self.since >= GRACE_MS:
            self.announced += self.unexplained
            self.shown, self.at = min(self.shown + self.unexplained, max(self.depth - self.base, self.unexplained)), now
            self.shown_at, self.shown_depth = self.rose_at, self.depth
            self.unexplained = 0
        if not self.shown or now - self.at >= quiet_ms:
            self.shown = 0
        return self.shown


def _slack(counted: int) -> int:
    """Return by how much two counts of the same messages may differ: one may be too low and the other too high."""
    return int(2 * COUNT_ERROR_RATIO * counted) + 1 if counted > MOST_EXACT else 0
