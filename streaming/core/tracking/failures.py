"""Deliveries that ended without a settlement: the window ran out, or the message was released, dead-lettered or lost.

A window ends by time and with no event, so this runs in every step. What is counted follows from a message's row alone,
and the row records how much of it is in the totals, so the sum does not depend on the order of events.
"""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array, nonzero
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
from streaming.core.tracking.attempts import dropped_receives
from streaming.core.tracking.windows import is_in_flight, window_ends

_SETTLED = F_DELETED | F_REDRIVEN
_LOST = F_DEAD_LETTERED | F_EXPIRED | F_DROPPED


def count_failures(state: ShardState, now: int, settings: Settings) -> None:
    """Update the totals of failed deliveries, per queue and per consumer, to `now` (epoch milliseconds)."""
    rows = state.rows
    if not rows.has("last_received"):
        return
    received = nonzero(rows["last_received"] > 0)
    failed = _failed_deliveries(state, received, now, settings)
    counted = rows.at("failures", received)
    changed = nonzero(failed != counted)
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
    """Count newly failed deliveries for the consumers that had them, by the timeline where there is one, else by the row.

    Where fewer have failed than before, they are taken back from the same consumers.
    """
    rows = state.rows
    received = rows.at("last_received", hit)
    timeline = (rows.at("flags", hit) & F_TIMELINE) != 0
    single = nonzero(~timeline)
    _blame(state, rows.at("consumer", hit[single]), more[single], received[single])
    several = nonzero(timeline)
    if not len(several):
        return
    table = state.attempts
    receives = nonzero(table["code"] == RECEIVED)
    if not len(receives):
        return
    keys, key = table["key"][receives], rows.key[hit[several]]
    left, right = np.searchsorted(keys, key, "left"), np.searchsorted(keys, key, "right")
    n, sign = np.abs(more[several]), np.sign(more[several])
    nth = np.arange(int(n.sum())) - np.repeat(np.append(0, np.cumsum(n)[:-1]), n)
    # The timeline of a message that was received often has lost its first receives.
    dropped = dropped_receives(state, hit[several], right - left)
    place = np.repeat(left + np.maximum(np.minimum(before, before + more)[several] - dropped, 0), n) + nth
    last = np.repeat(right, n) - 1
    owner = table["consumer"][receives[np.clip(np.minimum(place, last), 0, None)]]
    # A prefetched message that its consumer gave back unread is received again with the same count, which the timeline does not
    # have. It is one delivery, of the last who received it; while it is in flight again, it had failed for the one before.
    again = (place >= last) & np.repeat((sign > 0) | (rows.at("ended", hit[several]) > 0), n)
    owner = np.where(again, np.repeat(rows.at("consumer", hit[several]), n), owner)
    owner = np.where(np.repeat(right > left, n), owner, -1)
    _blame(state, owner, np.repeat(sign, n), np.repeat(received[several], n))


def _blame(state: ShardState, owner: Array, more: Array, received: Array) -> None:
    """Add to the failed deliveries of these consumers; -1: not known."""
    known = owner >= 0
    np.add.at(state.consumers.failed, owner[known], more[known])
    np.maximum.at(state.consumers.failed_at, owner[known], received[known])
