"""A queue's health without thresholds, after Burrow's idea: look at a window of samples, not at a limit.

The rules are tried in order and the first that applies names the status. Telemetry comes first, as nothing else is known
without it; a queue that was empty a moment ago is never called slow, which is what false alarms of this kind are made of.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from streaming.core.state.queues import Depth
from streaming.judge.context import Context
from streaming.judge.history import COLUMN, Ints, Window
from streaming.judge.rules.failing import is_failing
from streaming.judge.rules.queues import is_long_stalled, stalled_since
from streaming.judge.snapshot import QueueStatus

WINDOW_MS = 300_000
GROWTH_RATIO = 1.1
"""A backlog that is only counted must have grown by more than the error of the counts."""


def queue_status(c: Context) -> QueueStatus:
    """`stale`, `unknown`, `failing`, `ok`, `stopped`, `stalled` or `lagging`, by the first rule that applies."""
    if _telemetry_stale(c):
        return "stale"
    if c.basis == "unknown":
        return "unknown"
    if is_failing(c):
        return "failing"
    return _messages_status(c) if c.basis == "messages" else _counts_status(c)


def is_lagging(c: Context) -> bool:
    """Whether consumers work but do not keep up."""
    return (_messages_status(c) if c.basis == "messages" else _counts_status(c)) == "lagging"


def _messages_status(c: Context) -> QueueStatus:
    if c.flow_status is None:
        c.flow_status = _flow_status(c)
    return c.flow_status


def _flow_status(c: Context) -> QueueStatus:
    if c.is_dead_letter_queue or c.paused or not c.facts.numbers["visible"]:
        # With nothing waiting now, the consumers have caught up.
        return "ok"
    window = _window(c)
    return FLOW_STATUSES[int(flow_status(window.at, window.values[:, None])[0])] if len(window) else "ok"


def _counts_status(c: Context) -> QueueStatus:
    """The same from the broker's counts, where messages cannot tell."""
    counts = [depth for depth in c.facts.depths if depth.at >= c.now - WINDOW_MS]
    if c.facts.messages_seen and "visible" not in c.facts.attributes:
        return _messages_status(c)
    since = stalled_since(c)
    if since is not None and is_long_stalled(c, since):
        return "stopped" if c.facts.last_received_at < since else "stalled"
    if not counts:
        known = bool(c.broker_counts) or c.facts.last_settled_at >= c.now - WINDOW_MS
        return "ok" if known else "unknown"
    if c.is_dead_letter_queue or c.paused or any(depth.visible == 0 for depth in counts):
        return "ok"
    if counts[-1].at - counts[0].at < WINDOW_MS // 2:
        return "ok"
    active = max(c.facts.last_received_at, c.facts.last_settled_at, c.memory.evidence.life_at)
    if c.memory.evidence.frozen_since and c.now - active >= WINDOW_MS // 2:
        return "stopped"
    return "lagging" if _grows(counts) else "ok"


def _window(c: Context) -> Window:
    """The samples of the last five minutes; where the queue is judged more rarely than that, the latest two."""
    inside = c.recent.since(c.now - WINDOW_MS)
    return inside if len(inside) > 1 else Window(c.recent.at[-2:], c.recent.values[-2:])


def _telemetry_stale(c: Context) -> bool:
    """1. "If the one who counts this queue has gone silent, nothing is known." Settings told once are no counting."""
    limit_ms = int(c.thresholds.telemetry_stale_s * 1000)
    counted = c.facts.attributes.get("visible")
    if counted is None or c.now - counted[0] < limit_ms:
        return False
    return c.now - c.facts.last_event_at >= limit_ms


FLOW_STATUSES: tuple[QueueStatus, ...] = ("ok", "stopped", "stalled", "lagging")


def flow_status(at: Ints, values: Ints) -> Ints:
    """By the messages of some queues: the index of each one's status in FLOW_STATUSES. `at`: the times of one or more samples;
    `values`: a row per sample, in it one per queue."""
    first, last = values[0], values[-1]
    # 2. "If nothing was waiting at some point of the window, the consumers keep up."
    caught_up = (values[:, :, COLUMN["oldest_visible_at"]] == 0).any(axis=0)
    if at[-1] - at[0] < WINDOW_MS // 2:
        caught_up[:] = True
    # 3. "If nothing was received or settled, they stopped." 4. "If nothing was settled, they are stalled."
    settled, received = (last[:, COLUMN[total]] > first[:, COLUMN[total]] for total in ("settled", "received"))
    # 5. "If the oldest waiting message got older in every part of the window and the backlog did not shrink, consumers work but
    # do not keep up."
    parts = sorted({i * (len(at) - 1) // 4 for i in range(5)})
    ages = at[parts, None] - values[parts][:, :, COLUMN["oldest_visible_at"]]
    behind = (np.diff(ages, axis=0) > 0).all(axis=0) & (last[:, COLUMN["unsettled"]] >= first[:, COLUMN["unsettled"]])
    codes: Ints = np.where(caught_up, 0, np.where(~settled & ~received, 1, np.where(~settled, 2, np.where(behind, 3, 0)))).astype(
        np.int64
    )
    return codes


def _grows(counts: list[Depth]) -> bool:
    """5, by counts: "If the backlog grew in every part of the window, by more than counts err, consumers do not keep up." """
    last = len(counts) - 1
    parts = [counts[i].unsettled for i in sorted({i * last // 4 for i in range(5)})]
    return all(later >= earlier for earlier, later in pairwise(parts)) and parts[-1] > GROWTH_RATIO * parts[0] + 2
