"""The signal about work that outlasts its visibility window."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from streaming.core.state.duration_buckets import quantile_ms
from streaming.judge.conditions.conditions import condition, once
from streaming.judge.conditions.sliding import OUTLIVED
from streaming.judge.context import Context
from streaming.judge.findings import measures
from streaming.judge.findings.measured import Measured, Near
from streaming.judge.findings.signals import Finding
from streaming.judge.findings.words import duration_ms, seconds


class _Outlived(NamedTuple):
    """Deliveries of the last 15 min that outlived their visibility window while still being processed."""

    outlived: int
    received: int
    measured: Measured


@once
def _outlived(c: Context) -> _Outlived | None:
    """Return None where there never were any."""
    if not c.summary.total("outlived") or c.visibility_ms is None:
        return None
    window_ms = OUTLIVED.window_ms(c)
    samples, since = c.samples_of(window_ms), c.now - window_ms
    outlived = samples.change("outlived", since)
    # Work that takes longer than this period was received before it.
    received = max(samples.change("received", since), outlived)
    return _Outlived(outlived, received, measures.outlived(outlived, received, c.thresholds))


@condition("window_too_short")
def outlived_since(c: Context) -> int | None:
    """More deliveries than are tolerated outlive their window. While the signal fires, fewer are enough: see QueueFailing."""
    found = _outlived(c)
    if found is None or found.outlived <= 0:
        return None
    reached = found.measured.reached
    if not reached and c.firing_here("WindowTooShort"):
        reached = measures.outlived(
            found.outlived,
            found.received,
            c.thresholds,
            hysteresis=measures.HYSTERESIS,
            count_hysteresis=measures.COUNT_HYSTERESIS,
        ).reached
    return c.now if reached else None


def window_too_short(c: Context) -> Iterator[Finding | Near]:
    """In 15 min at least 2 % of the deliveries (5 or more) outlived their visibility window while still being processed."""
    found, since = _outlived(c), outlived_since(c)
    if found is None or c.visibility_ms is None:
        return
    outlived, received, measured = found
    if outlived > 0:
        yield Near("WindowTooShort", measured)
    if since is None:
        return
    slowest = quantile_ms(c.memory.hold_weights, 0.95) or c.visibility_ms
    fits_s = math.ceil(max(1.5 * slowest, 2 * c.visibility_ms) / 10_000) * 10
    evidence = {
        "outlived_deliveries": outlived,
        "deliveries": received,
        "outlived_ratio": round(outlived / received, 3),
        **({"visibility_timeout_s": c.visibility_ms / 1000} if c.visibility_is_known else {}),
        "work_p95_s": seconds(slowest),
        "timeout_that_fits_s": fits_s,
        "summary": (
            f"{outlived} of {received} deliveries of {c.name.queue} in {duration_ms(OUTLIVED.window_ms(c))} "
            f"({outlived / received:.0%}) were still being processed when their {c.visibility_window} ended, so those messages "
            f"are processed twice. Raise the visibility timeout to {fits_s} s or more, or extend it while working."
        ),
    }
    yield c.finding("WindowTooShort", "warning", since, evidence)
