"""Settle messages without an event: retention, purges, unseen moves, messages the broker no longer has."""

from __future__ import annotations

import numpy as np

from streaming.core.columns import nonzero
from streaming.core.events.events import RELEASED, Events
from streaming.core.settings import Settings
from streaming.core.state.queues import (
    T_RECONCILED,
)
from streaming.core.state.rows import (
    F_DROPPED,
    F_EXPIRED,
    F_MOVE_INFERRED,
    F_PURGED,
    F_RECONCILED,
    F_WINDOW_DEFAULT,
)
from streaming.core.state.state import ShardState
from streaming.core.tracking.dead_letters import (
    detect_dead_letters,
    end_originals_of_redriven,
    end_originals_read_later,
    share_send_times,
)
from streaming.core.tracking.disproved_moves import correct_moves
from streaming.core.tracking.ends import end
from streaming.core.tracking.failures import count_failures
from streaming.core.tracking.inferred_moves import infer_moves
from streaming.core.tracking.last_deliveries import end_last_deliveries
from streaming.core.tracking.overtaken import drop_overtaken
from streaming.core.tracking.retention import last_heard, run_out
from streaming.core.tracking.surplus_messages import SURELY_COUNTED_MS, find_surplus_messages
from streaming.core.tracking.unnamed_targets import add_unnamed_dead_letters
from streaming.core.tracking.windows import visible_since


def settle_by_time(state: ShardState, events: Events, now: int, settings: Settings) -> None:
    """End the messages that ended without an event by `now`. `events` are those of this step."""
    if not state.messages:
        return
    add_unnamed_dead_letters(state, settings)
    found = detect_dead_letters(state, settings)
    end_originals_read_later(state, events, settings)
    end_originals_of_redriven(state, settings)
    share_send_times(state, settings)
    correct_moves(state, events, found, settings)
    _purge(state)
    infer_moves(state, now, settings)
    end_last_deliveries(state, now, settings)
    run_out(state, now, settings)
    _reconcile(state, settings)
    _drop_uncounted(state, settings)
    drop_overtaken(state, now, settings)
    _drop_surplus_messages(state, events, settings)
    count_failures(state, now, settings)
    _notice(state, now)


def _purge(state: ShardState) -> None:
    purged = state.queues.column("purged_at")
    if not purged.any():
        return
    rows = state.rows
    at = purged[rows["queue"]]
    hit = nonzero((at > 0) & (rows["ended"] == 0) & (rows["sent"] <= at) & (rows["last_received"] <= at))
    # A dead letter keeps its send time: it may have been sent before the purge and have arrived after it.
    hit = hit[rows.at("arrived", hit) <= at[hit]]
    end(state, hit, at[hit], F_PURGED)


def _reconcile(state: ShardState, settings: Settings) -> None:
    """Reconcile away messages last heard of before a long enough period in which the broker counted nothing."""
    queues = state.queues
    after_ms = queues.limit("reconcile_after_ms", settings)
    since, until = queues.column("empty_since"), queues.column("counted_at")
    long_empty = (since >= 0) & (until - since >= after_ms)
    if not long_empty.any():
        return
    # Most queues of a shard may be empty, and most of its rows in the others: one pass finds the few rows concerned.
    until = np.where(long_empty, until, 0)
    counts_delayed = queues.column("counted_delayed") >= 0
    rows = state.rows
    candidates = nonzero((until > 0)[rows["queue"]] & (rows["ended"] == 0))
    queue = rows.at("queue", candidates)
    since = last_heard(state, candidates)
    # Where the broker does not count delayed messages, one may well exist that is delayed, or given back and not visible yet.
    code = rows.at("window_code", candidates)
    uncounted = ~counts_delayed[queue] & ((code == 0) | (code == RELEASED))
    since = np.where(uncounted, np.maximum(since, visible_since(state, settings, candidates)), since)
    hit = candidates[until[queue] - since >= after_ms[queue]]
    end(state, hit, until[rows.at("queue", hit)], F_RECONCILED, T_RECONCILED)


def _drop_uncounted(state: ShardState, settings: Settings) -> None:
    """Drop messages that seem to have been visible all the time while several of the broker's counts show none visible.

    The report of their deletion was lost, as when a consumer is killed. A busy queue is seldom empty, so `_reconcile` would never
    find them. Ordered queues are left out: a message behind the head of its group may not count as visible. So are windows of
    which the length can only be assumed, and dead letters: who looks at them holds them for a while, and may not report that.
    """
    queues, rows = state.queues, state.rows
    left_out = queues.keeps_order(settings) | queues.column("dead_letter")
    visible_by = np.where(left_out, 0, queues.column("without_visible_from") - SURELY_COUNTED_MS)
    if not (visible_by > 0).any():
        return
    hit = nonzero((rows["ended"] == 0) & (rows["sent"] <= visible_by[rows["queue"]]))
    by_default = (rows.at("flags", hit) & F_WINDOW_DEFAULT) != 0
    hit = hit[~by_default | (queues.limit("visibility_known", settings)[rows.at("queue", hit)] > 0)]
    queue, until = rows.at("queue", hit), queues.column("without_visible_until")
    since = np.maximum(last_heard(state, hit), visible_since(state, settings, hit))
    gone = since <= visible_by[queue]
    end(state, hit[gone], until[queue[gone]], F_RECONCILED, T_RECONCILED)


def _drop_surplus_messages(state: ShardState, events: Events, settings: Settings) -> None:
    """Drop messages that were only ever sent and that exceed the broker's counts."""
    gone, at = find_surplus_messages(state, events, settings)
    end(state, gone, at, F_RECONCILED, T_RECONCILED)


def _notice(state: ShardState, now: int) -> None:
    """Date ends and arrivals that have their own signal by this step: they may have happened long before they became known."""
    rows = state.rows
    hit = [("ended_noticed", (rows["flags"] & (F_EXPIRED | F_DROPPED | F_PURGED | F_MOVE_INFERRED)) != 0)]
    if rows.has("arrived"):
        hit.append(("arrived_noticed", rows["arrived"] > 0))
    for column, happened in hit:
        at = nonzero(happened)
        rows.put(column, at[rows.at(column, at) == 0], now)
