"""Route events to shards: all messages of an ordered queue to one shard, all others spread by message id.

Events about a whole queue (its attributes, a purge, the outcome of a batch, that it is a dead-letter queue) go to every shard,
because its messages may be in any of them; only the copy in the queue's home shard counts as an event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from streaming.core.columns import Array, distinct, nonzero
from streaming.core.events.ahead import clamp_future_times
from streaming.core.events.events import Events
from streaming.core.events.packet import Packet, Quarantined
from streaming.core.events.prepare import prepare
from streaming.core.events.queue_events import spread
from streaming.core.hashing import id_hash
from streaming.core.settings import Settings


def route(
    table: pa.Table,
    invalid: Counter[str],
    quarantine: Sequence[Quarantined],
    shards: int,
    settings: Settings,
    now: int | None = None,
) -> list[Packet]:
    """Split a wire-format table and its unreadable events into one packet per shard, empty ones included.

    Times beyond `now` (epoch milliseconds) are moved back; pass None where the events themselves define the time.
    """
    events = prepare(table if now is None else clamp_future_times(table, now, settings.skew_allowance_ms))
    hashes = events.queue_hashes()
    ordered = np.array([name in events.ordered_queues or settings.is_ordered(name) for name in events.queues], dtype=bool)
    owner = _shards_of_messages(events.columns, hashes, ordered, shards)
    packets = []
    for shard in range(shards):
        columns = events.take(nonzero(owner == shard)) if shards > 1 else events.columns
        packets.append(Packet(_compact(events, columns) if shards > 1 else events))
    of_messages = _shards_of_messages(events.about_queues.columns, hashes, ordered, shards)
    for packet, about_queues in zip(packets, spread(events.about_queues, hashes, of_messages, shards), strict=True):
        packet.events.about_queues = about_queues
        packet.events.dead_letter_queues = events.dead_letter_queues
        packet.events.apparent_dead_letter_queues = events.apparent_dead_letter_queues
        packet.events.redrive_targets = events.redrive_targets
        packet.events.ordered_queues = events.ordered_queues
        packet.events.unordered_queues = events.unordered_queues
        packet.events.skews = events.skews
    packets[0].invalid = invalid
    packets[0].quarantine = list(quarantine)
    return packets


def _shards_of_messages(columns: Mapping[str, Array], hashes: Array, ordered: Array, shards: int) -> Array:
    """Return the shard of the message of every row. `hashes` and `ordered` are those of the queues."""
    queue = columns["queue"]
    if not len(queue):
        return np.zeros(0, dtype=np.int64)
    chosen = np.where(ordered[queue], hashes[queue], id_hash(columns["hi"], columns["lo"]))
    return (chosen % np.uint64(shards)).astype(np.int64)


def _compact(events: Events, columns: dict[str, Array]) -> Events:
    """Keep only the strings these rows refer to, so that a packet does not carry those of every shard."""
    out = Events(columns=columns, queues=events.queues, groups=events.groups, consumers=events.consumers, reasons=events.reasons)
    if len(events.groups):
        kept, columns["group"] = distinct(columns["group"], len(events.groups))
        out.groups = [events.groups[i] for i in kept.tolist()]
    text = columns["text"]
    rows = nonzero(text >= 0)
    if len(rows):
        kept, text[rows] = distinct(text[rows], len(events.texts))
        out.texts = events.texts.take(pa.array(kept))
    return out
