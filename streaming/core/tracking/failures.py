"""Deliveries that ended without a settlement: the window ran out, or the message was released, dead-lettered or lost.

A window ends by time and with no event, so this runs in every step. What is counted follows from a message's row alone,
and the row records how much of it is in the totals, so the sum does not depend on the order of events.
"""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array
from streaming.core.events.events import RECEIVED
from streaming.core.settings import Settings
from streaming.core.state.queues import T_FAILED
from streaming.core.state.rows import (
    F_DEAD_LETTERED,
    F_DELETED,
    F_DROPPED,
    F_EXPIRED,
    F_REDRIVEN,
    F_TIMELINE,
)
from streaming.core.state.state import ShardState
from streaming.core.tracking.windows import is_in_flight, window_ends

_SETTLED = F_DELETED | F_REDRIVEN
_LOST = F_DEAD_LETTERED | F_EXPIRED | F_DROPPED


def count_failures(state: ShardState, now: int, settings: Settings) -> None:
    """Update the totals of failed deliveries, per queue and per consumer, to `now` (epoch milliseconds)."""
    rows = state.rows
    if not rows.has("last_received"):
        return
    received = np.flatnonzero(rows["last_received"] > 0)
    failed = _failed_deliveries(state, received, now, settings)
    counted = rows.at("failures", received)
    changed = np.flatnonzero(failed != counted)
    if not len(changed):
        return
    hit, before, after = received[changed], counted[changed], failed[changed]
    more = after - before
    np.add.at(state.queues.totals[:, T_FAILED], rows.at("queue", hit), more)
    _blame_consumers(state, hit, before, more)
    rows.put("failures", hit, after.astype(np.int32))


def _failed_deliveries(state: ShardState, received: Array, now: int, settings: Settings) -> Array:
    """Return, per message, the number of deliveries that were seen and are over without a settlement."""
    rows = state.rows
    deliveries = (np.bitwise_count(rows.at("seen", received)) + rows.at("seen_uncounted", received)).astype(np.int64)
    flags, ended = rows.at("flags", received), rows.at("ended", received)
    code, end = rows.at("window_code", received), window_ends(state, settings, received)
    # The outcome of a delivery that a purge or a reconciliation cut short is unknown.
    cut_short = (ended > 0) & ((flags & np.uint32(_SETTLED | _LOST)) == 0) & (code != 0) & (end > ended)
    open_ = is_in_flight(ended == 0, code, end, now)
    last_counts = ((ended > 0) & ((flags & np.uint32(_SETTLED)) != 0)) | open_ | cut_short
    result: Array = np.maximum(deliveries - last_counts, 0)
    return result


def _blame_consumers(state: ShardState, hit: Array, before: Array, more: Array) -> None:
    """Count newly failed deliveries for the consumers that had them, by the timeline where there is one, else by the row."""
    rows, failed, failed_at = state.rows, state.consumers.failed, state.consumers.failed_at
    received = rows.at("last_received", hit)
    timeline = (rows.at("flags", hit) & F_TIMELINE) != 0
    single = np.flatnonzero(~timeline | (more < 0))
    owner = rows.at("consumer", hit[single])
    known = owner >= 0
    np.add.at(failed, owner[known], more[single][known])
    np.maximum.at(failed_at, owner[known], received[single][known])
    several = np.flatnonzero(timeline & (more > 0))
    if not len(several):
        return
    table = state.attempts
    receives = np.flatnonzero(table["code"] == RECEIVED)
    keys = table["key"][receives]
    key = rows.key[hit[several]]
    left, right = np.searchsorted(keys, key, "left"), np.searchsorted(keys, key, "right")
    n = more[several]
    nth = np.arange(int(n.sum())) - np.repeat(np.append(0, np.cumsum(n)[:-1]), n)
    place = np.minimum(np.repeat(left + before[several], n) + nth, np.repeat(right, n) - 1)
    owner = table["consumer"][receives[np.maximum(place, 0)]] if len(receives) else np.full(int(n.sum()), -1)
    known = (owner >= 0) & np.repeat(right > left, n)
    np.add.at(failed, owner[known], 1)
    np.maximum.at(failed_at, owner[known], np.repeat(received[several], n)[known])
