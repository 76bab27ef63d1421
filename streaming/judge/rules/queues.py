"""Signals about a queue as a whole: stalled, retrying in storms."""

from __future__ import annotations

from collections.abc import Iterator

from streaming.judge.context import Context, duration, plural, seconds
from streaming.judge.signals import Finding


def queue_stalled(c: Context) -> Iterator[Finding]:
    """A visible backlog, and nothing settled for 5 min: consumers stopped, or receive and never finish."""
    since = stalled_since(c)
    if since is None or c.now - since < c.thresholds.stalled_s * 1000:
        return
    visible = c.facts.numbers["visible"]
    received = c.facts.last_received_at
    reason = "no_progress" if received >= since else "no_receives"
    if reason == "no_receives":
        ago = f"; the last receive was {duration(c.now - received)} ago" if received else ""
        what = f"no consumer received anything{ago}"
    else:
        what = f"consumers receive (last {duration(c.now - received)} ago) but finish nothing"
    evidence = {
        "reason": reason,
        "stalled_s": seconds(c.now - since),
        "visible": visible,
        "in_flight": c.facts.numbers["in_flight"],
        "summary": (
            f"Nothing of {c.name[2]} was settled for {duration(c.now - since)} with {plural(visible, 'message')} visible: {what}."
        ),
    }
    if received:
        evidence["last_received_at"] = received
    if c.facts.last_settled_at:
        evidence["last_settled_at"] = c.facts.last_settled_at
    yield c.finding("QueueStalled", "critical", since, evidence)


def stalled_since(c: Context) -> int | None:
    """Since when there has been a visible backlog of which nothing was settled; None where there is no such backlog.

    A dead-letter queue is not expected to be worked on, a paused queue must not be.
    """
    waiting = c.facts.numbers["visible"] > 0 and not c.is_dead_letter_queue and not c.paused
    backlog = c.memory.holds_since("backlog", waiting, c.now, c.facts.numbers["visible_since"])
    return None if backlog is None else max(backlog, c.facts.last_settled_at)


def batch_retry_storm(c: Context) -> Iterator[Finding]:
    """At least half of the deliveries of the last 5 min are redeliveries of messages out of failed batches."""
    window_ms = int(c.thresholds.retry_storm_window_s * 1000)
    before = c.memory.sample_before(c.now - window_ms)
    received, retried = c.facts.total("received"), c.facts.total("retried")
    if before is not None and before.at <= c.now - window_ms:
        received, retried = received - before.received, retried - before.retried
    storm = received >= c.thresholds.retry_storm_min_deliveries and retried >= c.thresholds.retry_storm_ratio * received > 0
    since = c.memory.holds_since("retry_storm", storm, c.now)
    if since is None:
        return
    evidence = {
        "deliveries": received,
        "redeliveries_from_failed_batches": retried,
        "wasted_ratio": round(retried / received, 3),
        "window_s": seconds(window_ms),
        "summary": (
            f"{retried} of {received} deliveries of {c.name[2]} in {duration(window_ms)} "
            f"({retried / received:.0%}) were redeliveries of messages from failed batches."
        ),
    }
    yield c.finding("BatchRetryStorm", "warning", since, evidence)
