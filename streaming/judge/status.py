"""A queue's health without thresholds, after Burrow's idea: look at a window of samples, not at a limit.

The rules are tried in order and the first that applies names the status. Telemetry comes first, as nothing else is known
without it; a queue that was empty a moment ago is never called slow, which is what false alarms of this kind are made of.
"""

from __future__ import annotations

from itertools import pairwise

from streaming.judge.context import Context
from streaming.judge.memory import RateSample
from streaming.judge.snapshot import QueueStatus

WINDOW_MS = 300_000


def queue_status(c: Context) -> QueueStatus:
    """`stale`, `ok`, `stopped`, `stalled` or `lagging`, by the first rule that applies."""
    if _telemetry_stale(c):
        return "stale"
    window = _window(c)
    if c.is_dead_letter_queue or c.paused or _was_caught_up(window):
        return "ok"
    if window[-1].at - window[0].at < WINDOW_MS // 2:
        return "ok"
    settled = window[-1].settled - window[0].settled
    received = window[-1].received - window[0].received
    if not settled and not received:
        return "stopped"
    if not settled:
        return "stalled"
    if _falls_behind(window):
        return "lagging"
    return "ok"


def _window(c: Context) -> list[RateSample]:
    """The samples of the last five minutes; where the queue is judged more rarely than that, the latest two."""
    inside = [s for s in c.memory.samples if s.at >= c.now - WINDOW_MS]
    return inside if len(inside) > 1 else c.memory.samples[-2:]


def _telemetry_stale(c: Context) -> bool:
    """1. "If the one who counts this queue has gone silent, nothing is known." Settings told once are no counting."""
    limit_ms = int(c.thresholds.telemetry_stale_s * 1000)
    counted = c.facts.attributes.get("visible")
    if counted is None or c.now - counted[0] < limit_ms:
        return False
    return c.now - c.facts.last_event_at >= limit_ms


def _was_caught_up(window: list[RateSample]) -> bool:
    """2. "If nothing was waiting at some point of the window, the consumers keep up." """
    return any(s.oldest_visible_at == 0 for s in window)


def _falls_behind(window: list[RateSample]) -> bool:
    """5. "If the oldest waiting message got older in every part of the window and the backlog did not shrink, consumers work
    but do not keep up." """
    last = len(window) - 1
    parts = [window[i] for i in sorted({i * last // 4 for i in range(5)})]
    ages = [s.at - s.oldest_visible_at for s in parts]
    return all(later > earlier for earlier, later in pairwise(ages)) and window[-1].unsettled >= window[0].unsettled
