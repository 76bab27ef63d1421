"""One queue's step from what arrived to what may be said of it: counts → evidence → basis → depth and ages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.core.state.queues import NEVER
from streaming.judge.knowledge.basis import COUNTS_FRESH_MS, QUIET_MS, basis_of, passed_over, sides
from streaming.judge.knowledge.evidence import REPORTS_LAG_MS, compare_count, see_backlog, see_life
from streaming.judge.knowledge.queue import Age, Knowledge, depth_of, exact_ages, least_ages

if TYPE_CHECKING:
    from streaming.judge.context import Context


def learn(c: Context) -> Knowledge:
    """Take in the counts that came since the last step, and say what is known of the queue."""
    evidence, facts = c.memory.evidence, c.facts
    for i, depth in enumerate(facts.depths):
        if evidence.seen_at < depth.at <= c.now:
            see_life(evidence, facts.depths[:i], depth, c.visibility_ms or NEVER)
        if evidence.counted_at < depth.at <= c.now - REPORTS_LAG_MS:
            compare_count(evidence, facts.depths[:i], depth, c.recent)
    latest = facts.depths[-1] if facts.depths else None
    told_at, told = facts.attributes.get("visible", (0, None))
    if isinstance(told, int) and evidence.backlog_at < told_at <= c.now and not (latest is not None and latest.at >= told_at):
        see_backlog(evidence, told_at, told - facts.numbers["delayed"], max(facts.last_received_at, facts.last_settled_at))
    reason = basis_of(
        evidence,
        sides(c.past if c.now - facts.last_event_at > QUIET_MS else c.recent, c.now),
        c.name.queue,
        counts_fresh=bool(c.broker_counts) if latest is None else c.now - latest.at <= COUNTS_FRESH_MS,
        messages_seen=facts.messages_seen,
        # In an ordered queue groups overtake each other.
        passed=not c.ordered and passed_over(c.recent, facts.numbers["oldest_received_visible"]),
        now=c.now,
    )
    if reason.basis != c.memory.basis:
        c.memory.basis, c.memory.basis_since = reason.basis, c.now
    messages = depth_of(reason, evidence, facts, c.broker_counts, c.recent)
    if reason.basis == "messages":
        sure = evidence.is_sure(c.now)
        ages = {scope: Age(age.since_ms, age.exact and sure) for scope, age in exact_ages(facts).items()}
        return Knowledge(reason, messages, ages)
    if facts.messages_seen and "visible" not in facts.attributes:
        # Nobody counts, so nothing says otherwise: what is tracked is published, as a lower bound.
        ages = {scope: Age(age.since_ms, False) for scope, age in exact_ages(facts).items()}
        return Knowledge(reason, messages, ages)
    return Knowledge(reason, messages, least_ages(evidence, facts, c.past, latest, c.now))
