"""What a broker's counts are worth: for all that compares with them."""

from __future__ import annotations

from streaming.core.reporting.report import QueueSummary

COUNT_ERROR_RATIO = 0.06
"""A count contradicts what is tracked, or another count, only if it differs by more than this share…"""
COUNT_LAG_MS = 90_000
"""…from every state of this time before it."""
EXACT_SYSTEMS = frozenset({"activemq"})
"""Systems whose counts are exact: a smaller one shows that messages have left."""
EXACT_OLDEST_SYSTEMS = frozenset({"activemq", "cloudflare_queues"})
"""Systems that report when their oldest message was sent; of others it may be derived from an age, which is rounded and old."""
COUNTS_FRESH_MS = 600_000
"""Older counts are not used as current."""
OVERDUE_RATIO = 1.25
"""The next count is overdue after this many times the interval between the last two: polls may be far apart, and come late."""
LONGEST_INTERVAL_MS = 900_000
"""Two counts that are further apart are not of two polls in a row: the collector was gone between them."""


def overdue_from(summary: QueueSummary) -> int | None:
    """Return from when on the next count is overdue (epoch milliseconds); None where nothing shows how far apart polls are."""
    counted, depths = summary.attributes.get("visible"), summary.depths
    # A count without the messages in flight is not one of these.
    if counted is None or len(depths) < 2 or depths[-1].at < counted.at:
        return None
    interval_ms = depths[-1].at - depths[-2].at
    return depths[-1].at + int(OVERDUE_RATIO * interval_ms) if interval_ms <= LONGEST_INTERVAL_MS else None
