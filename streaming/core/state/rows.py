"""The message rows of a shard as columns: one per (queue, message), sorted by key.

A column whose values are all the default is not stored.
"""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.hashing import lows, row_key

# dtype and the value that means "unknown".
ROW_COLUMNS: dict[str, tuple[str, int]] = {
    "hi": ("u8", 0),
    "lo": ("u8", 0),
    "queue": ("i4", 0),
    "flags": ("u4", 0),
    "sent": ("i8", 0),  # when it was sent; until F_SENT_KNOWN, the time of its first event
    "first_received": ("i8", 0),  # the first receive that the timeline does not have: reported by the broker, or seen and trimmed
    "last_received": ("i8", 0),
    "receive_count": ("i4", 0),
    "seen": ("u8", 0),  # bit n-1: the n-th receive was seen
    "seen_uncounted": ("i4", 0),
    "window_at": ("i8", 0),  # the latest receive, extension or release…
    "window_end": ("i8", 0),  # …and until when it lasts
    "window_code": ("u1", 0),
    "delay": ("i8", 0),
    "ended": ("i8", 0),
    "outdated_end": ("i8", 0),  # an end before a later delivery, which may prove to be an earlier one…
    "outdated_end_code": ("u1", 0),  # …and which kind of end: see tracking/delivery_order
    "restart": ("i8", 0),  # when CloudWatch's age last restarts…
    "restart_before": ("i8", 0),  # …and the time before, while that is still to come
    "consumer": ("i4", -1),
    "group": ("i4", -1),
    "seq_kind": ("u1", 0),
    "seq_hi": ("u8", 0),
    "seq_lo": ("u8", 0),
    "batch": ("u8", 0),
    "arrived": ("i8", 0),  # in a dead-letter queue: when it arrived…
    "arrived_noticed": ("i8", 0),  # …and the step in which that first became known
    "failures": ("i4", 0),  # deliveries that ended without a settlement, as counted in the totals
    "ended_noticed": ("i8", 0),  # the step in which its loss, purge or unreported move first became known
    "overtaken_since": ("i8", 0),  # the step in which a later message of its group was first known to be received
    "parent": ("u8", 0),  # key of its row in the queue it came from
    "origin": ("i4", -1),  # the queue it came from
    "text": ("i4", -1),  # index into `texts`; -1: the id is a UUID
    "id_at": ("i4", -1),  # where its id is in the id segments, one after another; -1: in none
}
TIMES = (
    "sent",
    "first_received",
    "last_received",
    "window_at",
    "ended",
    "outdated_end",
    "arrived",
    "arrived_noticed",
    "ended_noticed",
    "overtaken_since",
)
"""The columns of times that have passed."""
ENDS: dict[str, str] = {"window_end": "window_at", "restart": "window_at", "restart_before": "window_at", "delay": "sent"}
"""The columns of times that may be to come, and from which one on they are counted."""
STORED_COLUMNS = [name for name in ROW_COLUMNS if name not in ("hi", "lo", "queue", "sent", "id_at")]
"""Those that are in the head for all rows; see `id_segments` for the others."""
DEFAULTS = {name: default for name, (_, default) in ROW_COLUMNS.items()}
_TYPES_AND_DEFAULTS = {name: (np.dtype(code), default) for name, (code, default) in ROW_COLUMNS.items()}

# Flags of a row. The counted kinds make each message count once.
F_SENT_KNOWN = 1
F_WINDOW_DEFAULT = 2  # the window's end was not reported: it is window_at + the queue's visibility timeout
F_TIMELINE = 4  # its receives, extensions and releases are in `attempts`
F_SENT = 8
F_DELETED, F_DEAD_LETTERED, F_REDRIVEN, F_EXPIRED, F_DROPPED = 16, 32, 64, 128, 256
F_PURGED, F_RECONCILED = 512, 1024
F_ARRIVED, F_ARRIVED_BY_RECEIVE, F_ARRIVED_INFERRED = 2048, 4096, 8192
F_TRIMMED = 16384  # some of its attempts were dropped
F_MOVE_INFERRED = 32768
F_MOVE_REPORTED = 65536
F_TOUCHED = 1 << 17  # one of its deliveries, or the end of one, was reported
F_UNSENT = 1 << 18  # …and its send was not, so far
F_ENTERED = 1 << 20  # its entry into the queue was reported, a send, a redrive or a move, or inferred
F_OUTLIVED = 1 << 19  # it was settled after the visibility window of the delivery that settled it
F_PROCESSING_COUNTED, F_SOJOURN_COUNTED = 1 << 21, 1 << 22  # its time in processing is counted; that in the queue
F_PLACEHOLDER = 1 << 23  # a dead letter inferred in an ordered queue, in the shard of its source: see tracking/placeholder_rows
F_TARGET_UNNAMED = 1 << 24  # its move was reported, but not where to: see tracking/unnamed_targets
F_WAS_REDRIVEN = 1 << 25  # it was redriven, here or from here: its receives may count from one again
F_ENDED = F_DELETED | F_DEAD_LETTERED | F_REDRIVEN | F_EXPIRED | F_DROPPED | F_PURGED | F_RECONCILED


