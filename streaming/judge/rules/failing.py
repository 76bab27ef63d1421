"""Signals about deliveries that come to nothing: a broken consumer, and work that outlasts its visibility window."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from streaming.core.queues import hold_quantile_ms
from streaming.core.report import ConsumerResults
from streaming.judge.context import Context, duration, plural, seconds
from streaming.judge.signals import Finding

QUICK_HALF_MS = 30_000
QUICK_RATIO = 0.75
QUICK_DELIVERIES = 10
"""A clear case is called before the long window shows it: two halves of a minute, each with ten ended deliveries, three quarters
of which failed. One such half alone is what a deploy leaves behind that takes its consumers away for a moment."""

MARK_EVERY_MS = 30_000
MARKS_KEPT_MS = 330_000
MARKED_FROM_FAILURES = 1
HYSTERESIS = 0.8
"""It ends when the share falls below this part of the limit: a queue that is half broken must not begin anew every minute."""
CULPRIT_DELIVERIES = 10
OTHERS_DELIVERIES = 5
CULPRIT_RATIO = 0.5
OTHERS_RATIO = 0.1


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How deliveries ended in a stretch of time."""

    failed: int
    finished: int

    @property
    def ended(self) -> int:
        return self.failed + self.finished

    @property
    def failed_ratio(self) -> float:
        """Part of the ended deliveries that ended without a settlement; 0 when none ended."""
        return self.failed / self.ended if self.ended > 0 else 0.0


def outcomes(c: Context, window_ms: int, until_ms: int = 0) -> Outcomes:
    """The deliveries that ended from `window_ms` ago to `until_ms` ago."""
    first = max(c.recent.last_before(c.now - window_ms), 0)
    last = c.recent.last_before(c.now - until_ms)
    if last < 0:
        return Outcomes(0, 0)
    failed, deleted = c.recent["failed"], c.recent["deleted"]
    return Outcomes(max(int(failed[last] - failed[first]), 0), max(int(deleted[last] - deleted[first]), 0))


