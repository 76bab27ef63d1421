"""Which shard the rows of messages belong to, and which rows are elsewhere.

Whether a queue is ordered decides where the events of its messages go. When that changes, its known messages stay behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from streaming.core.columns import Array
from streaming.core.hashing import id_hash
from streaming.core.settings import QueueName, Settings
from streaming.core.state.rows import F_PLACEHOLDER, Rows
from streaming.core.state.state import ShardState
from streaming.core.state.tombstones import restore_queues

_FOR_EVER: Final = Settings(lateness_ms=1 << 50)


def restore_all(state: ShardState) -> None:
    """Restore as rows everything that is compacted, however old: the lateness of the job may not be known."""
    restore_queues(state, np.ones(len(state.queues), dtype=bool), _FOR_EVER)


def shards_of(rows: Rows, ordered: Array, hashes: Array, shards: int) -> Array:
    """Return the shard of every row, as `route` would choose it. `ordered` and `hashes` are those of the queues."""
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    queue = _deciding_queue(rows)
    chosen = np.where(ordered[queue], hashes[queue], id_hash(rows["hi"], rows["lo"]))
    target: Array = (chosen % np.uint64(shards)).astype(np.int64)
    return target


def out_of_place(states: Mapping[int, ShardState], shards: int, settings: Settings) -> set[QueueName]:
    """Return the queues of which a message is in another shard than the one to which `route` sends its next events.

    `states` are by the index of their shard. What is compacted in them becomes rows.
    """
    found: set[QueueName] = set()
    for shard, state in states.items():
        restore_all(state)
        target = shards_of(state.rows, state.queues.is_ordered(settings), state.queues.hashes, shards)
        if len(target):
            found.update(state.queues.names[i] for i in np.unique(_deciding_queue(state.rows)[target != shard]).tolist())
    return found


def keep_latest_rows(states: Sequence[ShardState]) -> None:
    """Leave one row of each message, the one with the latest event: a queue that became ordered may have one in two shards."""
    keys = np.concatenate([state.rows.key for state in states])
    latest = [np.maximum.reduce([state.rows[name] for name in ("sent", "window_at", "ended")]) for state in states]
    order = np.lexsort((np.concatenate(latest), keys))
    kept = np.zeros(len(keys), dtype=bool)
    kept[order] = np.append(keys[order][1:] != keys[order][:-1], True) if len(keys) else False
    for state, of_state in zip(states, np.split(kept, np.cumsum([len(state.rows) for state in states])[:-1]), strict=True):
        if not of_state.all():
            state.rows.keep(of_state)


def _deciding_queue(rows: Rows) -> Array:
    """Return each row's queue; of a placeholder that of its source, where it is."""
    return np.where((rows["flags"] & np.uint32(F_PLACEHOLDER)) != 0, rows["origin"], rows["queue"])