_PLACEHOLDER_KEYS = np.uint64(0x9E3779B97F4A7C15)


def keys_of(hi: Array, lo: Array, queue_hash: Array, flags: Array | np.uint32) -> Array:
    """Return the keys of rows: that of a placeholder is not that of the message's own row."""
    return row_key(hi, lo, _for_keys(queue_hash, flags))


def lows_of(hi: Array, keys: Array, queue_hash: Array, flags: Array | np.uint32) -> Array:
    """Return `lo` of rows from their keys: the reverse of `keys_of`."""
    return lows(hi, keys, _for_keys(queue_hash, flags))


def _for_keys(queue_hash: Array, flags: Array | np.uint32) -> Array:
    is_placeholder = (flags & np.uint32(F_PLACEHOLDER)) != 0
    if not np.any(is_placeholder):
        return queue_hash
    hashes: Array = np.bitwise_xor(queue_hash, np.where(is_placeholder, _PLACEHOLDER_KEYS, np.uint64(0)))
    return hashes


def _defaults(name: str, n: int) -> Array:
    dtype, default = _TYPES_AND_DEFAULTS[name]
    # Hundreds of times per step. `full` takes four times as long for a few rows, and zeros of many cost nothing until written to.
    return np.full(n, default, dtype=dtype) if default else np.zeros(n, dtype=dtype)


class Rows:
    """The message rows, sorted by key. A column that is all default is None until it is written to."""

    __slots__ = ("columns", "key")

    def __init__(self, key: Array, columns: dict[str, Array | None]) -> None:
        self.key = key
        self.columns = columns

    @classmethod
    def empty(cls) -> Rows:
        return cls(np.zeros(0, dtype=np.uint64), dict.fromkeys(ROW_COLUMNS))

    def __len__(self) -> int:
        return len(self.key)

    def has(self, name: str) -> bool:
        """Whether the column has any value other than the default."""
        return self.columns[name] is not None

    def __getitem__(self, name: str) -> Array:
        values = self.columns[name]
        return _defaults(name, len(self.key)) if values is None else values

    def at(self, name: str, rows: Array) -> Array:
        """Return a copy of the column's values at some rows."""
        values = self.columns[name]
        return _defaults(name, len(rows)) if values is None else values[rows]

    def some(self, chosen: Array) -> Rows:
        """Return a copy of some rows, by mask or by index in ascending key order."""
        at = _positions(chosen)
        columns = {name: None if values is None else values[at] for name, values in self.columns.items()}
        return Rows(self.key[at], columns)

    def put(self, name: str, rows: Array, values: Array | int) -> None:
        """Write values at some rows; a column of only defaults stays absent."""
        column = self.columns[name]
        if column is None:
            if np.all(np.asarray(values) == DEFAULTS[name]):
                return
            column = self.columns[name] = self[name]
        column[rows] = values

    def find(self, keys: Array) -> tuple[Array, Array]:
        """Return for each key the row where it is or would be inserted, and whether it exists."""
        at = np.searchsorted(self.key, keys)
        if not len(self.key):
            return at, np.zeros(len(keys), dtype=bool)
        return at, self.key[np.minimum(at, len(self.key) - 1)] == keys

    def insert(self, at: Array, keys: Array) -> None:
        """Insert rows of default values: `keys` ascending, each before row `at`."""
        fresh = at + np.arange(len(keys))
        is_old = np.ones(len(self.key) + len(keys), dtype=bool)
        is_old[fresh] = False

        def widened(values: Array, new: Array | int) -> Array:
            wide = np.empty(len(is_old), dtype=values.dtype)
            wide[is_old] = values
            wide[fresh] = new
            return wide

        self.key = widened(self.key, keys)
        for name, values in self.columns.items():
            if values is not None:
                self.columns[name] = widened(values, DEFAULTS[name])

    def keep(self, mask: Array) -> None:
        """Drop the rows where `mask` is False."""
        at = _positions(mask)
        self.key = self.key[at]
        for name, values in self.columns.items():
            if values is not None:
                self.columns[name] = values[at]

    def reset(self, rows: Array) -> None:
        """Reset some rows to defaults, keeping only their keys."""
        for name in ROW_COLUMNS:
            if name not in ("hi", "lo", "queue", "text", "id_at") and self.columns[name] is not None:
                self.put(name, rows, DEFAULTS[name])


def _positions(chosen: Array) -> Array:
    """Return row indexes: a mask is scanned again for each column it selects from, which takes 2 to 18 times as long."""
    return nonzero(chosen) if chosen.dtype == bool else chosen