def is_failing(c: Context) -> bool:
    """At least half of the deliveries that ended in 5 min (20 or more) ended without a settlement, or clearly more of late."""
    if c.is_dead_letter_queue or not len(c.recent) or not c.facts.total("failed"):
        return False
    limits = c.thresholds
    whole = outcomes(c, int(limits.failing_window_s * 1000))
    ratio = limits.failing_ratio * (HYSTERESIS if c.firing_here("QueueFailing") else 1)
    if whole.ended >= limits.failing_min_deliveries and whole.failed_ratio >= ratio:
        return True
    halves = outcomes(c, 2 * QUICK_HALF_MS, QUICK_HALF_MS), outcomes(c, QUICK_HALF_MS)
    enough = max(QUICK_DELIVERIES, limits.failing_min_deliveries // 2)
    quick = max(QUICK_RATIO, limits.failing_ratio)
    return all(half.ended >= enough and half.failed_ratio >= quick for half in halves)


def queue_failing(c: Context) -> Iterator[Finding]:
    """The consumer is broken, not a message: of the deliveries that ended, at least half ended without a settlement."""
    window_ms = int(c.thresholds.failing_window_s * 1000)
    whole = outcomes(c, window_ms)
    _mark_consumers(c, whole)
    failing = is_failing(c)
    since = c.memory.holds_since("failing", failing, c.now, _began(c) if failing else None)
    if since is None:
        return
    lately = whole if whole.failed_ratio >= c.thresholds.failing_ratio else outcomes(c, 2 * QUICK_HALF_MS)
    departed, deleted = c.recent.change("departed", c.now - window_ms), c.recent.change("deleted", c.now - window_ms)
    span_ms = max(c.now - max(int(c.recent.at[0]), c.now - window_ms), 60_000)
    lost_per_hour = round(max(departed - deleted, 0) * 3_600_000 / span_ms)
    evidence: dict[str, Any] = {
        "failed_ratio": round(lately.failed_ratio, 3),
        "deliveries": lately.ended,
        "failed_deliveries": lately.failed,
        "window_s": seconds(window_ms if lately is whole else 2 * QUICK_HALF_MS),
        "failing_since": since,
        "lost_or_dead_lettered_per_hour": lost_per_hour,
    }
    if c.facts.numbers["lost_at_receives"]:
        evidence["leave_at_receive_count"] = c.facts.numbers["lost_at_receives"]
    culprit = _culprit(c)
    evidence |= culprit
    evidence["summary"] = _failing_sentence(c, lately, since, evidence)
    yield c.finding("QueueFailing", "critical", since, evidence)


def _failing_sentence(c: Context, lately: Outcomes, since: int, evidence: dict[str, Any]) -> str:
    who = "Its consumers fail"
    if "consumer" in evidence:
        who = (
            f"Consumer {evidence['consumer']} fails {evidence['consumer_failed_ratio']:.0%} of its deliveries, "
            f"the others {evidence['others_failed_ratio']:.0%}: look at that host"
        )
    leave = ""
    if evidence["lost_or_dead_lettered_per_hour"]:
        leave = f"; about {evidence['lost_or_dead_lettered_per_hour']:,} messages an hour are dead-lettered or lost"
    return (
        f"{lately.failed} of {plural(lately.ended, 'delivery').replace('deliverys', 'deliveries')} of {c.name.queue} that ended "
        f"({lately.failed_ratio:.0%}) ended without a settlement, since {duration(c.now - since)}. {who}{leave}."
    )


def _began(c: Context) -> int:
    """Since when deliveries fail: the last settlement, where nothing was settled after it; else the first failure remembered."""
    failed, deleted = c.recent["failed"], c.recent["deleted"]
    if len(c.recent) < 2:
        return c.now
    finishing = np.flatnonzero(np.diff(deleted) > 0)
    failing = np.flatnonzero(np.diff(failed) > 0)
    if not len(failing):
        return c.now
    first_failure = int(c.recent.at[failing[0]])
    if len(finishing) and failing[-1] > finishing[-1]:
        return max(int(c.recent.at[finishing[-1] + 1]), first_failure)
    return first_failure


def _mark_consumers(c: Context, whole: Outcomes) -> None:
    """Remember how each consumer's deliveries had ended, while some fail."""
    marks = c.memory.consumer_marks
    if whole.failed < MARKED_FROM_FAILURES or not c.facts.consumer_results:
        marks.clear()
        return
    if not marks or c.now - marks[-1][0] >= MARK_EVERY_MS:
        marks.append((c.now, dict(c.facts.consumer_results)))
    while len(marks) > 1 and marks[1][0] <= c.now - MARKS_KEPT_MS:
        marks.pop(0)


def _culprit(c: Context) -> dict[str, Any]:
    """Evidence about one consumer that fails while the others do not; empty when there is no such."""
    marks = c.memory.consumer_marks
    if not marks:
        return {}
    before = marks[0][1]
    none = ConsumerResults(0, 0)
    changed = {}
    for consumer, results in c.facts.consumer_results.items():
        known = before.get(consumer, none)
        outcome = Outcomes(max(results.failed - known.failed, 0), max(results.finished - known.finished, 0))
        if outcome.ended:
            changed[consumer] = outcome
    bad = {name: o for name, o in changed.items() if o.ended >= CULPRIT_DELIVERIES and o.failed_ratio >= CULPRIT_RATIO}
    others = [o for name, o in changed.items() if name not in bad]
    rest = Outcomes(sum(o.failed for o in others), sum(o.finished for o in others))
    if len(bad) != 1 or rest.ended < OTHERS_DELIVERIES or rest.failed_ratio >= OTHERS_RATIO:
        return {}
    ((name, worst),) = bad.items()
    return {
        "consumer": name,
        "consumer_failed_ratio": round(worst.failed_ratio, 3),
        "others_failed_ratio": round(rest.failed_ratio, 3),
        "other_consumers": len(others),
    }


def window_too_short(c: Context) -> Iterator[Finding]:
    """In 15 min at least 2 % of the deliveries (5 or more) outlived their visibility window while still being worked on."""
    limits = c.thresholds
    if not c.facts.total("outlived") or c.visibility_ms is None:
        return
    since_ms = c.now - int(limits.short_window_s * 1000)
    outlived, received = c.past.change("outlived", since_ms), c.past.change("received", since_ms)
    short = outlived >= limits.short_window_min_deliveries and outlived >= limits.short_window_ratio * received > 0
    since = c.memory.holds_since("window_too_short", short, c.now)
    if since is None:
        return
    slowest = hold_quantile_ms(c.memory.holds, 0.95) or c.visibility_ms
    fits_s = math.ceil(max(1.5 * slowest, 2 * c.visibility_ms) / 10_000) * 10
    evidence = {
        "outlived_deliveries": outlived,
        "deliveries": received,
        "outlived_ratio": round(outlived / received, 3),
        "visibility_timeout_s": c.visibility_ms / 1000,
        "work_p95_s": seconds(slowest),
        "timeout_that_fits_s": fits_s,
        "summary": (
            f"{outlived} of {received} deliveries of {c.name.queue} in {duration(c.now - since_ms)} ({outlived / received:.0%}) "
            f"outlived their visibility window of {duration(c.visibility_ms)} while still being worked on: those messages are "
            f"worked on twice. Raise the visibility timeout to {fits_s} s or more, or extend it while working."
        ),
    }
    yield c.finding("WindowTooShort", "warning", since, evidence)
