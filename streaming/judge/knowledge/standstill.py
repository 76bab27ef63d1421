"""What the broker's counts show of a backlog that stands still: is there a consumer, and how old is the oldest message?"""

from __future__ import annotations

from streaming.core.state.queues import NEVER, Depth
from streaming.judge.broker_counts import COUNT_ERROR_RATIO, COUNT_LAG_MS
from streaming.judge.history.window import Window
from streaming.judge.knowledge.bounds import MOST_UNREPORTED_RATIO, standstill_bound
from streaming.judge.knowledge.evidence import REPORTS_LAG_MS, Evidence

FLUKES = 3
"""A count may catch busy consumers with nothing in flight; this many in a row may not."""
ALIVE_FADES = 0.98
EXPIRING_FADES = 0.98
FEWEST_RECEIVED = 100
"""With a twentieth of the sends not reported, a hundred messages received in a row were all reported once in 170 times."""
GROWN_FOR_MS = 400_000
"""For how long a standing backlog must grow by the sends before they count as complete."""
GROWTH_COMPARED_AFTER_MS = 250_000
"""Counts whose lateness differs by a minute grow by a minute more, or less, than what was sent between them."""
FEWEST_GROWN = 50
"""Messages: a growth by fewer may equal the reported sends by chance."""
LAGS_MS = range(0, COUNT_LAG_MS + 1, 10_000)
"""How late counts may be, in the steps of the samples."""
LEAST_RATE_RATIO = 0.75
"""Random traffic of a minute and a half varies by less than this; a producer that joins changes more."""
NONE_EXPIRES_MS = 3_600_000
"""Messages that leave within this time of a sign of life were received, and have not reached the end of their retention."""
FROZEN_FALL_RATIO = 0.1
"""A backlog that falls by less than this may only show the error of the counts…"""
WRONG_RATIO = 0.5
"""A single count this far below a backlog that stands still is not believed: counts are approximate."""
FEWEST_FALLS = 4
"""…unless it falls this often and never rises: five counts of the same messages do that by chance once in 120 times."""


def update_consumer_activity(
    e: Evidence,
    depths: list[Depth],
    depth: Depth,
    now: int,
    *,
    active_at: int,
    oldest_at: int = 0,
    oldest_error_ms: int = 0,
    exact: bool = False,
    retention_ms: int = NEVER,
) -> None:
    """Update whether there is a consumer.

    Some messages are in flight, the backlog falls, or a delivery or end was reported since the previous count (`active_at` is the
    latest): counts taken in step with regular traffic show the same backlog for ever. So does a broker's oldest message that is
    newer than before by more than `oldest_error_ms`: `oldest_at` is when it was sent, 0 where that is not reported. `exact`: the
    counts have no error.
    """
    e.seen_at, e.arrived_at = depth.at, now
    previous = depths[-1] if depths else depth
    if not exact and active_at <= previous.at and not _is_far_below(e, previous) and _is_far_below(e, depth):
        # The next count confirms it, or does not.
        return
    e.visible_since = (e.visible_since or depth.at) if depth.visible else 0
    taken = _oldest_was_taken(e.oldest_at, oldest_at - oldest_error_ms, depth.at, retention_ms)
    stands = depth.visible and not depth.in_flight and not taken and active_at <= previous.at
    if stands and not _falls(e, previous, depth, exact, retention_ms):
        if not e.frozen_since:
            e.frozen_since, e.frozen_first = depth.at, depth.unsettled
        # Where several counts are applied at once, it is known for the latest only. An earlier one may have expired.
        if oldest_at:
            e.oldest_at = min(e.oldest_at, oldest_at) if e.oldest_at > max(0, depth.at - retention_ms) else oldest_at
        e.frozen_counts += 1
        # As many expire as were sent that long ago: over hours, that varies by more than the counts' error.
        fading = EXPIRING_FADES if _may_expire(e, depth, retention_ms) else 1.0
        e.frozen_most = max(int(fading * e.frozen_most), depth.unsettled)
        larger = depth.unsettled > (1 + FROZEN_FALL_RATIO) * e.alive_most + 1
        if not e.frozen_sure_at and (larger or e.frozen_counts >= FLUKES):
            e.frozen_sure_at = depth.at
        return
    # Messages in flight show a consumer at the count, a message that has left one since the previous count.
    _end_standstill(e, depth, depth.at if depth.in_flight else previous.at, active_at)
    e.oldest_at = oldest_at


