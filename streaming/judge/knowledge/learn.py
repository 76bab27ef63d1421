"""One queue's step from new data to knowledge: counts → evidence → basis → depth and ages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.core.reporting.report import AGE_SCOPES, QueueSummary
from streaming.core.state.queues import NEVER, Depth
from streaming.judge.knowledge.basis import (
    COUNTS_FRESH_MS,
    FEWEST_PASSED,
    PASSED_OVER_KEPT_MS,
    QUIET_MS,
    basis_of,
    group_passed_over,
    head_passed_over,
    passed_over,
    sides,
)
from streaming.judge.knowledge.evidence import (
    REPORTS_LAG_MS,
    compare_count,
    is_far_below,
    see_backlog,
    see_lateness,
    see_life,
    see_standstill,
)
from streaming.judge.knowledge.queue import Age, Knowledge, depth_of, exact_ages, least_ages

if TYPE_CHECKING:
    from streaming.judge.context import Context

MOST_DOUBTFUL = 3
"""More waiting messages than this were hardly all received by consumers that do not report, if others do."""


def learn(c: Context) -> Knowledge:
    """Apply the counts that arrived since the last step, and return what is known about the queue."""
    evidence, summary = c.memory.evidence, c.summary
    see_lateness(evidence, c.now, _last_taken_at(c))
    left_out = _left_out(c)
    for i, depth in enumerate(summary.depths):
        if evidence.seen_at < depth.at <= c.now:
            see_life(evidence, summary.depths[:i], depth, c.visibility_ms or NEVER, c.now)
        if evidence.counted_at < depth.at <= c.now - REPORTS_LAG_MS:
            compare_count(evidence, summary.depths[:i], depth, c.recent)
            see_standstill(evidence, depth, c.recent)
            if left_out:
                # Sums that lack what was left out would contradict long after it has gone.
                evidence.drop_sums()
            # Repeat this for the next count: an unchanged queue may not be judged again until it arrives.
            see_lateness(evidence, c.now, _last_taken_at(c))
    latest = summary.depths[-1] if summary.depths else None
    reported_at, reported = summary.attributes.get("visible", (0, None))
    if isinstance(reported, int) and evidence.backlog_at < reported_at <= c.now and (latest is None or latest.at < reported_at):
        see_backlog(
            evidence, reported_at, reported - summary.numbers["delayed"], max(summary.last_received_at, summary.last_settled_at)
        )
    reason = basis_of(
        evidence,
        sides(c.past if c.now - summary.last_event_at > QUIET_MS else c.recent, c.now),
        c.name.queue,
        counts_fresh=bool(c.broker_counts) if latest is None else c.now - latest.at <= COUNTS_FRESH_MS,
        messages_seen=summary.messages_seen,
        passed=_passed_over(c, latest) or (latest is not None and is_far_below(evidence, latest, c.tracked, c.recent)),
        left_out=left_out,
        now=c.now,
    )
    if reason.basis != c.memory.basis:
        c.memory.basis, c.memory.basis_since = reason.basis, c.now
    # Whether an unseen consumer may have taken what seems to wait, for all that the latest count says.
    waits_since = summary.oldest[AGE_SCOPES.index("visible")]
    unconfirmed = latest is not None and _proves_little(c, waits_since) and not (latest.visible and latest.at >= waits_since)
    contradicted = latest is not None and unconfirmed and latest.at >= waits_since
    messages = depth_of(reason, evidence, summary, c.broker_counts, c.recent, doubtful=contradicted)
    uncounted = summary.messages_seen and "visible" not in summary.attributes
    if reason.basis != "messages" and not uncounted:
        return Knowledge(reason, messages, least_ages(evidence, summary, c.past, latest, c.now))
    # Without counts there is nothing to contradict what is tracked, so it is published as a lower bound.
    sure = reason.basis == "messages" and evidence.is_sure(c.now)
    # A count that may be late and one that shows an unseen consumer look the same until a minute has passed.
    none_at = latest.at if latest is not None and not latest.unsettled else 0
    ages = {
        scope: Age(age.since_ms, age.exact and sure and age.since_ms > none_at and not unconfirmed)
        for scope, age in exact_ages(summary, c.visibility_ms or 0, c.now).items()
        if not contradicted or age.since_ms in _received(summary)
    }
    return Knowledge(reason, messages, ages)


def _proves_little(c: Context, waits_since: int) -> bool:
    """Whether the broker's counts and what is tracked would look the same if a consumer does not report.

    That is so in a quiet queue, where nearly all counts are zero. If many messages wait, the consumers that report would have
    received some; in a busy queue it takes messages that were passed over.
    """
    few = c.summary.numbers["visible"] <= MOST_DOUBTFUL and c.recent.change("touched", waits_since) <= FEWEST_PASSED
    return few and not c.memory.evidence.agrees_on_messages()


def _received(summary: QueueSummary) -> set[int]:
    """Return the send times of the oldest messages that were received."""
    return {summary.numbers[name] for name in ("oldest_received", "oldest_held", "oldest_received_visible")}


def _left_out(c: Context) -> bool:
    """Whether messages that were left out may still be in the queue: they have not expired, and no counts agreed since."""
    at, tracked = c.summary.left_out_at, c.memory.evidence.tracked
    if not at or c.now - at > c.retention_ms:
        return False
    return not (tracked.agreed_since > at and tracked.is_long(c.now))


def _passed_over(c: Context, latest: Depth | None) -> bool:
    """Whether messages that seem to wait were passed over, as if an unseen consumer had received them."""
    late_ms = c.now - _last_taken_at(c)
    if not c.ordered:
        return passed_over(c.recent, c.summary.numbers["oldest_received_visible"], late_ms)
    evidence, facts = c.memory.evidence, c.summary.ordered_facts
    # A group may really be stuck while others flow: then the counts grow with it.
    if facts is not None and (
        group_passed_over(facts.oldest) or (evidence.counts_are_below() and head_passed_over(c.recent, facts, latest, late_ms))
    ):
        evidence.group_passed_at = c.now
    return c.now - evidence.group_passed_at <= PASSED_OVER_KEPT_MS


def _last_taken_at(c: Context) -> int:
    """Return the time of the newest reported delivery or end (epoch milliseconds), 0 for none. Collectors report promptly."""
    return max(c.summary.last_received_at, c.summary.last_settled_at)
