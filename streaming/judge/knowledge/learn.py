"""One queue's step from new data to knowledge: counts → evidence → basis → depth and ages."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

from streaming.core.reporting.report import AGE_SCOPES
from streaming.core.state.queues import NEVER, Depth
from streaming.core.tracking.retention import LONGEST_UNHEARD_MS
from streaming.judge.broker_counts import (
    COUNT_LAG_MS,
    COUNTS_FRESH_MS,
    EXACT_OLDEST_SYSTEMS,
    EXACT_SYSTEMS,
    overdue_from,
)
from streaming.judge.knowledge.basis import (
    FEWEST_PASSED,
    PASSED_OVER_KEPT_MS,
    QUIET_MS,
    BasisReason,
    Signs,
    basis_of,
    for_activemq,
    head_passed_over,
    many_receives_are_unseen,
    many_went_unseen,
    passed_over,
    sides,
    with_unseen_moves,
    without_receives,
)
from streaming.judge.knowledge.bounds import send_bound
from streaming.judge.knowledge.compare import compare_count, is_far_below, update_report_delay, update_tracked_at_counts
from streaming.judge.knowledge.evidence import AGREEMENT_MS, REPORTS_LAG_MS
from streaming.judge.knowledge.pauses import pauses_with
from streaming.judge.knowledge.queue import FRESH_BOUND_MS, Age, Knowledge, depth_of, exact_ages, least_ages, unheard_from
from streaming.judge.knowledge.redrives import redriven_at
from streaming.judge.knowledge.standstill import restart_standstill, update_backlog, update_consumer_activity, update_standstill
from streaming.judge.knowledge.unseen_moves import unseen_moves
from streaming.judge.knowledge.unseen_receives import in_flight_is_known, receives_are_unseen
from streaming.judge.knowledge.visible_counts import compare_visible_count
from streaming.judge.knowledge.windows import acknowledgements_are_unseen, every_end_is_reported

if TYPE_CHECKING:
    from streaming.judge.context import Context

Waiting = Literal["believed", "uncounted", "contradicted"]
"""What the latest count says of messages that seem to wait: enough, it is older than they are, or it does not show them."""

COVERAGE_OFF = "coverage"
"""The condition that the coverage is off, as the evaluation before remembered it."""

_counted_at = attrgetter("at")

MOST_DOUBTFUL = 3
"""More waiting messages than this were hardly all received by consumers that do not report, if others do."""


def learn(c: Context) -> Knowledge:
    """Apply the counts that arrived since the last step, and return what is known about the queue."""
    evidence, summary = c.memory.evidence, c.summary
    latest = summary.depths[-1] if summary.depths else None
    left_out = _left_out(c)
    _apply_counts(c, latest, left_out)
    seen = sides(c.past if c.now - summary.last_event_at > QUIET_MS else c.recent, c.now)
    signs = Signs(
        seen._replace(ends=False) if acknowledgements_are_unseen(c) else seen,
        counts_fresh=_counts_are_fresh(c, latest),
        messages_seen=summary.messages_seen,
        passed_over=_passed_over(c, latest) or (latest is not None and is_far_below(evidence, latest, c.tracked, c.recent)),
        went_unseen=(c.ordered and many_went_unseen(c)) or many_receives_are_unseen(c),
        left_out=left_out,
        shown_again=c.memory.basis == "messages"
        or evidence.agreed_with_consumers(
            last_received_at=summary.last_received_at, last_settled_at=summary.last_settled_at, now=c.now
        ),
        stands=c.memory.basis == "messages" or evidence.stands_for_ms(c.now) >= AGREEMENT_MS,
        dead_letters=c.is_dead_letter_queue,
        unseen_moves=unseen_moves(c) if c.is_dead_letter_queue or evidence.tracked.contradicted_at else "",
        coverage_ratio=_lasting_coverage(c),
    )
    reason = basis_of(evidence, signs, c.name.queue, c.now)
    if reason.basis == "messages" and (source := _source_seen_in_part(c)):
        reason = with_unseen_moves(source)
    if receives_are_unseen(summary):
        reason = without_receives(reason, c.name.queue)
    if c.name.system == "activemq":
        reason = for_activemq(reason)
    if reason.basis != c.memory.basis:
        c.memory.basis, c.memory.basis_since = reason.basis, c.now
    waiting = _waiting(c, latest)
    messages = depth_of(reason, evidence, summary, c.broker_counts, c.recent, doubtful=waiting == "contradicted")
    # Without counts there is nothing to contradict what is tracked, so it is published as a lower bound.
    tracked = reason.basis == "messages" or (summary.messages_seen and "visible" not in summary.attributes)
    if tracked:
        ages = _tracked_ages(c, reason, latest, waiting)
    else:
        ages = least_ages(
            evidence,
            summary,
            c.past,
            latest,
            c.now,
            ends_reported=every_end_is_reported(c.recent, c.visibility_ms),
            ends_missing=not signs.sides.ends,
            retention_ms=c.retention_ms,
        )
    known = in_flight_is_known(summary, evidence)
    if not known and "visible" in ages:
        visible = _visible_of_unseen_receives(c, latest, ages.pop("visible"), tracked=tracked)
        if visible is not None:
            ages["visible"] = visible
    ends = signs.sides.ends
    return Knowledge(
        reason,
        messages,
        ages,
        in_flight_is_known=known,
        # A consumer that does not report may have finished what came back to one that does.
        groups_are_known=ends and (tracked or (reason.basis == "consumers" and evidence.ends.holds(c.now))),
        waiting_is_known=tracked,
        holds_are_known=ends,
    )


def _source_seen_in_part(c: Context) -> str:
    """Return the queue from which messages may have moved to this dead-letter queue unseen: no count shows them. Empty: none."""
    if not c.is_dead_letter_queue or c.memory.evidence.has_counts() or c.sources is None:
        return ""
    return c.sources.seen_in_part(c.name)


def _counts_are_fresh(c: Context, latest: Depth | None) -> bool:
    """Whether the latest count is less than ten minutes old, or its next one is not overdue."""
    if c.broker_counts:
        return True
    return latest is not None and c.now <= max(latest.at + COUNTS_FRESH_MS, overdue_from(c.summary) or 0)


def _apply_counts(c: Context, latest: Depth | None, left_out: bool) -> None:
    """Apply the counts that arrived since the last step to the evidence."""
    evidence, summary = c.memory.evidence, c.summary
    last_activity_at = max(summary.last_received_at, summary.last_settled_at)
    update_report_delay(evidence, c.now, last_activity_at)
    update_tracked_at_counts(evidence, summary.tracked_at_counts, summary.depths)
    # Most queues have no new count: those that were seen and compared before are passed over.
    applied = bisect_right(summary.depths, min(evidence.seen_at, evidence.counted_at), key=_counted_at)
    for i, depth in enumerate(summary.depths[applied:], applied):
        if evidence.seen_at < depth.at <= c.now:
            _apply_activity(c, summary.depths[:i], depth, last_activity_at)
            if depth.unsettled > c.tracked:
                evidence.unreported_at = depth.at
        if evidence.counted_at < depth.at <= c.now - REPORTS_LAG_MS:
            compare_count(evidence, summary.depths[:i], depth, c.recent)
            update_standstill(evidence, depth, c.recent)
            if left_out:
                # Sums that lack what was left out would contradict long after it has gone.
                evidence.drop_sums()
            # Repeat this for the next count: an unchanged queue may not be judged again until it arrives.
            update_report_delay(evidence, c.now, last_activity_at)
    if evidence.visible_at and evidence.visible_at <= c.now - REPORTS_LAG_MS:
        compare_visible_count(evidence, c.recent, visible_is_known=_visible_is_known(c))
    reported_at, reported = summary.attributes.get("visible", (0, None))
    if isinstance(reported, int) and evidence.backlog_at < reported_at <= c.now and (latest is None or latest.at < reported_at):
        update_backlog(
            evidence,
            reported_at,
            reported - summary.numbers["delayed"],
            active_at=last_activity_at,
            oldest_at=_oldest_at(c, reported_at),
            retention_ms=c.retention_ms,
            paused=c.paused,
        )
        if reported > c.tracked:
            evidence.unreported_at = reported_at
        if not evidence.visible_at:
            # Where polls are more frequent than reports are prompt, some counts are left out.
            evidence.visible_at, evidence.visible_then = reported_at, reported
            if reported_at <= c.now - REPORTS_LAG_MS:
                compare_visible_count(evidence, c.recent, visible_is_known=_visible_is_known(c))


def _lasting_coverage(c: Context) -> float | None:
    """Return the coverage if it has been off for as long as TelemetryPartial takes, None otherwise."""
    since = c.memory.since.get(COVERAGE_OFF, c.now)
    return c.coverage_ratio if c.now - since >= c.thresholds.coverage_s * 1000 else None


def _visible_is_known(c: Context) -> bool:
    """Whether messages that are tracked as visible must be in a count of visible messages.

    Where the visibility timeout is only assumed, a received message may be in flight longer. Cloudflare counts it all the same.
    """
    if c.visibility_is_known or c.visibility_ms is None or c.name.system == "cloudflare_queues":
        return True
    return c.summary.numbers["oldest_received_visible"] >= NEVER


def _oldest_at(c: Context, counted_at: int) -> int:
    """Return when the oldest message was sent, as the broker reports with its count of this time; 0 where it does not."""
    at, oldest = c.summary.attributes.get("oldest_sent_at", (0, None))
    return oldest if at == counted_at and isinstance(oldest, int) else 0


def _apply_activity(c: Context, before: list[Depth], depth: Depth, active_at: int) -> None:
    """Apply what one count shows of the consumers. `active_at`: when the latest reported delivery or end was."""
    memory, evidence = c.memory, c.memory.evidence
    stood_since, backlog = max(evidence.frozen_since, memory.paused_at if evidence.frozen_since else 0), evidence.frozen_most
    if 0 < evidence.frozen_since < redriven_at(c.summary):
        # As many as it moved may have come back since the previous count.
        active_at = depth.at
    update_consumer_activity(
        evidence,
        before,
        depth,
        c.now,
        active_at=active_at,
        oldest_at=_oldest_at(c, depth.at),
        oldest_error_ms=0 if c.name.system in EXACT_OLDEST_SYSTEMS else COUNT_LAG_MS,
        exact=c.name.system in EXACT_SYSTEMS,
        retention_ms=c.retention_ms,
    )
    # Sends that are reported later can only show more.
    restart_standstill(evidence, depth, c.recent)
    if c.paused:
        memory.paused_at = depth.at
    elif not evidence.frozen_since:
        memory.pauses = pauses_with(memory.pauses, depth, stood_since, backlog, int(c.thresholds.stalled_s * 1000))


def _waiting(c: Context, latest: Depth | None) -> Waiting:
    """Return what the latest count says of the messages that seem to wait.

    In a quiet queue nearly all counts are zero, and would be if a consumer that does not report received these messages. If many
    wait, the consumers that report would have received some; in a busy queue it takes messages that were passed over.
    """
    waiting, since = c.summary.numbers["visible"], c.summary.oldest[AGE_SCOPES.index("visible")]
    if latest is None or not 0 < waiting <= MOST_DOUBTFUL or c.memory.evidence.agrees_on_messages():
        return "believed"
    if c.recent.change("touched", since) > FEWEST_PASSED:
        return "believed"
    if latest.at <= since:
        return "uncounted"
    return "believed" if latest.visible else "contradicted"


def _tracked_ages(c: Context, reason: BasisReason, latest: Depth | None, waiting: Waiting) -> dict[str, Age]:
    """Return the ages of the tracked messages; those that the latest count contradicts have none."""
    summary = c.summary
    ages = exact_ages(summary, c.visibility_ms or 0, c.now)
    if waiting != "believed":
        received = {summary.numbers[name] for name in ("oldest_received", "oldest_held", "oldest_received_visible")}
        ages = {
            scope: age if age.since_ms in received else Age(age.since_ms, False)
            for scope, age in ages.items()
            if waiting != "contradicted" or age.since_ms in received
        }
    unheard = unheard_from(summary)
    heard = unheard is None or c.now <= unheard
    sure = reason.basis == "messages" and c.memory.evidence.is_sure(c.now) and heard
    # A count that may be late and one that shows an unseen consumer look the same until a minute has passed.
    none_at = latest.at if latest is not None and not latest.unsettled else 0
    return {scope: age if sure and age.since_ms >= none_at else Age(age.since_ms, False) for scope, age in ages.items()}


def _visible_of_unseen_receives(c: Context, latest: Depth | None, age: Age, *, tracked: bool) -> Age | None:
    """Return what is known of the age of the oldest visible message where no receive is reported.

    `age`, if it is that of a tracked message, may be of one in flight: it counts while nothing is in flight, and where there are
    no counts. Otherwise those in flight may be the oldest, and the visible ones are at least as old as if they were sent last.
    """
    if "visible" not in c.summary.attributes:
        return Age(age.since_ms, False)
    evidence = c.memory.evidence
    if c.broker_counts.get("visible") == 0:
        # What seems to wait is in flight.
        return None
    if not tracked or evidence.frozen_since:
        return age
    if latest is None:
        return Age(age.since_ms, False)
    if c.now - latest.at > FRESH_BOUND_MS:
        return None
    exact = c.name.system in EXACT_SYSTEMS or evidence.counts_are_exact()
    since = send_bound(c.past, latest.visible, max(int(c.past.at[0]), evidence.sends.agreed_since), exact=exact)
    return None if since is None else Age(max(since, age.since_ms), False)


def _left_out(c: Context) -> bool:
    """Whether messages that were left out may still be in the queue: they have not expired, and no counts agreed since."""
    at, tracked = c.summary.left_out_at, c.memory.evidence.tracked
    if not at or c.now - at > min(c.retention_ms, LONGEST_UNHEARD_MS):
        return False
    return not (tracked.agreed_since > at and tracked.is_long(c.now))


def _passed_over(c: Context, latest: Depth | None) -> bool:
    """Whether messages that seem to wait were passed over, as if an unseen consumer had received them."""
    # Collectors report promptly, so only deliveries and ends show how late reports are.
    late_ms = c.now - max(c.summary.last_received_at, c.summary.last_settled_at)
    if not c.ordered:
        free_at = min(c.summary.numbers["visible_since"], c.now)
        return passed_over(c.recent, c.summary.numbers["oldest_received_visible"], late_ms, free_at)
    evidence, ordered = c.memory.evidence, c.summary.ordered_facts
    # A group may really be stuck while others flow: then the counts grow with it.
    if ordered is not None and (
        # Order within a group is strict, so an unseen consumer received these.
        ordered.overtaken or (evidence.counts_are_below() and head_passed_over(c.recent, ordered, latest, late_ms))
    ):
        evidence.group_passed_at = c.now
    return c.now - evidence.group_passed_at <= PASSED_OVER_KEPT_MS
