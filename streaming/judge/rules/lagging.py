"""The signal about a queue that falls behind its limit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from streaming.core.columns import nonzero
from streaming.judge.conditions.conditions import condition, once
from streaming.judge.context import DAY_MS, HOUR_MS, Context
from streaming.judge.findings import measures
from streaming.judge.findings.signals import Finding
from streaming.judge.findings.words import duration_ms, per_second, plural, seconds, work_time
from streaming.judge.history.window import Ints, Window
from streaming.judge.rules.failing import is_failing
from streaming.judge.rules.groups import standing_groups
from streaming.judge.rules.prefetched import USUAL_FACTOR, passed_over
from streaming.judge.rules.status import WINDOW_MS, is_lagging

CHANGED_FACTOR = 1.5
BUSY_RATIO = 0.1
"""Consumers that process for less of their time than this do not make messages wait by how long they process each."""
STUCK_RATIO = 0.5
"""From this share of the waiting messages on, those of stuck groups are why the queue lags, not the work or the arrivals."""
LATELY_MS = 120_000
FASTEST_GROWTH = 1.2
GONE_NAMED = 5
USUAL_ARRIVALS = 1.2
LESS_DEPARTS = 0.95
"""Rates of five minutes, as shares of the rate before, that are more than chance at a message a second."""


@condition("lagging")
def lagging_since(c: Context) -> int | None:
    """Consumers work, but do not keep up."""
    return c.now if is_lagging(c) and not is_failing(c) else None


class Forecast(NamedTuple):
    """Where the age of a lagging queue's oldest visible message goes. Growth is in seconds of age per second."""

    since: int
    """Since when the queue lags (epoch milliseconds)."""
    age_ms: float
    exact: bool
    """Whether the age is exact, not a lower bound."""
    limit_ms: float
    growth: float
    growth_low: float
    growth_high: float
    """Over the last five minutes, and in the slower and the faster half of them."""
    passes_ms: float
    """Milliseconds until the age passes its limit at this rate: 0 if it has, infinite if it never does."""
    rate_in_per_s: float | None
    rate_out_per_s: float | None
    eased: bool
    """The backlog drains in time, or the limit is passed too late to matter now."""


@once
def _forecast(c: Context) -> Forecast | None:
    """Return None for a queue that does not lag, or not for long, or has no known age."""
    since, age = lagging_since(c), c.knowledge.ages.get("visible")
    if since is None or c.now - since < c.thresholds.lagging_for_s * 1000 or age is None:
        return None
    late = measures.lag(age.since_ms, c.now, c.thresholds)
    left_ms = late.limit - late.value
    growth, low, high = _growth(c)
    passes_ms = 0.0 if left_ms <= 0 else left_ms / growth if growth > 0 else math.inf
    rate_in, rate_out = _rates(c)
    return Forecast(
        since=since,
        age_ms=late.value,
        exact=age.exact,
        limit_ms=late.limit,
        growth=growth,
        growth_low=low,
        growth_high=high,
        passes_ms=passes_ms,
        rate_in_per_s=rate_in,
        rate_out_per_s=rate_out,
        eased=_drains_in_time(c, rate_out, left_ms) or passes_ms > _forecast_ms(c, high),
    )


@condition("lag_eased")
def eased_since(c: Context) -> int | None:
    """The signal fires, and its forecast has eased, or the counts or a lower bound do not show for a moment that it holds."""
    if not c.firing_here("QueueLagging"):
        return None
    lag = _forecast(c)
    if lag is not None:
        return c.now if lag.eased else None
    waiting = c.knowledge.depth.get("visible", 0) > 0
    return c.now if c.basis != "messages" and waiting and not is_failing(c) else None


