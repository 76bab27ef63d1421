"""Compare each count of the broker with the telemetry: does it agree with the tracked messages, the ends, the sends?

SQS counts are eventually consistent: a count may be a minute old and a few per cent off, so it is a contradiction only if no
state of the last minute and a half explains it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import sub

from streaming.core.reporting.report import TrackedAtCount
from streaming.core.state.queues import NEVER, Depth
from streaming.judge.broker_counts import COUNT_ERROR_RATIO, COUNT_LAG_MS
from streaming.judge.knowledge.bounds import MOST_UNREPORTED_RATIO, standstill_bound
from streaming.judge.knowledge.evidence import (
    AGREEING_COUNTS,
    EXACT_COUNTS,
    REPORTS_LAG_MS,
    Evidence,
    is_near_tracked,
)
from streaming.judge.window import Window

PROMPT_MS = 2_500
"""Reports at most this late are in the sample of their time."""
NEAR_MS = 60_000
"""A count may be a minute old: samples further from it than this cannot be compared with it."""
MEMORY_PER_COUNT = 0.98
"""Weight of the past in the running sums: about fifty counts."""
SAMPLING_RATIO = 0.15
CHANCE = 1.5
"""Sums that differ by more than this share of them, plus this many times their square root, show that only some messages are
reported."""
LEAST_SHORTFALL = 0.05
"""A count is clearly above what is tracked, or below, only beyond its own error. A small share is always missing where sends are
reported later than other events."""
MEMORY_OF_SIGNS = 0.95
"""Weight of the past in how many counts were above and below what is tracked: about twenty counts."""
FEWEST_IN_FLIGHT = 15
"""With fewer in flight, summed over the latest counts, nothing can be concluded about who reports."""
FLUKES = 3
"""A count may catch busy consumers with nothing in flight; this many in a row may not."""
ALIVE_FADES = 0.98
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
MOST_REMEMBERED = 20
"""Counts that wait to be compared: one arrives every few seconds at most, except while the job catches up."""
EARLY_SLACK = 5
"""Before there is a minute of samples, counts may differ by this many messages from what is tracked."""
NONE_EXPIRES_MS = 3_600_000
"""Messages that leave within this time of a sign of life were received, and have not reached the end of their retention."""
FROZEN_FALL_RATIO = 0.1
"""A backlog that falls by less than this may only show the error of the counts…"""
FEWEST_FALLS = 4
"""…unless it falls this often and never rises: five counts of the same messages do that by chance once in 120 times."""


def compare_count(e: Evidence, depths: list[Depth], depth: Depth, past: Window) -> None:
    """Compare one count of the broker with what is tracked. `depths` are the counts before it, oldest first.

    `past` holds the samples up to some seconds after the count, because clients' reports arrive a little later. A count without a
    nearby sample before and after it is not compared: nothing was tracked at its time.
    """
    if not has_samples_around(depth.at, past):
        return
    e.late_ms, e.least_late_ms = e.least_late_ms, REPORTS_LAG_MS
    counted, began = depth.unsettled, past.times[0]
    before = [(one.unsettled, one.at) for one in depths if one.at >= began]
    lately = past.since(depth.at - COUNT_LAG_MS)
    if not len(lately):
        lately = past
    at_count, after_count = samples_around(e, depth.at, past)
    tracked, in_flight = _tracked_then(e, depth.at, past, at_count)
    late = _samples_a_minute_before(depth.at, past)
    _add_up(e, depth, past, after_count, late, tracked, in_flight)
    again = e.tracked.contradicted_at > 0
    unsettled = e.counted_sum, e.tracked_sum, e.tracked_sum_soon, e.tracked_sum_late
    early = not e.tracked.contradicted_at and e.tracked.agreed < AGREEING_COUNTS and counted > 0
    low, high = range_between(lately, "unsettled", tracked, into="sent", out="departed", counted=None if early else counted)
    tracked_late = past.value("unsettled", late[0])
    close = not early or is_near_tracked(
        max(EARLY_SLACK, 0.1 * high), counted, tracked, past.value("unsettled", after_count), tracked_late
    )
    # Reports about the time of the count arrive in these samples.
    reported = past["unsettled"][at_count : max(after_count, past.last_before(depth.at + REPORTS_LAG_MS)) + 1].tolist()
    _compare_signs(e, counted, [tracked, tracked_late, *reported])
    close &= not e.some_are_missing()
    e.tracked.observe(depth.at, close and _within(counted, low, high) and _add_up_to_the_same(*unsettled, again))
    e.rows.observe(depth.at, _floor(low) <= counted)
    held = e.in_flight_sum, e.tracked_in_flight_sum, e.tracked_in_flight_sum_soon, e.tracked_in_flight_sum_late
    e.ends.observe(
        depth.at, _ends_agree(before, depth, past, lately, in_flight) and _add_up_to_the_same(*held, e.ends.contradicted_at > 0)
    )
    e.sends.observe(depth.at, _sends_agree(before, depth, past))
    _update_exactness(e, before, depth, past, at_count, in_flight, prompt=_is_prompt(depth, tracked, lately))
    e.counted_at = depth.at


def update_tracked_at_counts(e: Evidence, tracked: Mapping[int, TrackedAtCount], depths: Sequence[Depth]) -> None:
    """Remember what was `tracked` at the times of counts, as known by now, for those still needed. `depths`: the counts."""
    latest = depths[-1] if depths else None
    if tracked or e.at_counts:
        counted = {depth.at: depth for depth in depths} if tracked else {}
        known = {at: numbers for at, *numbers in e.at_counts}
        known |= {at: _as_counted(counted.get(at), numbers) for at, numbers in tracked.items()}
        needed = sorted(at for at in known if at > e.counted_at or (latest is not None and at == latest.at))
        e.at_counts = [[at, *known[at]] for at in needed[-MOST_REMEMBERED:]]


def _as_counted(depth: Depth | None, tracked: TrackedAtCount) -> list[int]:
    """Return what was tracked at the time of a count, or just before it if that is nearer: visible, in flight, delayed."""
    then, before = list(tracked[:3]), list(tracked[3:])
    if depth is None or then == before:
        return then
    return min(then, before, key=lambda numbers: (abs(sum(numbers) - depth.unsettled), abs(numbers[1] - depth.in_flight)))


def _tracked_then(e: Evidence, at: int, past: Window, at_count: int) -> tuple[int, int]:
    """Return how many messages were tracked at the time of a count, and how many in flight: exactly, or by the last sample."""
    exact = e.tracked_at(at)
    return (sum(exact), exact[1]) if exact else (past.value("unsettled", at_count), past.value("tracked_in_flight", at_count))


def _compare_signs(e: Evidence, counted: int, tracked: list[int]) -> None:
    """Update how many of the latest counts were clearly above all of `tracked`, and how many below."""
    e.above = MEMORY_OF_SIGNS * e.above + ((1 - LEAST_SHORTFALL) * counted > max(tracked))
    e.below = MEMORY_OF_SIGNS * e.below + ((1 + LEAST_SHORTFALL) * counted < min(tracked))


def _is_prompt(depth: Depth, tracked: int, lately: Window) -> bool:
    """Whether a count that is exact is not one of some time before: it is what was `tracked` then, or what never was lately.

    While as many messages arrive all the time, a count that is a minute late grows by as many as a prompt one.
    """
    earlier = lately["unsettled"][: lately.last_before(depth.at) + 1].tolist()
    return depth.unsettled == tracked or not min(earlier, default=tracked) <= depth.unsettled <= max(earlier, default=tracked)


def _update_exactness(
    e: Evidence, before: list[tuple[int, int]], depth: Depth, past: Window, at_count: int, in_flight: int, *, prompt: bool
) -> None:
    """Update how many counts in a row were exactly what is reported. `before`: see `_ends_agree`; `at_count`: its sample."""
    if depth.in_flight or in_flight:
        matches = depth.in_flight == in_flight
        e.exact_ends = e.exact_ends + 1 if matches else 0
        e.exact_in_flight = e.exact_in_flight + (in_flight > 1) if matches else 0
    if before:
        unsettled, at = before[-1]
        at_last = max(past.last_before(at), 0)
        sent = past.value("sent", at_count) - past.value("sent", at_last)
        departed = past.value("departed", at_count) - past.value("departed", at_last)
        growth = depth.unsettled - unsettled
        if sent or growth:
            # While messages leave, seen or not, a part of the sends may equal the growth by chance.
            stands = not departed and depth.in_flight == in_flight
            e.exact_sends = e.exact_sends + 1 if stands and growth == sent else 0
            if e.exact_sends >= EXACT_COUNTS and prompt:
                e.exact_at = depth.at


def is_far_below(e: Evidence, depth: Depth, tracked: int, recent: Window) -> bool:
    """Whether the first non-empty count, not compared yet, is far below what is tracked: many messages left unseen."""
    if depth.at <= e.counted_at or e.counted_sum > 0 or not depth.unsettled or not has_samples_around(depth.at, recent):
        return False
    return tracked - recent.change("sent", depth.at) > EARLY_SLACK + 2 * depth.unsettled


def range_between(lately: Window, gauge: str, then: int, *, into: str, out: str, counted: int | None) -> tuple[int, int]:
    """Return the least and the most a gauge can have been, from its samples and the arrivals and departures between them.

    `then`: what it was when the broker counted.
    `counted`: the count that is compared with them. If it lies between the samples themselves, what came and went between two of
    them changes nothing, and is left out.
    """
    values = [*lately[gauge].tolist(), then]
    if counted is not None and min(values) <= counted <= max(values):
        return min(values), max(values)
    came = _largest_step(lately, into)
    went = came if out == into else _largest_step(lately, out)
    return min(values) - went, max(values) + came


def _largest_step(lately: Window, total: str) -> int:
    """Return the most by which a running total grew from one sample to the next; 0 where it never did."""
    # A few dozen samples: plain lists take half the time of numpy.
    values: list[int] = lately[total].tolist()
    return max(0, max(map(sub, values[1:], values), default=0))


def _floor(low: int) -> int:
    # However inexact, a count of zero is not that of a queue that held a message all the time.
    return max(math.floor(low * (1 - COUNT_ERROR_RATIO)), min(low, 1))


def _within(counted: int, low: int, high: int) -> bool:
    return _floor(low) <= counted <= math.ceil(high * (1 + COUNT_ERROR_RATIO))


def _add_up(
    e: Evidence, depth: Depth, past: Window, after_count: int, late: tuple[int, int], tracked: int, in_flight: int
) -> None:
    """Update the sums over the latest counts: single counts of a queue that goes up and down may agree by chance.

    `after_count`: the sample after the count, see `samples_around`. `late`: the samples around a minute before it. `tracked`,
    `in_flight`: the numbers at its time.
    """
    kept = MEMORY_PER_COUNT
    e.counted_sum = kept * e.counted_sum + depth.unsettled
    e.tracked_sum = kept * e.tracked_sum + tracked
    e.tracked_sum_soon = kept * e.tracked_sum_soon + past.value("unsettled", after_count)
    e.tracked_sum_late = kept * e.tracked_sum_late + _nearest_between(past, "unsettled", late, depth.unsettled)
    e.in_flight_sum = kept * e.in_flight_sum + depth.in_flight
    e.tracked_in_flight_sum = kept * e.tracked_in_flight_sum + in_flight
    e.tracked_in_flight_sum_soon = kept * e.tracked_in_flight_sum_soon + past.value("tracked_in_flight", after_count)
    in_flight_late = _nearest_between(past, "tracked_in_flight", late, depth.in_flight)
    e.tracked_in_flight_sum_late = kept * e.tracked_in_flight_sum_late + in_flight_late


def _samples_a_minute_before(at: int, past: Window) -> tuple[int, int]:
    """Return the indices of the samples around the time of which a count of time `at` may be if it is late."""
    before = max(past.last_before(at - 60_000), 0)
    return before, before if past.times[before] >= at - 60_000 else min(before + 1, len(past) - 1)


def _nearest_between(past: Window, gauge: str, samples: tuple[int, int], counted: int) -> int:
    """Return the number nearest to a count between what was tracked in two samples.

    Within the ten seconds between them hundreds of messages may arrive: a late count may be of any moment of them.
    """
    before, after = samples
    low = high = past.value(gauge, before)
    if after != before:
        low, high = sorted((low, past.value(gauge, after)))
    return min(max(counted, low), high)


def update_report_delay(e: Evidence, now: int, last_activity_at: int) -> None:
    """Update how late reports are: the age of the newest delivery or end is an upper limit."""
    if last_activity_at:
        e.least_late_ms = min(e.least_late_ms, max(now - last_activity_at, 0))


def has_samples_around(at: int, past: Window) -> bool:
    """Whether there are samples near this time on both sides of it."""
    at_count, times = past.last_before(at), past.times
    if at_count < 0 or at - times[at_count] > NEAR_MS:
        return False
    after = min(at_count + (times[at_count] < at), len(times) - 1)
    return 0 <= times[after] - at <= NEAR_MS


def samples_around(e: Evidence, at: int, past: Window) -> tuple[int, int]:
    """Return the indices of the samples around a count: the last before it, and the next, or a later one where reports are late.

    They are equal where a sample has exactly the count's time. Between two samples a backlog grows or shrinks.
    """
    at_count = max(past.last_before(at), 0)
    after_count = at_count if past.times[at_count] == at else min(at_count + 1, len(past) - 1)
    return at_count, after_count if e.late_ms <= PROMPT_MS else max(past.last_before(at + REPORTS_LAG_MS), after_count)


def _add_up_to_the_same(counted: float, tracked: float, tracked_soon: float, tracked_late: float, again: bool) -> bool:
    """Whether the broker's and the tracked messages add up to the same over the latest counts.

    The broker's sum is compared with what was tracked at that time or a little later (for late reports) or a minute before (for
    late counts). `again`: it was contradicted before, so agreement by chance is ruled out more strictly.
    """
    slack = (COUNT_ERROR_RATIO if again else SAMPLING_RATIO) * counted + CHANCE * math.sqrt(max(counted, tracked)) + 1
    return is_near_tracked(slack, counted, tracked, tracked_soon, tracked_late)


def _ends_agree(before: list[tuple[int, int]], depth: Depth, past: Window, lately: Window, in_flight: int) -> bool:
    """Whether all consumers are instrumented. `before`: the backlog at the counts before this one, and their times.

    The number in flight matches the tracked one (`in_flight`, at the count), no receive counts jump, and the backlog never falls
    by more than the reported ends.
    """
    low, high = range_between(lately, "tracked_in_flight", in_flight, into="received", out="received", counted=depth.in_flight)
    if not _within(depth.in_flight, low, high):
        return False
    if past.change("unseen_receives", depth.at - COUNT_LAG_MS) > 0:
        return False
    most_now = depth.unsettled * (1 + COUNT_ERROR_RATIO)
    for unsettled, at in before:
        fall = unsettled * (1 - COUNT_ERROR_RATIO) - most_now
        if fall > 1 and fall - 1 > past.change("departed", at - COUNT_LAG_MS):
            return False
    return True


def _sends_agree(before: list[tuple[int, int]], depth: Depth, past: Window) -> bool:
    """Whether all producers are instrumented: the backlog never grows by more than the reported sends."""
    if past.change("touched_unsent", depth.at - COUNT_LAG_MS) > 0:
        return False
    least_now = depth.unsettled * (1 - COUNT_ERROR_RATIO)
    for unsettled, at in before:
        growth = least_now - unsettled * (1 + COUNT_ERROR_RATIO)
        if growth > 1 and growth - 1 > past.change("sent", at - COUNT_LAG_MS):
            return False
    return True


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
        e.frozen_most = max(e.frozen_most, depth.unsettled)
        larger = depth.unsettled > (1 + FROZEN_FALL_RATIO) * e.alive_most + 1
        if not e.frozen_sure_at and (larger or e.frozen_counts >= FLUKES):
            e.frozen_sure_at = depth.at
        return
    # Messages in flight show a consumer at the count, a message that has left one since the previous count.
    _end_standstill(e, depth, depth.at if depth.in_flight else previous.at, active_at)
    e.oldest_at = oldest_at


def _oldest_was_taken(before: int, oldest_at: int, at: int, retention_ms: int) -> bool:
    """Whether the oldest message of an earlier count, sent at `before` (0: unknown), has left and had not expired."""
    return 0 < before < oldest_at and before > at - retention_ms


def _falls(e: Evidence, previous: Depth, depth: Depth, exact: bool, retention_ms: int) -> bool:
    """Whether messages have left since the count before: the backlog falls by more than the counts' error, or goes on falling.

    Later than the retention after the last sign of a consumer, messages expire one by one.
    """
    if depth.unsettled < (1 - FROZEN_FALL_RATIO) * e.frozen_most:
        return True
    if depth.at - (e.life_at or e.frozen_since or depth.at) >= retention_ms:
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
    slack = 2 * COUNT_ERROR_RATIO * max(depth.unsettled, e.frozen_first) + 1
    return sent > depth.unsettled - e.frozen_first + slack


def restart_standstill(e: Evidence, depth: Depth, past: Window) -> bool:
    """Restart the standstill at this count if messages have left since it seemed to begin. Return whether they have."""
    if not _grew_by_less_than_sent(e, depth, past):
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
    if restart_standstill(e, depth, past):
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
