"""Whether visibility windows that ran out show failed deliveries, or only that deletions are not reported.

A window that runs out leaves no event: the consumer failed, or it deleted the message and did not report it. If it failed, the
message is still in the queue and comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streaming.core.state.queues import Depth
from streaming.judge.broker_counts import COUNT_LAG_MS
from streaming.judge.conditions.outcomes import ConsumerMark, consumer_marks
from streaming.judge.history.window import Ints, Window
from streaming.judge.knowledge.evidence import REPORTS_LAG_MS

if TYPE_CHECKING:
    from streaming.judge.context import Context

CAME_BACK_RATIO = 0.5
"""With this share of the failed deliveries followed by another one or by a move, they failed, whoever reports deletions."""
FEWEST_FAILED = 20
"""With fewer failed deliveries, it is not concluded that deletions are not reported."""
FEWEST_LEFT = 5
FEWEST_GONE = 10
RARELY_RATIO = 0.05
"""Of ten failed deliveries or more, another one follows more often than this, even if few of the consumers report."""
REPORTING_RATIO = 0.9
"""Where this share of all deliveries before ended with a reported deletion, new consumers are taken to report theirs."""
FEWEST_FINISHED = 100
"""With a share of 3 % of the deletions lost, a hundred in a row arrive once in twenty times."""
UNENDED_MS = 60_000
"""Consumers that report their acknowledgements have finished one of twenty messages by then."""
LONGEST_WINDOW_MS = 300_000
"""The samples of the last eleven minutes show deletions that are not reported only if windows are clearly shorter than that."""
LONGEST_INTERVAL_MS = 600_000
"""Counts that are further apart do not speak for the time between them; the second count is awaited for as long."""


def came_back(past: Window, since: int) -> int:
    """Return how many messages were delivered again, or moved or lost, since a time (epoch milliseconds)."""
    again = past.change("received", since) - past.change("touched", since)
    return max(again, 0) + max(past.change("departed", since) - past.change("deleted", since), 0)


def no_ends_reported(past: Window) -> bool:
    """Whether windows run out, no deletion was ever reported, and messages do not come back: deletions are not reported."""
    return len(past) > 0 and not past.value("deleted", -1) and _rarely_come_back(past, past.value("failed", -1))


def _rarely_come_back(past: Window, failed: int) -> bool:
    """Whether fewer messages came back, or were moved or lost, than explains this many failed deliveries."""
    total = {name: past.value(name, -1) for name in ("received", "touched", "departed", "deleted")}
    returned = max(total["received"] - total["touched"], 0) + total["departed"] - total["deleted"]
    return failed >= FEWEST_FAILED and returned < CAME_BACK_RATIO * failed


def nothing_ever_ends(c: Context) -> bool:
    """Whether deliveries of this queue end by nothing but an acknowledgement, and none was ever reported, in any way.

    A collector that reports how many messages each consumer holds would show their acknowledgements.
    """
    return c.visibility_ms is None and not c.settled_total and not c.summary.consumer_states


def acknowledgements_are_unseen(c: Context) -> bool:
    """Whether that is because they are not reported: many messages were received a while ago, and they do not come back."""
    if not c.summary.total("received") or not nothing_ever_ends(c):
        return False
    at = c.recent.last_before(c.now - UNENDED_MS)
    received = c.recent.value("received", at) if at >= 0 else 0
    again = c.summary.total("received") - c.summary.total("touched")
    return received >= FEWEST_FAILED and again < CAME_BACK_RATIO * received


def every_end_is_reported(past: Window, visibility_ms: int | None) -> bool:
    """Whether every delivery of the last minutes, of a hundred or more, ended with a reported deletion or came back."""
    if visibility_ms is None or visibility_ms > LONGEST_WINDOW_MS or not len(past):
        return False
    since = int(past.at[0])
    return past.change("deleted", since) >= FEWEST_FINISHED and past.change("failed", since) <= came_back(past, since)


def failures_are_proved(c: Context, window_ms: int) -> bool:
    """Whether the deliveries of the last minutes that ended without a settlement count as failed.

    1. "Consumers that report deletions would have reported these." 2. "If the messages came back, the deliveries failed." 3. "If
    the broker counts fewer messages than did not come back, they left the queue: their deletions are not reported." 4. "When
    the counts end, what the last one showed of the windows that had ended before it still holds." 5. "What any earlier count
    showed holds as well, until messages come back or a deletion is reported." 6. "If hardly any came back and the counts show
    that they left, 1 does not hold: the consumers do not report deletions any more."
    """
    since = c.now - window_ms
    failed = c.samples_of(window_ms).change("failed", since)
    report = _consumers_report_ends(c, failed, since) and not _hardly_any_came_back(c, failed, since)
    return report or not _messages_left(c, failed, since)


def failures_are_proved_of(c: Context, consumer: str, failed: int, window_ms: int) -> bool:
    """Whether the failed deliveries of one consumer count, by the same rules."""
    since, results = c.now - window_ms, c.summary.consumer_results.get(consumer)
    reports = results is not None and results.finished > 0 and not _hardly_any_came_back(c, failed, since)
    return reports or not _messages_left(c, failed, since)


def _consumers_report_ends(c: Context, failed: int, since: int) -> bool:
    """Whether the consumers that failed have reported deletions, or nearly all did before any failed."""
    before = next((mark for mark in consumer_marks(c) if mark.at >= since), ConsumerMark(since, {}))
    silent = sum(
        results.failed - before.of(name).failed for name, results in c.summary.consumer_results.items() if not results.finished
    )
    if c.summary.total("deleted") and silent <= (1 - CAME_BACK_RATIO) * failed:
        return True
    at = c.past.last_before(since)
    # Compared with the deliveries: in the first minute of a queue, no window has run out yet.
    deleted, received = (c.past.value(name, at) if at >= 0 else 0 for name in ("deleted", "received"))
    return deleted >= FEWEST_FAILED and deleted >= REPORTING_RATIO * received


def _hardly_any_came_back(c: Context, failed: int, since: int) -> bool:
    """Whether hardly any of these failed deliveries was followed by another one, although the first failure moves no message."""
    if failed < FEWEST_GONE or c.max_receive_count == 1:
        return False
    return came_back(c.samples_of(c.now - since), since) <= RARELY_RATIO * failed


def _messages_left(c: Context, failed: int, since: int) -> bool:
    """Whether the broker's counts are far below the number of messages whose windows ran out and that did not come back."""
    if c.visibility_ms is None:
        # Without windows, every failure is reported.
        return False
    samples = c.samples_of(c.now - since)
    returned = came_back(samples, since)
    if returned >= CAME_BACK_RATIO * failed:
        return False
    if _left_unreported(c):
        return True
    depths = _counts(c)
    lately = [depth for depth in depths if depth.at >= c.now - _counted_within_ms(depths)]
    if lately:
        return _left_by(c, lately, samples, since)
    # The counts have ended. They say nothing about the windows that end since.
    return bool(depths) and _left_by(c, depths[-1:], c.past.until(depths[-1].at), depths[-1].at - (c.now - since))


