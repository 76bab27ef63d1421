"""Wait, processing and sojourn times of deleted messages, each counted once.

What is counted follows from the message's row, and the row records that it was counted. A message whose send or only receive is
reported after its deletion is counted at that point. What was counted stays when another of its receives is read later.
"""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.events.events import RECEIVED
from streaming.core.state.duration_buckets import DURATIONS, bucket_of
from streaming.core.state.queues import T_PROCESSED, T_PROCESSING_MS, T_SOJOURN_MS, T_WAIT_MS
from streaming.core.state.rows import F_DELETED, F_PROCESSING_COUNTED, F_SENT_KNOWN, F_SOJOURN_COUNTED, F_TIMELINE
from streaming.core.state.state import ShardState

_WAIT, _PROCESSING, _SOJOURN = range(len(DURATIONS))
_BOTH_COUNTED = F_PROCESSING_COUNTED | F_SOJOURN_COUNTED


def count_durations(state: ShardState, rows: Array) -> None:
    """Count the newly known durations of these rows' messages, if deleted."""
    live = state.rows
    flags = live.at("flags", rows)
    deleted = (flags & np.uint32(F_DELETED)) != 0
    received = live.at("last_received", rows) > 0
    processing = deleted & received & ((flags & np.uint32(F_PROCESSING_COUNTED)) == 0)
    sojourn = deleted & ((flags & np.uint32(F_SENT_KNOWN | F_SOJOURN_COUNTED)) == F_SENT_KNOWN)
    if not (processing.any() or sojourn.any()):
        return
    queue, ended = live.at("queue", rows), live.at("ended", rows)
    sent = live.at("sent", rows)
    newly = np.where(processing, F_PROCESSING_COUNTED, 0) | np.where(sojourn, F_SOJOURN_COUNTED, 0)
    new_flags = flags | newly.astype(np.uint32)
    # The wait is known once both its ends are, whichever was reported last.
    waited = (processing | sojourn) & ((new_flags & np.uint32(_BOTH_COUNTED)) == _BOTH_COUNTED)
    counted = (
        _timed(state, _PROCESSING, T_PROCESSING_MS, queue[processing], (ended - live.at("last_received", rows))[processing]),
        _timed(state, _SOJOURN, T_SOJOURN_MS, queue[sojourn], (ended - sent)[sojourn]),
        _timed(state, _WAIT, T_WAIT_MS, queue[waited], _waited_until(state, rows[waited]) - sent[waited]),
    )
    state.queues.count(queue[processing], T_PROCESSED)
    state.queues.add_durations(*map(np.concatenate, zip(*counted, strict=True)))
    live.put("flags", rows, new_flags)


def _waited_until(state: ShardState, rows: Array) -> Array:
    """Return when these messages were first received in their queues: by their broker, or else as first seen.

    Of a dead letter the broker may report when it was first received in the queue it comes from.
    """
    seen, reported = first_received(state, rows), state.rows.at("first_received", rows)
    here = (reported > 0) & (reported >= state.rows.at("arrived", rows))
    return np.where(here, np.minimum(reported, seen), seen)


def first_received(state: ShardState, rows: Array) -> Array:
    """Return when each of these messages was first seen to be received in its queue, in epoch milliseconds."""
    live, table = state.rows, state.attempts
    first = live.at("last_received", rows)
    several = nonzero((live.at("flags", rows) & F_TIMELINE) != 0)
    if len(several):
        receives = nonzero(table["code"] == RECEIVED)
        keys, key = table["key"][receives], live.key[rows[several]]
        at = keys.searchsorted(key)
        known = at < len(keys)
        known[known] = keys[at[known]] == key[known]
        first[several[known]] = table["at"][receives[at[known]]]
    return first


def _timed(state: ShardState, kind: int, total: int, queue: Array, took_ms: Array) -> tuple[Array, Array]:
    """Add to the total; return each duration's queue and key of `duration_buckets`."""
    # A receiver's clock may be behind the sender's.
    took_ms = np.maximum(took_ms, 0)
    np.add.at(state.queues.totals[:, total], queue, took_ms)
    return queue, kind << 8 | bucket_of(took_ms)
