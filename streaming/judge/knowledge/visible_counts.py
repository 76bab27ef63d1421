"""Compare counts without the messages in flight with what is tracked: Cloudflare's, or those of a collector that reports no more.

Whatever such a broker counts, it is no less than the visible messages and no more than all of them.
"""

from __future__ import annotations

from streaming.judge.broker_counts import COUNT_ERROR_RATIO, COUNT_LAG_MS
from streaming.judge.history.window import Window
from streaming.judge.knowledge.compare import MEMORY_PER_COUNT, has_samples_around, range_between
from streaming.judge.knowledge.evidence import Evidence

CONTRADICTING_COUNTS = 2
"""A single such count may be wrong; this many in a row are a contradiction."""


def compare_visible_count(e: Evidence, past: Window, *, visible_is_known: bool) -> None:
    """Compare the count that waits for it with all that was tracked from 90 s before it until now.

    `past` holds the samples up to some seconds after the count. `visible_is_known`: messages tracked as visible must be counted.
    """
    at, counted, e.visible_at = e.visible_at, e.visible_then, 0
    if not has_samples_around(at, past):
        return
    lately, at_count = past.since(at - COUNT_LAG_MS), past.last_before(at)
    visible, tracked = past.value("tracked_visible", at_count), past.value("unsettled", at_count)
    least, _ = range_between(lately, "tracked_visible", visible, into="sent", out="received", counted=counted)
    _, most = range_between(lately, "unsettled", tracked, into="sent", out="departed", counted=counted)
    below = visible_is_known and least > (1 + COUNT_ERROR_RATIO) * counted + 1
    above = counted > (1 + COUNT_ERROR_RATIO) * most + 1
    e.visible_below = e.visible_below + 1 if below else 0
    e.visible_above = e.visible_above + 1 if above else 0
    if not below and not above:
        e.visible_sum = MEMORY_PER_COUNT * e.visible_sum + counted
        e.tracked.observe(at, agrees=True)
    elif e.tracked.contradicted_at or max(e.visible_below, e.visible_above) >= CONTRADICTING_COUNTS:
        e.tracked.observe(at, agrees=False)