def queue_lagging(c: Context) -> Iterator[Finding]:
    """Lagging for 2 min, and the oldest visible message passes the queue's limit within 30 min at this rate, or has passed it.

    Within two hours where consumers were lost: see `_lost_consumers`. It ends when the backlog shrinks, or when the forecast has
    been beyond that, or the backlog small enough to drain in time, for five minutes: the age of the oldest visible message jumps
    in a queue without order, and the few messages behind a stuck group grow in number only now and then.
    """
    lag, eased_at = _forecast(c), eased_since(c)
    if eased_at is not None and c.now - eased_at >= WINDOW_MS:
        return
    if lag is None:
        if eased_at is not None:
            yield from c.firing_here("QueueLagging")
        return
    if lag.eased and eased_at is None:
        return
    left_ms, passes_ms = lag.limit_ms - lag.age_ms, lag.passes_ms
    lost_soon = lag.age_ms + lag.growth * DAY_MS >= c.retention_ms / 2
    evidence: dict[str, Any] = {
        "oldest_visible_s": seconds(lag.age_ms),
        "exact": lag.exact,
        "limit_s": c.thresholds.lag_limit_s,
        "visible": c.knowledge.depth.get("visible", c.summary.numbers["visible"]),
        "age_growth": round(lag.growth, 3),
    }
    if passes_ms < math.inf:
        evidence["passes_limit_in_s"] = seconds(passes_ms)
    if lag.growth_low > 0 and passes_ms:
        evidence |= {
            "passes_limit_in_s_earliest": seconds(left_ms / lag.growth_high),
            "passes_limit_in_s_latest": seconds(left_ms / lag.growth_low),
        }
    if lag.rate_in_per_s is not None:
        evidence["rate_in_per_s"] = round(lag.rate_in_per_s, 3)
    if lag.rate_out_per_s is not None:
        evidence["rate_out_per_s"] = round(lag.rate_out_per_s, 3)
    cause = _cause(c)
    evidence |= cause
    least = "" if lag.exact else "at least "
    when = (
        "the backlog does not shrink"
        if passes_ms == math.inf
        else f"has passed its limit of {duration_ms(lag.limit_ms)}"
        if not passes_ms
        else f"passes its limit of {duration_ms(lag.limit_ms)} in {duration_ms(passes_ms)} at this rate"
    )
    evidence["summary"] = (
        f"{c.name.queue} falls behind: its oldest visible message is {least}{duration_ms(lag.age_ms)} old and {when}."
        + (f" {cause['cause'][0].upper()}{cause['cause'][1:]}." if cause else "")
    )
    blamed = [name for _, name in _silent_consumers(c, LATELY_MS)] if "silent_consumers" in cause else []
    yield c.finding("QueueLagging", "critical" if lost_soon else "warning", lag.since, evidence, blamed=blamed)


def _forecast_ms(c: Context, fastest_growth: float) -> float:
    limits = c.thresholds
    # The age of a message that came back says nothing about the rates, so it is not looked at so far ahead.
    lost = fastest_growth <= FASTEST_GROWTH and _lost_consumers(c)
    return (max(limits.lag_forecast_s, limits.lag_forecast_lost_s) if lost else limits.lag_forecast_s) * 1000


def _lost_consumers(c: Context) -> bool:
    """Whether the queue lags because consumers fell silent: no more comes than before, less leaves, and nobody replaced them.

    A deploy that gives consumers new names replaces them, and a burst during a deploy brings more than before: neither counts.
    """
    silent = _silent_consumers(c, WINDOW_MS)
    if not silent or c.basis != "messages":
        return False
    past, silent_at = c.past, silent[-1][0]
    split = past.last_before(silent_at)
    start = max(past.last_before(silent_at - HOUR_MS), 0)
    if split <= start:
        return False
    recent_s, before_s = WINDOW_MS / 1000, (past.at[split] - past.at[start]) / 1000
    left, left_before = past.change("departed", c.now - WINDOW_MS) / recent_s, _grown(past, "departed", start, split) / before_s
    came, came_before = past.change("sent", c.now - WINDOW_MS) / recent_s, _grown(past, "sent", start, split) / before_s
    if left >= LESS_DEPARTS * left_before or came > USUAL_ARRIVALS * came_before:
        return False
    return not _newcomers(c, silent_at)


def _newcomers(c: Context, since: int) -> int:
    """Return how many of the consumers that work may have come since then, and replace others.

    One that finished more than all have finished since was there before.
    """
    departed, results = c.past.change("departed", since), c.summary.consumer_results
    working = [name for name, at in c.summary.consumer_acks.items() if at >= c.now - LATELY_MS]
    return sum(name not in results or results[name].finished <= departed for name in working)


def _grown(window: Window, field: str, start: int, end: int) -> int:
    return window.value(field, end) - window.value(field, start)


