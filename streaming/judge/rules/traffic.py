"""Signals about the flow of a queue: it falls behind its limit, or no messages come any more."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from streaming.core.state.queues import NEVER
from streaming.judge import measures
from streaming.judge.context import Context, duration, seconds
from streaming.judge.rules.failing import is_failing
from streaming.judge.rules.queues import stalled_since
from streaming.judge.signals import Finding
from streaming.judge.status import WINDOW_MS, is_lagging
from streaming.judge.window import Ints

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
SLOT_MS = 600_000
FEWEST_SLOTS = 3
"""A queue has steady traffic when messages came in each ten minutes of the last hour, or of half an hour at least."""
CHANGED_FACTOR = 1.5
LATELY_MS = 120_000
FASTEST_GROWTH = 1.2
GONE_NAMED = 5


def queue_lagging(c: Context) -> Iterator[Finding]:
    """Lagging for 2 min, and the oldest visible message passes the queue's limit within 30 min at this rate, or has passed it."""
    lagging = is_lagging(c) and not is_failing(c)
    since = c.memory.holds_since("lagging", lagging, c.now)
    if since is None or c.now - since < c.thresholds.lagging_for_s * 1000:
        return
    age = c.knowledge.ages.get("visible")
    if age is None:
        return
    late = measures.lag(age.since_ms, c.now, c.thresholds)
    limit_ms, age_ms = late.limit, late.value
    growth, low, high = _growth(c)
    passes_ms = 0.0 if age_ms >= limit_ms else (limit_ms - age_ms) / growth if growth > 0 else float("inf")
    rate_in, rate_out = _rates(c)
    if passes_ms > c.thresholds.lag_forecast_s * 1000 or _drains_in_time(c, rate_out, limit_ms - age_ms):
        return
    day_later_ms = age_ms + growth * DAY_MS
    lost_soon = day_later_ms >= c.retention_ms / 2
    evidence: dict[str, Any] = {
        "oldest_visible_s": seconds(age_ms),
        "exact": age.exact,
        "limit_s": c.thresholds.lag_limit_s,
        "passes_limit_in_s": seconds(passes_ms),
        "visible": c.knowledge.depth.get("visible", c.summary.numbers["visible"]),
        "age_growth": round(growth, 3),
    }
    if low > 0 and passes_ms:
        evidence |= {
            "passes_limit_in_s_earliest": seconds((limit_ms - age_ms) / high),
            "passes_limit_in_s_latest": seconds((limit_ms - age_ms) / low),
        }
    if rate_in is not None:
        evidence["rate_in_per_s"] = round(rate_in, 3)
    if rate_out is not None:
        evidence["rate_out_per_s"] = round(rate_out, 3)
    cause = _cause(c)
    evidence |= cause
    least = "" if age.exact else "at least "
    when = (
        f"has passed its limit of {duration(limit_ms)}"
        if not passes_ms
        else f"passes its limit of {duration(limit_ms)} in {duration(passes_ms)} at this rate"
    )
    evidence["summary"] = (
        f"{c.name.queue} falls behind: its oldest visible message is {least}{duration(age_ms)} old and {when}."
        + (f" {cause['cause'][0].upper()}{cause['cause'][1:]}." if cause else "")
    )
    yield c.finding("QueueLagging", "critical" if lost_soon else "warning", since, evidence)


def _growth(c: Context) -> tuple[float, float, float]:
    """Return the growth of the age of the oldest visible message in seconds per second, over the last five minutes.

    Also returns the minimum and the maximum over its two halves.
    """
    window = c.recent.since(c.now - WINDOW_MS)
    oldest = window["oldest_visible_at"]
    known = np.flatnonzero(oldest > 0)
    if c.basis != "messages" or len(known) < 2:
        return 1.0, 1.0, 1.0
    ages: Ints = window.at[known] - oldest[known]
    at = window.at[known]

    def slope(i: int, j: int) -> float:
        return float(ages[j] - ages[i]) / float(max(at[j] - at[i], 1))

    middle, last = len(known) // 2, len(known) - 1
    halves = [slope(0, middle), slope(middle, last)] if 0 < middle < last else [slope(0, last)]
    least = max(min(halves), 0.0)
    # An age that grows faster than time belongs to an older message that came back: it does not reflect the rates.
    return least if max(halves) > FASTEST_GROWTH else slope(0, last), least, max(halves)


