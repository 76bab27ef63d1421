"""The signal about work that outlasts its visibility window."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from streaming.core.state.duration_buckets import bucket_of, quantile_ms
from streaming.judge.conditions.conditions import condition, conditions, once
from streaming.judge.conditions.sliding import OUTLIVED
from streaming.judge.context import Context
from streaming.judge.findings import measures
from streaming.judge.findings.measured import Measured, Near
from streaming.judge.findings.signals import Finding
from streaming.judge.findings.words import duration_ms, seconds

LONGEST_TIMEOUT_S: Final = {"aws_sqs": 43_200, "cloudflare_queues": 43_200}
"""The longest visibility timeout that a system accepts. On SQS no extension makes a message's window longer than that, either."""


LATE_WORK_MARGIN = 1.1
"""A timeout is long enough if it is this many times as long as the longest work that was too late."""


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
    # Where the first of all samples is of this period, so are all receives, those before that sample as well. Work that takes
    # longer than the period was received before it.
    all_are = c.history.first_at > since
    received = max(samples.value("received", -1) if all_are else samples.change("received", since), outlived)
    return _Outlived(outlived, received, measures.outlived(outlived, received, c.thresholds))


@conditions("late_work")
def late_work_since(c: Context) -> Mapping[str, int]:
    """Return, for the last 15 min, the buckets of the longest work that ended after its window.

    Of a message that was received again meanwhile, the processing time counts from its last receive and does not show that.
    """
    if not c.summary.total("outlived"):
        # In most queues there never was any.
        return {}
    kept = (name for name, at in c.memory.since.items() if late_work_since.includes(name) and c.now - at < OUTLIVED.window_ms(c))
    found = {name.removeprefix(late_work_since.key("")): c.now for name in kept}
    took_ms = c.summary.numbers["late_work_ms"]
    return found | ({str(int(bucket_of(np.array([took_ms]))[0])): c.now} if took_ms else {})


def _longest_late_ms(c: Context) -> int:
    """Return the longest of these times, at most a fifth too long; 0 where none is known."""
    return quantile_ms({int(bucket): 1 for bucket in late_work_since(c)}, 1.0) or 0


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
    longest = _longest_late_ms(c)
    wanted = max(1.5 * slowest, 2 * c.visibility_ms, LATE_WORK_MARGIN * longest)
    fits_s = timeout_that_fits(c, max(slowest, longest), wanted)
    evidence = {
        "outlived_deliveries": outlived,
        "deliveries": received,
        "outlived_ratio": round(outlived / received, 3),
        **({"visibility_timeout_s": c.visibility_ms / 1000} if c.visibility_is_known else {}),
        "work_p95_s": seconds(slowest),
        **({"longest_work_s": seconds(longest)} if longest else {}),
        **({} if fits_s is None else {"timeout_that_fits_s": fits_s}),
        "summary": (
            f"{outlived} of {received} deliveries of {c.name.queue} in {duration_ms(OUTLIVED.window_ms(c))} "
            f"({outlived / received:.0%}) were still being processed when their {c.visibility_window} ended, so those messages "
            f"are processed twice. {_remedy(c, fits_s)}"
        ),
    }
    yield c.finding("WindowTooShort", "warning", since, evidence)


def timeout_that_fits(c: Context, work_ms: float, wanted_ms: float) -> int | None:
    """Return a visibility timeout in seconds, `wanted_ms` if the system accepts it, at least enough for work of `work_ms`.

    None where there is none that is longer than the present one and enough.
    """
    fits_s, longest_s = math.ceil(wanted_ms / 10_000) * 10, LONGEST_TIMEOUT_S.get(c.name.system)
    if longest_s is None or fits_s <= longest_s:
        return fits_s
    return longest_s if max(work_ms, c.visibility_ms or 0) < longest_s * 1000 else None


def no_timeout_fits(c: Context) -> str:
    """Return what to do where no visibility timeout is long enough."""
    return f"No visibility timeout is longer than {duration_ms(LONGEST_TIMEOUT_S[c.name.system] * 1000)}: divide the work."


def _remedy(c: Context, fits_s: int | None) -> str:
    if fits_s is None:
        return no_timeout_fits(c)
    or_more = "" if fits_s == LONGEST_TIMEOUT_S.get(c.name.system) else " or more"
    return f"Raise the visibility timeout to {fits_s} s{or_more}, or extend it while working."