def _is_far_below(e: Evidence, depth: Depth) -> bool:
    """Whether a count is far below the backlog that stands still, with nothing in flight: a single one may be wrong."""
    return e.frozen_counts >= FLUKES and not depth.in_flight and depth.unsettled < WRONG_RATIO * e.frozen_most


def _oldest_was_taken(before: int, oldest_at: int, at: int, retention_ms: int) -> bool:
    """Whether the oldest message of an earlier count, sent at `before` (0: unknown), has left and had not expired."""
    return 0 < before < oldest_at and before > at - retention_ms


def _falls(e: Evidence, previous: Depth, depth: Depth, exact: bool, retention_ms: int) -> bool:
    """Whether messages have left since the count before: the backlog falls by more than the counts' error, or goes on falling.

    Later than the retention after the last sign of a consumer, messages expire one by one.
    """
    if depth.unsettled < (1 - FROZEN_FALL_RATIO) * e.frozen_most:
        return True
    if _may_expire(e, depth, retention_ms):
        return False
    fell = depth.unsettled < previous.unsettled
    if not e.frozen_since or depth.unsettled > (1 + FROZEN_FALL_RATIO) * e.frozen_most + 1:
        # A backlog that begins, or grows by more than the counts' error.
        e.frozen_falls = 0
    elif depth.unsettled > previous.unsettled:
        # After falls that show a consumer, another run of them shows one again.
        e.frozen_falls = 0 if e.frozen_falls >= FEWEST_FALLS else -1
    elif fell and e.frozen_falls >= 0:
        e.frozen_falls += 1
    return fell and (exact or e.frozen_falls >= FEWEST_FALLS)


def _may_expire(e: Evidence, depth: Depth, retention_ms: int) -> bool:
    """Whether messages that came since the last sign of a consumer reach the end of their retention."""
    return depth.at - (e.life_at or e.frozen_since or depth.at) >= retention_ms


def _end_standstill(e: Evidence, depth: Depth, since: int, active_at: int) -> None:
    """Record that a count shows a consumer, who worked at `since` or after it."""
    e.life_at = max(e.life_at, min(max(since, active_at), depth.at))
    e.frozen_since = e.frozen_counts = e.frozen_sure_at = 0
    e.frozen_falls = max(e.frozen_falls, 0)
    e.standstill_at = e.standstill_counted_at = e.standstill_counted = e.standstill_if_complete_at = 0
    e.standstill_lags_ms = []
    e.frozen_most = depth.unsettled
    e.alive_most = max(ALIVE_FADES * e.alive_most, depth.unsettled)


def _grew_by_less_than_sent(e: Evidence, depth: Depth, past: Window) -> bool:
    """Whether messages have left since the first count of a standstill: more were sent than it has grown by since.

    What is reported to be sent is a minimum of what came. A count may be a minute and a half old, and each of the two off by some
    per cent. Long after the last sign of life messages may leave because they expire; delayed ones that are not counted do not
    show in the growth.
    """
    first, until = e.frozen_since, depth.at - COUNT_LAG_MS
    if not first or depth.delayed < 0 or until <= first + REPORTS_LAG_MS or depth.at - (e.life_at or first) > NONE_EXPIRES_MS:
        return False
    sent = past.change("sent", first + REPORTS_LAG_MS) - past.change("sent", until)
    # Of what was sent long ago, as much may expire as is sent now.
    expired = past.change("departed", first)
    slack = 2 * COUNT_ERROR_RATIO * max(depth.unsettled, e.frozen_first) + 1
    return sent - expired > depth.unsettled - e.frozen_first + slack


def restart_standstill(e: Evidence, depth: Depth, past: Window) -> bool:
    """Restart the standstill at this count if messages have left since it seemed to begin. Return whether they have."""
    if _is_far_below(e, depth) or not _grew_by_less_than_sent(e, depth, past):
        return False
    _end_standstill(e, depth, depth.at - COUNT_LAG_MS, 0)
    # The growth is compared with the sends from this count on.
    e.frozen_since, e.frozen_first, e.frozen_counts = depth.at, depth.unsettled, 1
    return True


