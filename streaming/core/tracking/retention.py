"""Compute when the retention of messages runs out, end the expired ones, and forget those without retention.

What is read later may show that a message had not expired: an event that keeps it for longer, or its end before that.
"""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.events.events import EXTENDED, RECEIVED
from streaming.core.settings import LONGEST_UNHEARD_S, Settings
from streaming.core.state.queues import (
    NEVER,
    T_EXPIRED,
    T_FOUND_LATER,
    T_RECONCILED,
    known_retention_s,
)
from streaming.core.state.rows import (
    F_ENDED,
    F_EXPIRED,
    F_RECONCILED,
)
from streaming.core.state.state import ShardState
from streaming.core.tracking.ends import end
from streaming.core.tracking.segments import count_rows
from streaming.core.tracking.windows import window_ends

LONGEST_UNHEARD_MS = int(LONGEST_UNHEARD_S * 1000)


def expiry(state: ShardState, rows: Array, settings: Settings) -> Array:
    """Return when the retention of some rows' messages runs out: NEVER or later where there is none.

    A message that was sent, delivered, extended or given back after that is still there, so its retention is longer than the one
    known: it is kept for as long again. Where the retention is only assumed, one that is in flight is kept until its window ends.
    """
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    live = state.rows
    queue, base = live.at("queue", rows), live.at("sent", rows)
    if live.has("arrived"):
        arrived = live.at("arrived", rows)
        base = np.where((arrived > 0) & state.queues.is_ordered(settings)[queue], arrived, base)
    kept_ms = state.queues.limit("retention_ms", settings)[queue]
    # The event of a send that was longer ago than the retention is in `delay`.
    alive = np.maximum.reduce([live.at(name, rows) for name in ("last_received", "window_at", "delay")])
    expires = np.where(alive >= base + kept_ms, alive + kept_ms, base + kept_ms)
    code = live.at("window_code", rows)
    held = nonzero(((code == RECEIVED) | (code == EXTENDED)) & (expires < NEVER))
    until = window_ends(state, settings, rows[held])
    longer = (until > expires[held]) & (until < NEVER)
    held, until = held[longer], until[longer]
    if len(held):
        assumed = np.zeros(len(state.queues), dtype=bool)
        for number in np.unique(queue[held]).tolist():
            assumed[number] = known_retention_s(state.queues[number], settings) is None
        kept = assumed[queue[held]]
        expires[held[kept]] = until[kept]
    result: Array = expires
    return result


def run_out(state: ShardState, now: int, settings: Settings) -> None:
    """Expire messages past retention, which runs from the original send; in an ordered dead-letter queue from the arrival."""
    rows = state.rows
    if not len(rows):
        return
    shortest = min(int(state.queues.limit("retention_ms", settings).min()), LONGEST_UNHEARD_MS)
    old = rows["sent"] + shortest <= now
    if rows.has("arrived"):
        old |= rows["arrived"] > 0
    hit = nonzero(old & (rows["ended"] == 0))
    if not len(hit):
        return
    expires = expiry(state, hit, settings)
    over = expires <= now
    end(state, hit[over], expires[over], F_EXPIRED, T_EXPIRED)
    _forget_unheard(state, hit[expires >= NEVER], now)


def has_run_out(state: ShardState, rows: Array) -> Array:
    """Return which messages ended only because their retention ran out, which nobody reported."""
    result: Array = (state.rows.at("flags", rows) & np.uint32(F_ENDED)) == F_EXPIRED
    expired = nonzero(result)
    result[expired] = [key not in state.loss_reasons for key in state.rows.key[rows[expired]].tolist()]
    return result


def withdraw_disproved(state: ShardState, rows: Array, settings: Settings) -> None:
    """Track those of these rows' messages again of which an event shows that their retention had not run out."""
    expired = rows[has_run_out(state, rows)]
    withdraw(state, expired[expiry(state, expired, settings) > state.rows.at("ended", expired)])


def withdraw(state: ShardState, rows: Array) -> None:
    """Track these messages again, which had not expired. They stay counted as expired: a counter never goes down."""
    live = state.rows
    live.put("ended", rows, 0)
    live.put("ended_noticed", rows, 0)
    live.put("flags", rows, live.at("flags", rows) & ~np.uint32(F_EXPIRED))
    count_rows(state, rows, T_FOUND_LATER)


def _forget_unheard(state: ShardState, kept: Array, now: int) -> None:
    """Stop tracking messages without retention of which nothing was heard for long. They may still exist, so none is lost.

    Where the broker's counts are reported they stay, as old dead letters do: the counts show when they are gone.
    """
    if not len(kept):
        return
    forgotten_at = last_heard(state, kept) + LONGEST_UNHEARD_MS
    counted = state.queues.column("counted_at")[state.rows.at("queue", kept)] + LONGEST_UNHEARD_MS > now
    over = (forgotten_at <= now) & ~counted
    end(state, kept[over], forgotten_at[over], F_RECONCILED, T_RECONCILED)


def last_heard(state: ShardState, rows: Array) -> Array:
    """Return when some rows' messages were last heard of."""
    heard: Array = np.maximum.reduce([state.rows.at(name, rows) for name in ("sent", "last_received", "window_at", "arrived")])
    return heard
