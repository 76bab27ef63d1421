"""Events as the core sees them: one row per (queue, message) an event concerns, and events about whole queues.

An event that concerns two queues (`dead_lettered`, `redriven`, a first receive from a dead-letter queue) becomes two rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming.core.events.queue_events import QueueEvents
from streaming.core.hashing import queue_hash, row_key
from streaming.core.settings import QueueName

Array = npt.NDArray[Any]

# Codes also order the events of one message in the same millisecond: it enters, is received, is settled.
SENT, ARRIVED, REDRIVEN_IN, RECEIVED, EXTENDED, RELEASED = 1, 2, 3, 4, 5, 6
DELETED, DEAD_LETTERED, REDRIVEN, EXPIRED, DROPPED = 7, 8, 9, 10, 11
FIRST_END = DELETED

MESSAGE_TYPES = {
    "sent": SENT,
    "received": RECEIVED,
    "extended": EXTENDED,
    "released": RELEASED,
    "deleted": DELETED,
    "dead_lettered": DEAD_LETTERED,
    "redriven": REDRIVEN,
    "expired": EXPIRED,
    "dropped": DROPPED,
}

DTYPES: dict[str, str] = {
    "code": "u1",
    "at": "i8",
    "moved_back": "i8",  # by how much `at` was moved back, as it was dated in the future; 0: not at all
    "queue": "i4",  # index into `queues`
    "hi": "u8",
    "lo": "u8",
    "sent_at": "i8",  # 0: not reported
    "first_received_at": "i8",  # when the message was first received, by its broker; 0: not reported, or by this event
    "receive_count": "i4",  # 0: not reported
    "end": "i8",  # invisible_until of a receive or extension, visible_at of a send or release; 0: not reported
    "group": "i4",  # index into `groups`; -1: none
    "seq_kind": "u1",
    "seq_hi": "u8",
    "seq_lo": "u8",
    "consumer": "i4",  # index into `consumers`; -1: none
    "batch": "u8",  # hash of the queue and its batch id; 0: none
    "peer": "i4",  # the other queue of a move, index into `queues`; -1: none
    "reason": "i4",  # index into `reasons`; -1: none
    "text": "i4",  # index into `texts`; -1: the id is a UUID
    "flags": "u1",
}


# In most steps of a small account nothing arrives, and these would take longer to make than such a step takes to track.
_EMPTY_COLUMNS = {name: np.zeros(0, dtype=dtype) for name, dtype in DTYPES.items()}
_NO_TEXTS = pa.nulls(0, pa.string())


@dataclass(slots=True)
class Events:
    """Rows as columns (see DTYPES; all of the same length), the strings they refer to, and queue events."""

    columns: dict[str, Array]
    queues: list[QueueName]
    groups: list[str] = field(default_factory=list)
    consumers: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    texts: pa.Array = field(default_factory=lambda: _NO_TEXTS)
    about_queues: QueueEvents = field(default_factory=QueueEvents)
    dead_letter_queues: set[QueueName] = field(default_factory=set)
    """Queues that something was dead-lettered to: every shard must know them as dead-letter queues."""
    apparent_dead_letter_queues: set[QueueName] = field(default_factory=set)
    """Queues where a received message names the queue that it came from, as a message does that was redriven to a live queue."""
    redrive_targets: set[QueueName] = field(default_factory=set)
    """Queues that something was redriven to."""
    ordered_queues: set[QueueName] = field(default_factory=set)
    unordered_queues: set[QueueName] = field(default_factory=set)
    """Queues of which an event says that they keep no order, although their name says that they do."""
    skews: dict[QueueName, int] = field(default_factory=dict)
    """How far events of each queue were dated in the future, in milliseconds."""

    def __len__(self) -> int:
        return len(self.columns["code"])

    def take(self, rows: Array) -> dict[str, Array]:
        """Return the columns of the given rows."""
        return {name: values[rows] for name, values in self.columns.items()}

    def queue_hashes(self) -> Array:
        """Return a 64-bit hash of each queue in `queues`."""
        return np.array([queue_hash(name) for name in self.queues], dtype=np.uint64)

    def keys(self) -> Array:
        """Return the 64-bit (queue, message) key of each row."""
        hashes = self.queue_hashes()
        return row_key(self.columns["hi"], self.columns["lo"], hashes[self.columns["queue"]])


def empty_columns() -> dict[str, Array]:
    """Return columns without rows."""
    return dict(_EMPTY_COLUMNS)