def _growth(c: Context) -> tuple[float, float, float]:
    """Return the growth of the age of the oldest visible message in seconds per second, over the last five minutes.

    Also returns the minimum and the maximum over its two halves.
    """
    window = c.recent.since(c.now - WINDOW_MS)
    oldest = window["oldest_visible_at"]
    known = nonzero(oldest > 0)
    if c.basis != "messages" or len(known) < 2:
        return 1.0, 1.0, 1.0
    # Read late, messages seem to wait that were deleted: the time until which events had been read counts.
    at = c.history.read_until(window.at)[known]
    ages: Ints = at - oldest[known]

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
    """Describe why messages wait: for stuck groups, or for what changed against the hour before, the work or the arrivals.

    No such change makes messages wait while all consumers have free prefetch capacity.
    """
    if passed := passed_over(c):
        return _silent_consumer_cause(c) or _selector_mismatch_cause(passed)
    if stuck := _stuck_groups_cause(c):
        return stuck
    past = c.past
    split = past.last_before(c.now - WINDOW_MS)
    start = max(past.last_before(c.now - HOUR_MS - WINDOW_MS), 0)
    if split <= start:
        return {}
    work, count, sent = past["processing_ms"], past["processed"], past["sent"]
    recent_n, before_n = int(count[-1] - count[split]), int(count[split] - count[start])
    if recent_n > 0 and before_n > 0:
        takes = float(work[-1] - work[split]) / recent_n
        took = float(work[split] - work[start]) / before_n
        busy_ratio = float(work[-1] - work[split]) / max(int(past.at[-1] - past.at[split]), 1) / max(_consumers(c), 1)
        if takes >= CHANGED_FACTOR * took > 0 and busy_ratio >= BUSY_RATIO:
            ago = duration_ms(c.now - int(past.at[start]))
            words = f"processing takes {work_time(takes)}, {work_time(took)} in the {ago} before"
            return {"processing_s": round(takes / 1000, 3), "processing_before_s": round(took / 1000, 3), "cause": words}
    span_s = (past.at[-1] - past.at[split]) / 1000
    before_s = (past.at[split] - past.at[start]) / 1000
    comes, came = (sent[-1] - sent[split]) / max(span_s, 1), (sent[split] - sent[start]) / max(before_s, 1)
    if comes >= CHANGED_FACTOR * came > 0:
        words = f"arrivals rose from {per_second(came)} to {per_second(comes)} messages/s"
        return {"rate_in_before_per_s": round(float(came), 3), "cause": words}
    return _silent_consumer_cause(c)


def _consumers(c: Context) -> int:
    """Count the consumers that finished a message in the last five minutes, or hold one."""
    finished = {name for name, at in c.summary.consumer_acks.items() if at >= c.now - WINDOW_MS}
    return len(finished | {held.consumer for held in c.summary.consumers})


def _stuck_groups_cause(c: Context) -> dict[str, Any]:
    """Name the stuck groups if most of the waiting messages are theirs."""
    stuck = [group for group, waits in standing_groups(c) if waits is None]
    visible = c.knowledge.depth.get("visible", c.summary.numbers["visible"])
    if not stuck or not visible:
        return {}
    holds = min(sum(group.group.visible for group in stuck), visible)
    if holds < STUCK_RATIO * visible:
        return {}
    who = f"group {stuck[0].group.name} is stuck and holds" if len(stuck) == 1 else f"{len(stuck)} groups are stuck and hold"
    return {"cause": f"{who} {holds} of {plural(visible, 'waiting message')}"}


def _selector_mismatch_cause(passed: int) -> dict[str, Any]:
    who = f"{plural(passed, 'consumer')} {'has' if passed == 1 else 'have'}"
    words = f"{who} free prefetch capacity, but no selector matches the waiting messages"
    return {"consumers_passed_over": passed, "cause": words}


def _silent_consumer_cause(c: Context) -> dict[str, Any]:
    """Name the consumers that fell silent, unless as many have come: a deploy gives them new names."""
    silent = _silent_consumers(c, LATELY_MS)
    if not silent or _newcomers(c, silent[0][0]) >= len(silent):
        return {}
    names = ", ".join(name for _, name in silent[-GONE_NAMED:])
    who = f"consumer {names} has" if len(silent) == 1 else f"consumers {names} have"
    words = f"{who} finished nothing for {duration_ms(c.now - silent[-1][0])}"
    return {"silent_consumers": names, "cause": words}


def _silent_consumers(c: Context, silent_ms: int) -> list[tuple[int, str]]:
    """Return the consumers that finished messages within the hour and none for `silent_ms`, while others still do.

    Each with the time of its last one (epoch milliseconds), the latest at the end. Consumers whose work takes longer than that
    are not silent while they are at it.
    """
    acks, silent_ms = c.summary.consumer_acks, max(silent_ms, USUAL_FACTOR * (c.long_hold_ms or 0))
    if not any(at >= c.now - LATELY_MS for at in acks.values()):
        return []
    return sorted((at, name) for name, at in acks.items() if c.now - HOUR_MS <= at < c.now - silent_ms)
