"""When a queue must be judged again though nothing of it changes: the earliest time at which something else may be said of it.

A time that is too early costs a look; one that is too late would be wrong. What cannot be foreseen cheaply is looked at in
every step: whatever fires or is about to, whatever a sliding window holds of failures, and backlogs that are only counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from streaming.core.state.queues import NEVER
from streaming.judge import measures
from streaming.judge.context import BROKER_COUNTS_FRESH_MS, Context
from streaming.judge.folding import FOLDED_AFTER_MS
from streaming.judge.history import DENSE_MS
from streaming.judge.knowledge.basis import COUNTS_FRESH_MS, QUIET_MS
from streaming.judge.knowledge.evidence import AGREEING_COUNTS, AGREEMENT_MS, REPORTS_LAG_MS
from streaming.judge.knowledge.queue import FRESH_BOUND_MS, STATES
from streaming.judge.rules.queues import scheduled_ms, stalled_since
from streaming.judge.rules.traffic import silent_from
from streaming.judge.snapshot import QueueStatus
from streaming.judge.status import WINDOW_MS

_STANDING = frozenset({"ok", "stale", "unknown"})
"""Statuses that nothing but an arrival, or one of the moments below, ends."""

_LASTING = frozenset({"backlog"})
"""Conditions that hold without anything to be said."""


def again_at(c: Context, status: QueueStatus, time_to_drain_s: float | None, *, found: bool) -> int:
    """The earliest time (epoch milliseconds) at which this queue must be judged again; `c.now`: in every step. `found`: a rule
    found something."""
    if found or status not in _STANDING or time_to_drain_s is not None or _is_under_way(c) or _may_slide(c):
        return c.now
    return min((at for at in _moments(c) if at > c.now), default=NEVER)


def _is_under_way(c: Context) -> bool:
    """Whether something fires, or is remembered that may lead to it."""
    m, counted = c.memory, c.memory.counted_arrivals
    return bool(
        c.firing
        or c.arrivals
        or c.facts.losses
        or c.facts.consumer_states
        or c.facts.messages.get("held")
        or (m.failed_at and c.now - m.failed_at <= FOLDED_AFTER_MS)
        or m.consumer_marks
        or m.noisy
        or m.strategies
        or not m.since.keys() <= _LASTING
        or counted.unexplained
        or counted.shown
    )


def _may_slide(c: Context) -> bool:
    """Whether a window that moves on may show something else, or only the broker's counts tell of a backlog."""
    counted = c.facts.depths[-1].unsettled if c.facts.depths else c.broker_counts.get("visible", 0)
    if c.basis != "messages" and (c.tracked or counted):
        return True
    e = c.memory.evidence
    if c.facts.numbers["visible"] and e.seen_at and not e.tracked.is_long(c.now):
        # At first it is open whether what seems to wait was passed over.
        return True
    first, last = c.recent.values[0], c.recent.values[-1]
    columns = c.recent.columns("failed", "retried", "outlived", "touched_unsent")
    if (first[columns] != last[columns]).any():
        return True
    return bool(c.recent.since(c.now - WINDOW_MS)["unsettled"].max(initial=0) > c.tracked)


def _moments(c: Context) -> Iterator[int]:
    """Times at which something may change, past ones among them."""
    facts, e, limits = c.facts, c.memory.evidence, c.thresholds
    if facts.numbers["in_flight"]:
        yield facts.numbers["held_since"] + int(measures.hold(0, 0, facts, c.settings).limit) + 1
        slow_ms = int(
            measures.slow_hold(0, 0, c.median_hold_ms, int(limits.slow_hold_min_s * 1000), limits.slow_hold_factor).limit
        )
        yield from (held.since + slow_ms + extra for held in facts.consumers for extra in (0, 1))
    if facts.numbers["dead_letters"]:
        yield facts.numbers["expires_at"] - int(measures.expiry(0, 0, facts, c.settings).limit) + 1
    stalled = stalled_since(c)
    if stalled is not None:
        waits = (measures.stall(0, 0, "messages", limits), measures.stall(0, 0, "counts", limits))
        for wait in waits:
            yield stalled + math.ceil(wait.limit)
        if c.now >= stalled + min(wait.limit for wait in waits):
            yield stalled + scheduled_ms(c)
    told = facts.attributes.get("visible")
    if told is not None:
        yield max(told[0], facts.last_event_at) + int(limits.telemetry_stale_s * 1000)
    for state in STATES:
        if state in facts.attributes:
            yield facts.attributes[state][0] + BROKER_COUNTS_FRESH_MS + 1
    for depth in facts.depths[-2:]:
        yield depth.at + FRESH_BOUND_MS + 1
        yield depth.at + COUNTS_FRESH_MS + 1
        if depth.at > e.counted_at:
            yield depth.at + REPORTS_LAG_MS
    for claim in (e.tracked, e.ends, e.sends, e.rows):
        if claim.agreed_since and claim.agreed >= AGREEING_COUNTS:
            yield claim.agreed_since + AGREEMENT_MS
    # Which sides report is seen in the dense stretch of samples: until what was touched last leaves it.
    touched = np.flatnonzero(np.diff(c.recent["touched"]))
    if len(touched):
        yield int(c.recent.at[touched[-1]]) + DENSE_MS
    # An hour after the last event all that is remembered decides instead.
    yield facts.last_event_at + QUIET_MS + 1
    yield silent_from(c)
