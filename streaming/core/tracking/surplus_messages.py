"""Drop messages that cannot all exist: more sends were reported than the broker counts, and no receives are reported.

Of all messages sent, no more than the broker's count can be left, so only the newest are kept. A queue with only its producers
instrumented would otherwise grow until retention.
"""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.events.events import Events
from streaming.core.events.flags import COUNTED
from streaming.core.hashing import id_hash
from streaming.core.settings import Settings
from streaming.core.state.rows import F_SENT, F_TOUCHED
from streaming.core.state.state import ShardState
from streaming.core.tracking.windows import visible_since

SURELY_COUNTED_MS = 120_000
"""A broker's count may be older than its time says: messages are dropped for it only if sent at least this long before it. The
judge, which drops nothing, waits for less (`COUNT_LAG_MS`)."""
SURPLUS_ERROR_RATIO = 0.05
"""The count may be too low by this share."""
BUCKETS = 16
"""Messages are ranked in buckets by id, so that the same ones are kept with 1, 2, 4, 8 or 16 shards."""


def find_surplus_messages(state: ShardState, events: Events, settings: Settings) -> tuple[Array, Array]:
    """Return the rows of messages that were only ever sent and exceed the broker's counts, and the time of each count.

    Only `events` of this step bring any about: a count, or a send that is older than one.
    """
    rows = state.rows
    none = np.zeros(0, dtype=np.int64)
    counted = state.queues.column("counted_most")
    # The most messages each queue can hold according to its latest counts.
    most = np.where(counted < 0, -1, np.ceil(counted / (1 - SURPLUS_ERROR_RATIO))).astype(np.int64)
    if not (most >= 0).any() or not (concerned := _concerned(state, events)).any():
        return none, none
    counted_at = state.queues.column("counted_at")
    queue = rows["queue"]
    room = _room(most)
    # A queue none of whose buckets can be full needs no further work. The rows are one shard's: only a bucket is never split.
    crowded = concerned & (most >= 0) & (np.bincount(queue, minlength=len(most)) > room)
    if not crowded.any():
        return none, none
    flags = rows["flags"]
    only_sent = (rows["ended"] == 0) & ((flags & np.uint32(F_SENT | F_TOUCHED)) == F_SENT)
    hit = nonzero(crowded[queue] & only_sent & (rows["sent"] <= counted_at[queue] - SURELY_COUNTED_MS))
    # Of a delivery that was not reported, the window may have been extended: its message was there until that ended.
    since = visible_since(state, settings, hit)
    certain = since <= counted_at[queue[hit]] - SURELY_COUNTED_MS
    hit, since = hit[certain], since[certain]
    if not len(hit):
        return none, none
    bucket = queue[hit].astype(np.int64) * BUCKETS + (id_hash(rows.at("hi", hit), rows.at("lo", hit)) % BUCKETS).astype(np.int64)
    order = np.lexsort((-since, bucket))
    sorted_bucket = bucket[order]
    rank = np.arange(len(order)) - np.searchsorted(sorted_bucket, sorted_bucket, side="left")
    gone = np.sort(hit[order[rank >= room[queue[hit[order]]]]])
    return gone, counted_at[queue[gone]]


def _concerned(state: ShardState, events: Events) -> Array:
    """Return the queues of which these events are counts, or about messages older than the latest count."""
    concerned = np.zeros(len(state.queues), dtype=bool)
    if not (len(events) or len(events.about_queues)):
        return concerned
    numbers = np.array([state.queues.index.get(name, -1) for name in events.queues], dtype=np.int64)
    about = events.about_queues
    counted = numbers[about["queue"][(about["flags"] & COUNTED) != 0]]
    queue = numbers[events.columns["queue"]]
    late = queue[events.columns["at"] <= state.queues.column("counted_at")[queue] - SURELY_COUNTED_MS]
    concerned[counted[counted >= 0]] = concerned[late[late >= 0]] = True
    return concerned


def _room(most: Array) -> Array:
    """Return how many of one bucket are kept: its share of the newest `most` plus six standard deviations."""
    share = np.maximum(most, 0) / BUCKETS
    room: Array = np.ceil(share + 6 * np.sqrt(share) + 6).astype(np.int64)
    return room
