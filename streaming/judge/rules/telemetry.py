"""Signals about the telemetry itself: a silent collector, messages that are not seen."""

from __future__ import annotations

from collections.abc import Iterator

from streaming.core.clock import Clock, senders_are_ahead
from streaming.core.reporting.merge import Merged
from streaming.core.settings import Settings
from streaming.judge.conditions.conditions import condition
from streaming.judge.context import DAY_MS, Context
from streaming.judge.findings import measures
from streaming.judge.findings.signals import Finding, SignalKey
from streaming.judge.findings.words import duration_ms, plural, seconds
from streaming.judge.knowledge.learn import COVERAGE_OFF
from streaming.judge.knowledge.signal_requirements import withheld
from streaming.judge.knowledge.unseen_moves import unseen_moves

FORGET_COLLECTOR_MS = DAY_MS
"""A collector silent for a day was removed and is not expected back."""


def telemetry_stale(merged: Merged, now: int, settings: Settings) -> Iterator[Finding]:
    """A collector that has sent a heartbeat has been silent for 2 min."""
    limit_ms = int(settings.defaults.telemetry_stale_s * 1000)
    for collector, last in sorted(merged.collectors.items()):
        silent_ms = now - last
        if not limit_ms <= silent_ms < FORGET_COLLECTOR_MS:
            continue
        evidence = {
            "collector": collector,
            "silent_s": seconds(silent_ms),
            "last_event_at": last,
            "summary": (
                f"Collector {collector} has been silent for {duration_ms(silent_ms)}: "
                "the state of its queues is unknown and their ages are unreliable."
            ),
        }
        yield Finding(SignalKey("TelemetryStale", "", "", "", consumer=collector), "warning", last, evidence)


def clock_untrusted(clock: Clock, now: int, settings: Settings) -> Iterator[Finding]:
    """The service's clock jumped and no source confirms it yet; or events were dated beyond the allowance within 10 min."""
    if not clock.trusted:
        jump_ms = clock.read - clock.now
        where = "ahead of" if jump_ms > 0 else "behind"
        evidence = {
            "jump_s": seconds(jump_ms),
            "read_at": clock.read,
            "batches": clock.batches,
            "sources_for": clock.for_read,
            "sources_against": clock.for_now,
            "summary": (
                f"This machine's clock jumped: it reads {duration_ms(abs(jump_ms))} {where} the time of the previous batches. "
                "Until other sources confirm the new time, queuewatch continues from the old one and infers nothing from the "
                "skipped time."
            ),
        }
        yield Finding(SignalKey("ClockUntrusted", "", "", "", part="service"), "warning", clock.jumped_at, evidence)
    if senders_are_ahead(clock, now):
        verb = "was" if clock.ahead_total == 1 else "were"
        evidence = {
            "ahead_total": clock.ahead_total,
            "last_ahead_at": clock.ahead_at,
            "allowance_s": seconds(settings.skew_allowance_ms),
            "summary": (
                f"{plural(clock.ahead_total, 'event')} so far {verb} dated more than {duration_ms(settings.skew_allowance_ms)} "
                "in the future. Such events are treated as if they had happened when they arrived, so the ages of their messages "
                "are too low."
            ),
        }
        yield Finding(SignalKey("ClockUntrusted", "", "", "", part="senders"), "warning", clock.ahead_at, evidence)


@condition(COVERAGE_OFF)
def uncovered_since(c: Context) -> int | None:
    """Tracked messages are too far from the broker's own count."""
    ratio = c.coverage_ratio
    off = ratio is not None and c.summary.messages_seen and measures.coverage(ratio, c.thresholds).reached
    return c.now if off else None


def telemetry_partial(c: Context) -> Iterator[Finding]:
    """Tracked messages are less than 90 % or more than 110 % of the broker's own count for 10 min."""
    ratio, since = c.coverage_ratio, uncovered_since(c)
    if since is None or ratio is None or c.now - since < c.thresholds.coverage_s * 1000:
        return
    counted, tracked = sum(c.broker_counts.values()), c.tracked_near_count
    reason = c.knowledge.reason
    missing = "some sends, or some receives of consumers that are not instrumented" if ratio < 1 else "some deletions"
    why = reason.why if reason.basis != "messages" else unseen_moves(c) or f"{missing} are not reported"
    evidence = {
        "coverage_ratio": round(ratio, 3),
        "tracked": tracked,
        "broker_count": counted,
        "off_s": seconds(c.now - since),
        "missing": why,
        "next_step": reason.next_step,
        "withheld": ", ".join(withheld(reason.basis)),
        "summary": (
            f"{plural(tracked, 'message')} of {c.name.queue} {'is' if tracked == 1 else 'are'} tracked but "
            f"the broker counts {counted} ({ratio:.0%}): {why}" + (f"; {reason.next_step}." if reason.next_step else ".")
        ),
    }
    yield c.finding("TelemetryPartial", "info", since, evidence)
