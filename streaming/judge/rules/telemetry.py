"""Signals about the telemetry itself: a collector that fell silent, messages we do not see."""

from __future__ import annotations

from collections.abc import Iterator

from streaming.core.report import Merged
from streaming.core.settings import Settings
from streaming.judge.context import Context, duration, seconds
from streaming.judge.signals import Finding, SignalKey

FORGET_COLLECTOR_MS = 24 * 3_600_000
"""A collector silent for a day was taken away; it is not expected back."""


def telemetry_stale(merged: Merged, now: int, settings: Settings) -> Iterator[Finding]:
    """A collector that has given a sign of life fell silent for 2 min."""
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
                f"Collector {collector} has been silent for {duration(silent_ms)}: "
                "what it watches may be in any state, and ages from it are guesses."
            ),
        }
        yield Finding(SignalKey("TelemetryStale", "", "", "", consumer=collector), "warning", last, evidence)


def telemetry_partial(c: Context) -> Iterator[Finding]:
    """Tracked messages are less than 90 % or more than 110 % of the broker's own count for 10 min."""
    ratio = c.coverage_ratio
    low, high = c.thresholds.coverage_low_ratio, c.thresholds.coverage_high_ratio
    off = ratio is not None and c.facts.messages_seen and not low <= ratio <= high
    since = c.memory.holds_since("coverage", off, c.now)
    if since is None or ratio is None or c.now - since < c.thresholds.coverage_s * 1000:
        return
    counted = sum(c.broker_counts.values())
    missing = "some consumers or producers are not instrumented" if ratio < 1 else "some deletions are not reported"
    evidence = {
        "coverage_ratio": round(ratio, 3),
        "tracked": c.tracked,
        "broker_count": counted,
        "off_s": seconds(c.now - since),
        "summary": f"{c.tracked} messages of {c.name[2]} are tracked but the broker counts {counted} ({ratio:.0%}): {missing}.",
    }
    yield c.finding("TelemetryPartial", "info", since, evidence)
