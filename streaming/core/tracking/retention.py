"""Compute when the retention of messages runs out, and end the expired ones."""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array
from streaming.core.settings import Settings
from streaming.core.state.queues import (
    T_EXPIRED,
)
from streaming.core.state.rows import (
    F_EXPIRED,
)
from streaming.core.state.state import ShardState
from streaming.core.tracking.ends import end


def expiry(state: ShardState, rows: Array, settings: Settings) -> Array:
    """Return when the retention of some rows' messages runs out.

    A message that was delivered after that is still there, so its retention is longer than the one known, which is often assumed:
    it is kept for as long again.
    """
    live = state.rows
    queue, base = live.at("queue", rows), live.at("sent", rows)
    if live.has("arrived"):
        arrived = live.at("arrived", rows)
        base = np.where((arrived > 0) & state.queues.is_ordered(settings)[queue], arrived, base)
    kept_ms = state.queues.limit("retention_ms", settings)[queue]
    expires, delivered = base + kept_ms, live.at("last_received", rows)
    result: Array = np.where(delivered >= expires, delivered + kept_ms, expires)
    return result


def run_out(state: ShardState, now: int, settings: Settings) -> None:
    """Expire messages past retention, which runs from the original send; in an ordered dead-letter queue from the arrival."""
    rows = state.rows
    if not len(rows):
        return
    shortest = int(state.queues.limit("retention_ms", settings).min())
    old = rows["sent"] + shortest <= now
    if rows.has("arrived"):
        old |= rows["arrived"] > 0
    hit = np.flatnonzero(old & (rows["ended"] == 0))
    expires = expiry(state, hit, settings)
    over = expires <= now
    end(state, hit[over], expires[over], F_EXPIRED, T_EXPIRED)
