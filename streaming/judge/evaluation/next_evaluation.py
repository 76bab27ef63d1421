"""When an unchanged queue must be judged again: the earliest time at which its result may differ.

A time that is too early costs an evaluation; one that is too late gives a wrong result. What cannot be predicted cheaply is
judged in every step: signals that fire or are about to (but for `lasting` ones). Sliding windows with failures in them are
looked at every five to ten seconds: samples are ten seconds apart. Some things may be ten seconds old: bounds of ages where only
a part is reported or counted, the words about what is missing, and those of lasting signals. They, and counts to compare, wait
when very many queues are due (see `evaluation_schedule`).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from streaming.core.reporting.views import STATES
from streaming.core.state.queues import NEVER, Depth
from streaming.judge.broker_counts import COUNTS_FRESH_MS, overdue_from
from streaming.judge.conditions.conditions import once
from streaming.judge.conditions.sliding import FAILED, OUTLIVED, RETRIED
from streaming.judge.context import Context
from streaming.judge.findings import measures
from streaming.judge.findings.lasting import is_lasting, is_timed
from streaming.judge.findings.signals import SignalKey
from streaming.judge.folding.failing import FOLDED_AFTER_MS
from streaming.judge.history.history import DENSE_MS, SAMPLE_EVERY_MS
from streaming.judge.knowledge.basis import (
    FEWEST_PASSED,
    PASSED_OVER_KEPT_MS,
    QUIET_MS,
    some_went_unseen,
    unseen_receives_slide,
)
from streaming.judge.knowledge.evidence import AGREEING_COUNTS, AGREEMENT_MS, REPORTS_LAG_MS
from streaming.judge.knowledge.queue import FRESH_BOUND_MS, RECEIVING_MS, unheard_from
from streaming.judge.knowledge.windows import FEWEST_FAILED, UNENDED_MS, nothing_ever_ends
from streaming.judge.rules.config import may_near_fifo_limit, misconfigured_since
from streaming.judge.rules.consumers import ZOMBIE_GRACE_MS, connected_since, strategy_verdicts
from streaming.judge.rules.dead_letters import counted_arrivals, expires_by
from streaming.judge.rules.prefetched import prefetched_since, usual_limit_ms, windows_stuck_from, working_since
from streaming.judge.rules.silent import expected_since, is_overdue, last_change, silent_from, silent_since
from streaming.judge.rules.stalled import backlog_since, stalled_since
from streaming.judge.rules.status import IDLE_MS, WINDOW_MS, stale_from
from streaming.judge.rules.telemetry import uncovered_since
from streaming.judge.slow_consumer import StrategyParams, departed_of, next_ack_check
from streaming.judge.snapshot import QueueStatus
from streaming.judge.turns import TURNS_KEPT_MS

_STANDING = frozenset({"ok", "stale", "stopped", "unknown"})
"""Statuses that only an arrival, or one of the moments below, ends. Nobody may come back to a stopped queue for weeks."""
_LASTING = frozenset(lasting.name for lasting in (backlog_since, expected_since, silent_since, uncovered_since, prefetched_since))
"""Conditions that only a report about the queue ends…"""
_LASTING_PARTS = (misconfigured_since, working_since, connected_since)
"""…and those with parts."""


class NextEvaluation(NamedTuple):
    """When to judge a queue again, in epoch milliseconds; NEVER where only something that arrives can change its result."""

    at: int
    """From then on a signal or the status may change. The present means in every step."""
    refresh_at: int
    """From then on more may be known: a count can be compared, or bounds are old. It may wait: see `evaluation_schedule`."""


def next_evaluation(
    c: Context, status: QueueStatus, time_to_drain_s: float | None, found: Collection[SignalKey]
) -> NextEvaluation:
    """Return when this queue must be judged again. `found`: what its rules found."""
    if (
        not all(map(is_lasting, found))
        or status not in _STANDING
        or time_to_drain_s is not None
        or _is_under_way(c)
        or (_is_held_back(c) and all(key.signal != "QueueStalled" for key in found))
        or _may_slide(c)
    ):
        return NextEvaluation(c.now, NEVER)
    # What a window held when it began is known from samples, and how the deliveries of consumers ended from marks.
    slides = (
        c.memory.consumer_marks
        or any(total.slides(c) for total in (FAILED, OUTLIVED, RETRIED))
        or unseen_receives_slide(c)
        or _ends_may_turn_out_unseen(c)
    )
    moments = (_soon(c), *_moments(c)) if slides else _moments(c)
    return NextEvaluation(_first(c.now, moments), _first(c.now, _refreshes(c, found)))


def _soon(c: Context) -> int:
    """Return a time in five to ten seconds. Not all queues that wait for a new sample are judged in one step."""
    return c.now + SAMPLE_EVERY_MS - zlib.crc32(c.name.queue.encode()) % (SAMPLE_EVERY_MS // 2)


def _first(now: int, times: Iterable[int]) -> int:
    first = NEVER
    for at in times:
        if now < at < first:
            first = at
    return first


@once
def is_steady(c: Context) -> bool:
    """Whether a count equal to the last one changes nothing: every count has agreed with all that is known for long enough.

    The evidence of a skipped count is caught up on at the next evaluation; the state keeps the counts until then.
    """
    e, depth = c.memory.evidence, c.summary.depths[-1] if c.summary.depths else None
    if depth is None or counted_arrivals(c).fell_at:
        # An equal count confirms that a dead-letter queue's depth fell.
        return False
    if c.basis == "counts":
        return depth.unsettled == 0 and not c.summary.messages_seen
    numbers = c.summary.numbers
    tracked = Depth(depth.at, numbers["visible"], numbers["in_flight"], numbers["delayed"] if depth.delayed >= 0 else -1)
    agreed = all(claim.is_long(c.now) for claim in (e.tracked, e.ends, e.sends, e.rows))
    return not c.judged_by_counts and depth == tracked and agreed


def _is_under_way(c: Context) -> bool:
    """Whether a signal fires that may change in every step, or a remembered condition may lead to one."""
    m, counted = c.memory, c.memory.counted_arrivals
    return bool(
        not all(map(is_lasting, c.firing))
        or c.arrivals
        or c.summary.losses
        or c.summary.purges
        or _consumers_are_watched(c)
        or c.messages("held")
        or (c.summary.ordered_facts is not None and c.summary.ordered_facts.stuck)
        or (m.failed_at and c.now - m.failed_at <= FOLDED_AFTER_MS)
        or m.noisy
        or m.purges
        or not all(map(_condition_is_lasting, m.since))
        or counted.unexplained
        or counted.shown
    )


def _consumers_are_watched(c: Context) -> bool:
    """Whether what is said of the consumers that the broker reports may change in every step.

    Where a group waits for a full prefetch window, it is not predicted when that takes too long. One that has just left may be a
    zombie: see `judge_zombie`.
    """
    states = c.summary.consumer_states
    if not states:
        return bool(c.memory.strategies)
    if c.ordered and c.tracked:
        return True
    decided_by = c.now - max(ZOMBIE_GRACE_MS, int(c.thresholds.slow_hold_min_s * 1000))
    left = departed_of({name: state.attributes for name, state in states.items()})
    return any(one.connection_open and not one.is_back and one.removed_at_ms >= decided_by for one in left)


def _strategy_checks(c: Context) -> Iterator[int]:
    """Yield when the broker's `ack` strategy may come to another verdict, and when that of `prefetch` forgets a slow consumer.

    The verdict of `prefetch` changes with reports only, but since when a consumer is slow by it depends on the checks before.
    """
    verdicts = strategy_verdicts(c)
    if not verdicts:
        return
    params = StrategyParams(**c.settings.slow_strategy_params)
    for of in verdicts.values():
        if of.strategy == "ack":
            counted = bool(c.summary.consumer_states[of.report.consumer].attributes.get("dispatched"))
            at = next_ack_check(of.report, params, c.now, slow=of.verdict.slow, counted=counted)
            if at is not None:
                yield at
        elif of.memory["listed"] and not of.verdict.slow:
            yield (c.now // params.check_period_ms + 1) * params.check_period_ms


def _is_held_back(c: Context) -> bool:
    """Whether a stall would fire but for what is usual here: a schedule, or the time that work takes.

    How long that is may become shorter with time: pauses are measured in samples, of which fewer are left as they grow old.
    """
    stalled = stalled_since(c)
    return stalled is not None and c.now >= stalled + measures.stall_limit_ms(c.thresholds, by_counts=True)


def _condition_is_lasting(name: str) -> bool:
    return name in _LASTING or any(several.includes(name) for several in _LASTING_PARTS)


def _may_slide(c: Context) -> bool:
    """Whether a sliding window may change the result."""
    summary, e, recent = c.summary, c.memory.evidence, c.recent
    may_be_passed = summary.numbers["visible"] and recent.value("touched", -1) > FEWEST_PASSED
    if may_be_passed and e.seen_at and not e.tracked.is_long(c.now):
        # Early on, messages that seem to wait may have been passed over: not all samples around them are taken yet.
        known_at = recent.value("oldest_visible_at", -1) + REPORTS_LAG_MS
        if c.now - max(known_at, summary.last_received_at, summary.last_settled_at) <= 2 * SAMPLE_EVERY_MS:
            return True
    if may_near_fifo_limit(c):
        return True
    if recent.value("touched_unsent", 0) != recent.value("touched_unsent", -1):
        return True
    if c.ordered and some_went_unseen(c):
        return True
    # An empty queue has no flow: it stays well, whatever it held some minutes ago.
    if not 0 < c.tracked < c.recent.peak:
        return False
    return c.tracked < max(recent.since(c.now - WINDOW_MS)["unsettled"].tolist(), default=0)


def _ends_may_turn_out_unseen(c: Context) -> bool:
    """Whether time alone may show that acknowledgements are not reported: see `acknowledgements_are_unseen`."""
    if c.summary.total("received") < FEWEST_FAILED or not nothing_ever_ends(c):
        return False
    received_at = c.recent.times[last_change(c.recent, "received") or 0]
    return c.now <= received_at + UNENDED_MS


def _moments(c: Context) -> Iterator[int]:
    """Yield times at which something may change, past ones among them."""
    summary, e, limits = c.summary, c.memory.evidence, c.thresholds
    if summary.numbers["in_flight"]:
        yield summary.numbers["held_since"] + int(measures.hold(0, 0, summary, c.settings).limit) + 1
        slow_ms = int(
            measures.slow_hold(0, 0, c.median_hold_ms, int(limits.slow_hold_min_s * 1000), limits.slow_hold_factor).limit
        )
        yield from (held.since + slow_ms + extra for held in summary.consumers for extra in (0, 1))
        if (usual_ms := usual_limit_ms(c)) < math.inf:
            # Consumers that extend a message's window, or look at dead letters, may hold it for that long.
            long = (held for held in summary.consumers if held.extended or c.is_dead_letter_queue)
            yield from (held.since + int(usual_ms) + 1 for held in long)
    if (stuck_from := windows_stuck_from(c)) is not None:
        yield stuck_from + 1
        yield from (ended_at + TURNS_KEPT_MS for ended_at in c.memory.turns.values())
    yield from _strategy_checks(c)
    expires_at = expires_by(c)
    if expires_at is not None:
        yield expires_at - int(measures.expiry(0, 0, summary, c.settings).limit) + 1
    if (stalled := stalled_since(c)) is not None:
        yield stalled + math.ceil(measures.stall_limit_ms(limits, by_counts=True))
    yield stale_from(c)
    unheard = unheard_from(summary)
    if unheard is not None:
        yield unheard + 1
    for state in STATES:
        if state in summary.attributes:
            yield summary.attributes[state].at + COUNTS_FRESH_MS + 1
    if summary.numbers["used_up"]:
        yield summary.last_received_at + RECEIVING_MS + 1
    if c.judged_by_counts:
        # The status by the counts of the last minutes (see `queue_status`): it is ok while nothing was visible at one of them.
        emptied_at = max((depth.at for depth in summary.depths if not depth.visible), default=0)
        yield from (depth.at + WINDOW_MS + 1 for depth in summary.depths if depth.at >= emptied_at)
        yield max(summary.last_received_at, summary.last_settled_at, e.life_at) + IDLE_MS
        yield max(summary.last_received_at, summary.last_settled_at) + WINDOW_MS + 1
        yield e.backlog_since + WINDOW_MS
        if (overdue := overdue_from(summary)) is not None:
            # It is asked for when the last count has left the window.
            yield max(overdue, summary.depths[-1].at + WINDOW_MS) + 1
    for depth in summary.depths[-2:]:
        if c.basis != "messages":
            # Only lower bounds depend on it.
            yield depth.at + FRESH_BOUND_MS + 1
        yield depth.at + COUNTS_FRESH_MS + 1
    # Which sides report is read from the dense samples: it can change until the last touched message leaves them.
    touched = last_change(c.recent, "touched")
    if touched is not None:
        yield c.recent.times[touched - 1] + DENSE_MS
    if e.group_passed_at:
        yield e.group_passed_at + PASSED_OVER_KEPT_MS + 1
    if (uncovered := uncovered_since(c)) is not None:
        yield uncovered + math.ceil(limits.coverage_s * 1000)
    # An hour after the last event, the whole memory is used instead.
    yield summary.last_event_at + QUIET_MS + 1
    yield silent_from(c)


def _refreshes(c: Context, found: Iterable[SignalKey]) -> Iterator[int]:
    """Yield times at which more may be known of the queue or said of what was found, past ones among them."""
    summary, e = c.summary, c.memory.evidence
    counted = summary.depths[-1].unsettled if summary.depths else c.broker_counts.get("visible", 0)
    if (c.judged_by_counts and (c.tracked or counted)) or any(map(is_timed, found)) or is_overdue(c):
        # Bounds, shares, durations and yesterday's rate change with every sample. Such queues are not all judged in one step.
        yield _soon(c)
    elif c.is_dead_letter_queue and c.tracked and not e.has_counts():
        # How much is known of its sources may change.
        yield _soon(c)
    steady = is_steady(c)
    for depth in summary.depths[-2:]:
        if depth.at > e.counted_at and not (steady and summary.last_event_at <= depth.at):
            yield depth.at + REPORTS_LAG_MS
    if e.visible_at:
        yield e.visible_at + REPORTS_LAG_MS
    for claim in (e.tracked, e.ends, e.sends, e.rows):
        if claim.agreed_since and claim.agreed >= AGREEING_COUNTS:
            yield claim.agreed_since + AGREEMENT_MS
