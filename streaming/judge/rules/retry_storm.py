"""Deliveries that repeat what failed with its batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from streaming.judge.conditions.conditions import condition, once
from streaming.judge.conditions.sliding import RETRIED
from streaming.judge.context import Context
from streaming.judge.findings import measures
from streaming.judge.findings.measured import Measured, Near
from streaming.judge.findings.signals import Finding
from streaming.judge.findings.words import duration_ms, seconds


class _Retries(NamedTuple):
    """Deliveries of the last minutes, and those of them that are redeliveries of messages from failed batches."""

    received: int
    retried: int
    measured: Measured


@once
def _retries(c: Context) -> _Retries | None:
    """Return None where there was no such redelivery."""
    received, retried = c.summary.total("received"), c.summary.total("retried")
    if not retried:
        return None
    window_ms = RETRIED.window_ms(c)
    samples = c.samples_of(window_ms)
    before = samples.last_before(c.now - window_ms)
    if before >= 0:
        received, retried = received - samples.value("received", before), retried - samples.value("retried", before)
    if retried <= 0 or received <= 0:
        return None
    return _Retries(received, retried, measures.retries(retried, received, c.thresholds))


@condition("retry_storm")
def retry_storm_since(c: Context) -> int | None:
    """More deliveries than are tolerated are such redeliveries."""
    found = _retries(c)
    if found is None:
        return None
    hysteresis = measures.HYSTERESIS if c.firing_here("BatchRetryStorm") else 1
    goes_on = measures.retries(found.retried, found.received, c.thresholds, hysteresis=hysteresis)
    return c.now if goes_on.reached else None


def batch_retry_storm(c: Context) -> Iterator[Finding | Near]:
    """At least half of the deliveries of the last 5 min are redeliveries of messages from failed batches."""
    found, since = _retries(c), retry_storm_since(c)
    if found is None:
        return
    yield Near("BatchRetryStorm", found.measured)
    if since is None:
        return
    received, retried, _ = found
    window_ms = RETRIED.window_ms(c)
    evidence = {
        "deliveries": received,
        "redeliveries_from_failed_batches": retried,
        "wasted_ratio": round(retried / received, 3),
        "window_s": seconds(window_ms),
        "summary": (
            f"{retried} of {received} deliveries of {c.name.queue} in {duration_ms(window_ms)} "
            f"({retried / received:.0%}) were redeliveries of messages from failed batches."
        ),
    }
    yield c.finding("BatchRetryStorm", "warning", since, evidence)