def _counts(c: Context) -> list[Depth]:
    """Return the latest counts, with one that came without the messages in flight: a message whose window ended is in it, too.

    Where the first failure moves a message, such counts do not show how many the dead-letter queue gained.
    """
    depths, reported = c.summary.depths, c.summary.attributes.get("visible")
    if reported is None or not isinstance(reported.value, int) or c.max_receive_count == 1:
        return depths
    if depths and depths[-1].at >= reported.at:
        return depths
    return [*depths, Depth(reported.at, reported.value, 0, 0)]


def _left_unreported(c: Context) -> bool:
    """Whether consumers never reported a deletion, and some count has shown that messages whose windows had ended left.

    The count that shows it best decides: one of a backlog, be it of a burst or of an outage, does not show that these consumers
    began to fail. A count may be late: only windows that ended clearly before it are compared with it. Failed deliveries of
    consumers that do report deletions are left out: their messages may have been deleted late.
    """
    past = c.past
    others = _failed_of_reporting_consumers(c)
    if not len(past) or not _rarely_come_back(past, past.value("failed", -1) - others):
        return False
    counted_at = past["counted_at"]
    before = np.searchsorted(past.at, counted_at - COUNT_LAG_MS, side="right") - 1
    again = np.maximum(_growth(past, "received") - _growth(past, "touched"), 0)
    gone = np.maximum(_growth(past, "departed") - _growth(past, "deleted"), 0)
    # What failed by then and did not come back by then stays in the queue, unless it moves before the count.
    waiting = (_growth(past, "failed") - again - gone)[before] - _gained_until(c, past) - others
    counted = past["counted_visible"] + past["counted_in_flight"]
    return bool(((counted_at > 0) & (before >= 0) & (waiting >= FEWEST_FAILED) & (counted < CAME_BACK_RATIO * waiting)).any())


def _failed_of_reporting_consumers(c: Context) -> int:
    """Return how many deliveries failed that are not of consumers which never reported a deletion."""
    total = c.summary.total("failed")
    if not c.summary.total("deleted"):
        return 0
    if c.max_receive_count == 1:
        # The first failure moves the message, so it leaves the queue although its consumer is broken.
        return total
    return total - sum(results.failed for results in c.summary.consumer_results.values() if not results.finished)


def _growth(past: Window, field: str) -> Ints:
    """Return by how much a running total has grown until each sample."""
    totals = past[field]
    growth: Ints = totals - totals[0]
    return growth


def _counted_within_ms(depths: list[Depth]) -> int:
    """Return how old a count may be before the next one is overdue: not every collector polls each minute."""
    if len(depths) < 2:
        return LONGEST_INTERVAL_MS
    return min(max(COUNT_LAG_MS, depths[-1].at - depths[-2].at + REPORTS_LAG_MS), LONGEST_INTERVAL_MS)


def _left_by(c: Context, depths: list[Depth], past: Window, since: int) -> bool:
    """Whether these counts are far below the messages whose windows ran out after `since`, in `past`, and did not come back."""
    waiting = past.change("failed", since) - came_back(past, since) - _gained_by_dead_letter_queue(c, past, since)
    # A window that ran out makes its message visible, never delayed.
    return waiting >= FEWEST_LEFT and max(depth.visible + depth.in_flight for depth in depths) < CAME_BACK_RATIO * waiting


def _gained_by_dead_letter_queue(c: Context, past: Window, since: int) -> int:
    """Return by how much the dead-letter queue's count has grown: SQS reports no move, and a moved message has left the queue."""
    name = c.dead_letter_queue
    if not name:
        return 0
    until = int(past.at[-1]) if len(past) else since
    return max(c.history.window(c.name.sibling(name)).until(until).change("counted_visible", since), 0)


def _gained_until(c: Context, past: Window) -> Ints:
    """Return by how much the count of the dead-letter queue has grown since the first sample, until each one."""
    name = c.dead_letter_queue
    dead = c.history.window(c.name.sibling(name)) if name else None
    if dead is None or not len(dead):
        return np.zeros(len(past), dtype=np.int64)
    counted = dead["counted_visible"]
    first = max(dead.last_before(past.times[0]), 0)
    gained: Ints = np.maximum(counted[np.maximum(np.searchsorted(dead.at, past.at, side="right") - 1, first)] - counted[first], 0)
    return gained