def update_standstill(e: Evidence, depth: Depth, past: Window) -> None:
    """Conclude from the first count that is certainly about a standstill when the oldest message was sent, at the latest.

    If messages leave, it is none.

    A count may be old: that nothing has left since it was true is certain only when it is later than the standstill by its lag.
    The sends must be reported. What was received shows it; where only producers report, so does a backlog that goes on to grow by
    what they send.
    """
    if restart_standstill(e, depth, past) or _is_far_below(e, depth):
        return
    since = e.sends.agreed_since
    if e.standstill_at or not e.frozen_sure_at or depth.at < e.frozen_sure_at + COUNT_LAG_MS or not since:
        return
    if past.change("touched", since) >= FEWEST_RECEIVED and not past.change("touched_unsent", since):
        e.standstill_at = standstill_bound(past, depth.visible, depth.at + REPORTS_LAG_MS, since) or 0
    elif not e.standstill_counted_at:
        e.standstill_counted_at, e.standstill_counted = depth.at, depth.visible
        e.standstill_if_complete_at = standstill_bound(past, depth.visible, depth.at + REPORTS_LAG_MS, since) or 0
        e.standstill_lags_ms = list(LAGS_MS)
    elif e.standstill_if_complete_at:
        _compare_growth(e, depth, past, since)


def _compare_growth(e: Evidence, depth: Depth, past: Window, since: int) -> None:
    """Compare the growth of a standing backlog with what was sent: it shows whether all is reported, and how late counts are."""
    first, growth = e.standstill_counted_at, depth.visible - e.standstill_counted
    grown_ms = depth.at - first
    sent = {lag: past.change("sent", first - lag) - past.change("sent", depth.at - lag) for lag in LAGS_MS}
    e.standstill_lags_ms = [lag for lag in e.standstill_lags_ms if sent[lag] == growth]
    if grown_ms < GROWTH_COMPARED_AFTER_MS:
        return
    slack = MOST_UNREPORTED_RATIO * max(sent.values()) + 1
    before_ms = first - e.standstill_if_complete_at
    sent_before = past.change("sent", e.standstill_if_complete_at) - past.change("sent", first)
    # A producer that reports only since then would not show in the growth.
    complete = before_ms > 0 and sent_before / before_ms >= LEAST_RATE_RATIO * growth / grown_ms
    if not complete or not min(sent.values()) - slack <= growth <= max(sent.values()) + slack:
        e.standstill_if_complete_at = 0
    elif grown_ms >= GROWN_FOR_MS and growth >= FEWEST_GROWN:
        e.standstill_at = e.standstill_if_complete_at
        if e.standstill_lags_ms:
            counted_at = first - min(e.standstill_lags_ms)
            exact = standstill_bound(past, e.standstill_counted, counted_at, since, exact=True)
            e.standstill_at = min(e.standstill_at, exact or e.standstill_at)


def update_backlog(
    e: Evidence, at: int, backlog: int, *, active_at: int, oldest_at: int, retention_ms: int, paused: bool
) -> None:
    """Apply a count, less known delayed messages, of a broker that does not report what is in flight.

    `active_at` is when a consumer last received or settled. `oldest_at` is when the oldest message was sent, as the broker
    reports with this count, 0 where it does not: if it is later than at the count before, that message has left, whoever took it.
    What waited while the queue was `paused` counts from the first count after that.
    """
    previous, e.backlog_at, e.backlog = e.backlog_at, at, backlog
    oldest, e.backlog_oldest_at = e.backlog_oldest_at, oldest_at
    taken = _oldest_was_taken(oldest, oldest_at, at, retention_ms)
    fell = backlog < (1 - FROZEN_FALL_RATIO) * e.backlog_most
    if backlog <= 0 or fell or taken or paused or active_at > previous:
        e.backlog_since, e.backlog_first, e.backlog_most = 0, backlog, backlog
        return
    e.backlog_since = e.backlog_since or at
    e.backlog_most = max(e.backlog_most, backlog)