def _rates(c: Context) -> tuple[float | None, float | None]:
    """Return the messages per second that came and went in the last five minutes, as far as they are reported."""
    span_s = (c.now - max(int(c.recent.at[0]), c.now - WINDOW_MS)) / 1000
    if span_s <= 0:
        return None, None
    came = c.recent.change("sent", c.now - WINDOW_MS) / span_s if c.basis in ("messages", "producers") else None
    went = c.recent.change("departed", c.now - WINDOW_MS) / span_s if c.basis in ("messages", "consumers") else None
    return came, went


def _drains_in_time(c: Context, rate_out: float | None, left_ms: float) -> bool:
    """Whether the current backlog drains before the limit, as with a nightly batch, and less comes than goes."""
    visible = c.knowledge.depth.get("visible")
    if not rate_out or visible is None or _still_grows(c):
        return False
    return 0 < visible / rate_out * 1000 < left_ms


def _still_grows(c: Context) -> bool:
    """Whether the backlog grew over the last two minutes."""
    if c.basis == "messages":
        lately = c.recent.since(c.now - LATELY_MS)["unsettled"]
        return len(lately) > 1 and bool(lately[-1] > lately[0])
    counted = [depth.unsettled for depth in c.summary.depths if depth.at >= c.now - LATELY_MS]
    return len(counted) > 1 and counted[-1] > counted[0]


def _cause(c: Context) -> dict[str, Any]:
    """Describe what changed against the hour before: processing takes longer, or more messages come."""
    past = c.past
    split = past.last_before(c.now - WINDOW_MS)
    start = max(past.last_before(c.now - HOUR_MS - WINDOW_MS), 0)
    if split <= start:
        return {}
    work, count, sent = past["work_ms"], past["work_count"], past["sent"]
    recent_n, before_n = int(count[-1] - count[split]), int(count[split] - count[start])
    if recent_n > 0 and before_n > 0:
        takes = float(work[-1] - work[split]) / recent_n
        took = float(work[split] - work[start]) / before_n
        if takes >= CHANGED_FACTOR * took > 0:
            ago = duration(c.now - int(past.at[start]))
            words = f"processing takes {takes / 1000:.2g} s, {took / 1000:.2g} s in the {ago} before"
            return {"processing_s": seconds(takes), "processing_before_s": seconds(took), "cause": words}
    span_s = (past.at[-1] - past.at[split]) / 1000
    before_s = (past.at[split] - past.at[start]) / 1000
    comes, came = (sent[-1] - sent[split]) / max(span_s, 1), (sent[split] - sent[start]) / max(before_s, 1)
    if comes >= CHANGED_FACTOR * came > 0:
        words = f"{comes:.2g} messages a second come, {came:.2g} before"
        return {"rate_in_before_per_s": round(float(came), 3), "cause": words}
    return _gone(c)


def _gone(c: Context) -> dict[str, Any]:
    """Return the consumers that finished messages within the hour and no longer do, while others still do."""
    acks = c.summary.consumer_acks
    if not any(at >= c.now - LATELY_MS for at in acks.values()):
        return {}
    silent = sorted((at, name) for name, at in acks.items() if c.now - HOUR_MS <= at < c.now - LATELY_MS)
    if not silent:
        return {}
    names = ", ".join(name for _, name in silent[-GONE_NAMED:])
    who = f"consumer {names} has" if len(silent) == 1 else f"consumers {names} have"
    words = f"{who} finished nothing for {duration(c.now - silent[-1][0])}"
    return {"silent_consumers": names, "cause": words}


