"""Whether visibility windows that ran out show failed deliveries, or only that deletions are not reported.

A window that runs out leaves no event: the consumer failed, or it deleted the message and did not report it. If it failed, the
message is still in the queue and comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.core.reporting.report import ConsumerResults
from streaming.judge.knowledge.evidence import COUNT_LAG_MS
from streaming.judge.window import Window

if TYPE_CHECKING:
    from streaming.judge.context import Context

CAME_BACK_RATIO = 0.5
"""With this share of the failed deliveries followed by another one or by a move, they failed, whoever reports deletions."""
FEW_CAME_BACK_RATIO = 0.2
"""With a smaller share, the broker's counts can show that the other messages left the queue."""
FEWEST_FAILED = 20
"""With fewer failed deliveries, it is not concluded that deletions are not reported."""
FEWEST_LEFT = 5
REPORTING_RATIO = 0.9
"""Where this share of all deliveries before ended with a reported deletion, new consumers are taken to report theirs."""


def came_back(past: Window, since: int) -> int:
    """Return how many messages were delivered again, or moved or lost, since a time (epoch milliseconds)."""
    again = past.change("received", since) - past.change("touched", since)
    return max(again, 0) + max(past.change("departed", since) - past.change("deleted", since), 0)


def no_ends_reported(past: Window) -> bool:
    """Whether windows run out, no deletion was ever reported, and messages do not come back: deletions are not reported."""
    if not len(past) or past.value("deleted", -1) or past.value("failed", -1) < FEWEST_FAILED:
        return False
    total = {name: past.value(name, -1) for name in ("received", "touched", "departed", "failed")}
    returned = max(total["received"] - total["touched"], 0) + total["departed"]
    return returned < CAME_BACK_RATIO * total["failed"]


def failures_are_proved(c: Context, window_ms: int) -> bool:
    """Whether the deliveries of the last minutes that ended without a settlement count as failed.

    1. "If the messages came back, the deliveries failed." 2. "If the broker counts fewer messages than did not come back, they
    left the queue." For consumers that have reported deletions, counts must show it when they cannot be late, and a fifth that
    came back is enough.
    """
    since = c.now - window_ms
    failed = c.recent.change("failed", since) if len(c.recent) else 0
    return _are_proved(c, failed, since, reporting=_consumers_report_ends(c, failed, since))


def failures_are_proved_of(c: Context, consumer: str, failed: int, window_ms: int) -> bool:
    """Whether the failed deliveries of one consumer count."""
    results = c.summary.consumer_results.get(consumer)
    return _are_proved(c, failed, c.now - window_ms, reporting=results is not None and results.finished > 0)


def _are_proved(c: Context, failed: int, since: int, *, reporting: bool) -> bool:
    if c.visibility_ms is None or not len(c.recent):
        # Without windows, every failure is reported.
        return True
    returned = came_back(c.recent, since)
    if returned >= (FEW_CAME_BACK_RATIO if reporting else CAME_BACK_RATIO) * failed:
        return True
    return not _messages_left(c, since, COUNT_LAG_MS if reporting else 0)


def _consumers_report_ends(c: Context, failed: int, since: int) -> bool:
    """Whether the consumers that failed have reported deletions, or nearly all did before any failed."""
    marks = [known for at, known in c.memory.consumer_marks if at >= since]
    before = marks[0] if marks else {}
    none = ConsumerResults(0, 0)
    silent = sum(
        results.failed - before.get(name, none).failed
        for name, results in c.summary.consumer_results.items()
        if not results.finished
    )
    if c.summary.total("deleted") and silent <= (1 - CAME_BACK_RATIO) * failed:
        return True
    at = c.past.last_before(since)
    deleted, unsettled = (c.past.value(name, at) if at >= 0 else 0 for name in ("deleted", "failed"))
    return deleted >= FEWEST_FAILED and deleted >= REPORTING_RATIO * (deleted + unsettled)


def _messages_left(c: Context, since: int, lag_ms: int) -> bool:
    """Whether the broker counts far fewer messages than ran out of their windows `lag_ms` ago and did not come back."""
    ran_out = c.recent.change("failed", since) - (c.recent.change("failed", c.now - lag_ms) if lag_ms else 0)
    waiting = ran_out - came_back(c.recent, since)
    counts = [depth.unsettled for depth in c.summary.depths if depth.at >= c.now - COUNT_LAG_MS]
    return bool(counts) and waiting >= FEWEST_LEFT and max(counts) < CAME_BACK_RATIO * waiting
