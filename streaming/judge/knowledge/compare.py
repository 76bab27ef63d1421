"""Compare each count of the broker with the telemetry: does it agree with the tracked messages, the ends, the sends?

SQS counts are eventually consistent: a count may be a minute old and a few per cent off, so it is a contradiction only if no
state of the last minute and a half explains it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import sub

from streaming.core.reporting.report import TrackedAtCount
from streaming.core.state.queues import Depth
from streaming.judge.broker_counts import COUNT_ERROR_RATIO, COUNT_LAG_MS
from streaming.judge.history.window import Window
from streaming.judge.knowledge.evidence import (
    AGREEING_COUNTS,
    EXACT_COUNTS,
    REPORTS_LAG_MS,
    Evidence,
    is_near_tracked,
)

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
MOST_REMEMBERED = 20
"""Counts that wait to be compared: one arrives every few seconds at most, except while the job catches up."""
EARLY_SLACK = 5
"""Before there is a minute of samples, counts may differ by this many messages from what is tracked."""


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
    _add_up(e, depth, past, after_count=after_count, late=late, tracked=tracked, in_flight=in_flight)
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
    e.rows.observe(depth.at, _floor(low) <= counted and not _add_up_to_more(*unsettled, e.rows.contradicted_at > 0))
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
    e: Evidence, depth: Depth, past: Window, *, after_count: int, late: tuple[int, int], tracked: int, in_flight: int
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
    return is_near_tracked(_slack(counted, tracked, again), counted, tracked, tracked_soon, tracked_late)


def _add_up_to_more(counted: float, tracked: float, tracked_soon: float, tracked_late: float, again: bool) -> bool:
    """Whether clearly more messages were tracked than the broker had, over the latest counts: some left unseen.

    In a queue that is nearly empty, one that has left fits each of the counts, as it may be among those of the last minute.
    """
    return min(tracked, tracked_soon, tracked_late) > counted + _slack(counted, tracked, again)


def _slack(counted: float, tracked: float, again: bool) -> float:
    return (COUNT_ERROR_RATIO if again else SAMPLING_RATIO) * counted + CHANCE * math.sqrt(max(counted, tracked)) + 1


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