def queue_silent(c: Context) -> Iterator[Finding]:
    """A queue with steady traffic, of which at least 20 messages were due by its own rates, received none."""
    expected = None if c.is_dead_letter_queue or c.paused else _expected(c)
    silence = measures.silence(expected[0], c.now, min(expected[1:]), c.thresholds) if expected is not None else None
    if silence is not None and silence.limit < math.inf:
        c.near["QueueSilent"] = silence
    silent = silence is not None and silence.reached
    since = c.memory.holds_since("silent", silent, c.now, expected[0] if expected else None)
    if since is None or expected is None:
        return
    due = round(min(expected[1:]))
    evidence = {
        "silent_s": seconds(c.now - expected[0]),
        "messages_due": due,
        "last_message_at": expected[0],
        "summary": (
            f"Nothing has come to {c.name.queue} for {duration(c.now - expected[0])}; by its own rate {due} messages were due. "
            "Look at what sends to it."
        ),
    }
    yield c.finding("QueueSilent", "critical" if c.thresholds.silent_pages else "info", since, evidence)


def silent_from(c: Context) -> int:
    """Return the earliest time at which `queue_silent` can fire if no message comes; NEVER where it cannot."""
    if (
        c.is_dead_letter_queue
        or c.paused
        or max(c.summary.total("sent"), c.summary.total("received")) < c.thresholds.silent_messages
    ):
        return NEVER
    expected = _expected(c)
    if expected is None:
        # The last message is too recent, or there is no rate, and there will be none until a message comes.
        came = c.recent["sent" if c.summary.total("sent") else "received"]
        steps = np.flatnonzero(np.diff(came))
        return int(c.recent.at[steps[-1] + 1]) + 60_000 if len(steps) else NEVER
    last_at, due, _ = expected
    if due <= 0:
        return NEVER
    # From then on yesterday's rate decides, step by step.
    return max(last_at + math.ceil(measures.silence(last_at, c.now, due, c.thresholds).limit), c.now + 1)


def _expected(c: Context) -> tuple[int, float, float] | None:
    """Return when the last message came and how many were due since; None for a queue without steady traffic.

    The messages due are computed from the rate of the hour before, and from the same time yesterday.
    """
    if stalled_since(c) is not None and c.summary.total("sent") == 0:
        # Only receives are reported, and there are none: arrivals are unknown.
        return None
    field = "sent" if c.summary.total("sent") else "received"
    if c.recent.change(field, c.now - 60_000) > 0:
        # A message came within the minute: most queues most of the time.
        return None
    past = c.past
    came = past[field]
    steps = np.flatnonzero(np.diff(came) > 0)
    if not len(steps):
        return None
    last_at = int(past.at[steps[-1] + 1])
    if c.now - last_at < 60_000 or past.change("touched_unsent", last_at) > 0:
        # In the second case messages come, but their sends are not reported.
        return None
    start = past.last_before(last_at - HOUR_MS)
    first_at = max(last_at - HOUR_MS, int(past.at[0]))
    slots = (last_at - first_at) // SLOT_MS
    if slots < FEWEST_SLOTS:
        return None
    bounds = [max(past.last_before(last_at - i * SLOT_MS), 0) for i in range(slots + 1)]
    if any(came[later] <= came[earlier] for later, earlier in pairwise(bounds)):
        return None
    rate = (int(came[steps[-1] + 1]) - int(came[max(start, 0)])) / (last_at - first_at)
    due = rate * (c.now - last_at)
    yesterday = due
    if int(past.at[0]) <= last_at - DAY_MS:
        yesterday = float(came[past.last_before(c.now - DAY_MS)] - came[max(past.last_before(last_at - DAY_MS), 0)])
    return last_at, due, yesterday
