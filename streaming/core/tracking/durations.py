"""Wait, processing and sojourn times of deleted messages, each counted once.

What is counted follows from the message's row, and the row records that it was counted, so the order of events does not matter. A
message whose send is reported only after its deletion is counted at that point.
"""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array
from streaming.core.events.events import RECEIVED
from streaming.core.state.queues import T_PROCESSING_MS, T_SOJOURN_MS, T_WAIT_MS
from streaming.core.state.rows import F_DELETED, F_LIFE_TIMED, F_SENT_KNOWN, F_TIMELINE, F_WORK_TIMED
from streaming.core.state.state import ShardState

DURATIONS = ("wait", "processing", "sojourn")
"""Sent to first received; last received to deleted; sent to deleted."""
DURATION_BUCKETS_S: tuple[float, ...] = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3_600, 14_400, 86_400)
_BOUNDS_MS = np.array([int(bound * 1000) for bound in DURATION_BUCKETS_S], dtype=np.int64)
_WAIT, _PROCESSING, _SOJOURN = range(len(DURATIONS))


def count_durations(state: ShardState, rows: Array) -> None:
    """Count the newly known durations of these rows' messages, if deleted."""
    live = state.rows
    flags = live.at("flags", rows)
    deleted = (flags & np.uint32(F_DELETED)) != 0
    received = live.at("last_received", rows) > 0
    work = deleted & received & ((flags & np.uint32(F_WORK_TIMED)) == 0)
    life = deleted & ((flags & np.uint32(F_SENT_KNOWN | F_LIFE_TIMED)) == F_SENT_KNOWN)
    if not (work.any() or life.any()):
        return
    queue, ended = live.at("queue", rows), live.at("ended", rows)
    sent = live.at("sent", rows)
    _count(state, _PROCESSING, T_PROCESSING_MS, queue[work], (ended - live.at("last_received", rows))[work])
    _count(state, _SOJOURN, T_SOJOURN_MS, queue[life], (ended - sent)[life])
    waited = life & received
    _count(state, _WAIT, T_WAIT_MS, queue[waited], first_received(state, rows[waited]) - sent[waited])
    timed = np.where(work, F_WORK_TIMED, 0) | np.where(life, F_LIFE_TIMED, 0)
    live.put("flags", rows, flags | timed.astype(np.uint32))


def first_received(state: ShardState, rows: Array) -> Array:
    """Return when each of these messages was first seen to be received in its queue, in epoch milliseconds."""
    live, table = state.rows, state.attempts
    first = live.at("last_received", rows)
    several = np.flatnonzero((live.at("flags", rows) & F_TIMELINE) != 0)
    if len(several):
        receives = np.flatnonzero(table["code"] == RECEIVED)
        keys, key = table["key"][receives], live.key[rows[several]]
        at = keys.searchsorted(key)
        known = at < len(keys)
        known[known] = keys[at[known]] == key[known]
        first[several[known]] = table["at"][receives[at[known]]]
    return first


def _count(state: ShardState, kind: int, total: int, queue: Array, took_ms: Array) -> None:
    if len(queue):
        # A receiver's clock may be behind the sender's.
        took_ms = np.maximum(took_ms, 0)
        np.add.at(state.queues.totals[:, total], queue, took_ms)
        state.queues.add_durations(queue, kind << 8 | np.searchsorted(_BOUNDS_MS, took_ms, side="left"))
