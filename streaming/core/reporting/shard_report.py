"""The report of one shard after a step."""

from __future__ import annotations

import io
import pickle
import struct
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from streaming.core.columns import Array
from streaming.core.events.packet import Quarantined
from streaming.core.gc_pause import gc_paused
from streaming.core.reporting.queue_columns import QueueColumns
from streaming.core.reporting.report import Arrival


@dataclass(slots=True)
class ShardReport:
    """The report of one shard at `now`."""

    now: int
    rows: int
    queues: QueueColumns
    arrivals: list[Arrival]
    """The latest `messages_per_queue` of each dead-letter queue."""
    events_total: Counter[str]
    invalid_total: Counter[str]
    collectors: dict[str, int]
    quarantine: list[Quarantined]
    high_water: int

    def to_bytes(self) -> bytes:
        """Serialize the report, compressed, to send it from a worker to a driver of the same release; not for storage."""
        body = io.BytesIO()
        _Narrowing(body, protocol=5).dump(self)
        return b"".join((_LENGTH.pack(body.tell()), _CODEC.compress(body.getbuffer(), asbytes=True)))

    @classmethod
    def from_bytes(cls, blob: bytes) -> ShardReport:
        """Read the report from the bytes of `to_bytes`."""
        (length,) = _LENGTH.unpack_from(blob)
        with gc_paused():
            body = _CODEC.decompress(memoryview(blob)[_LENGTH.size :], length)
            report = pickle.loads(body)  # noqa: S301 -- written by our own workers; see docs/reliability.md
        if not isinstance(report, cls):
            raise TypeError(f"not a shard report: {type(report).__name__}")
        return report


# A report shrinks to a tenth, in a small part of the time that its way through Java takes.
_CODEC: Final = pa.Codec("zstd", compression_level=1)
_LENGTH: Final = struct.Struct("<Q")
"""The bytes before compression."""


class _Narrowing(pickle.Pickler):
    """Writes integer columns in as few bytes as their values need: most are small, or the same for all queues."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not np.ndarray or value.dtype != np.int64 or value.size < _FEWEST:
            return NotImplemented
        low, high = int(value.min()), int(value.max())
        if low == high:
            return _constant, (low, value.shape)
        narrow = next((dtype for dtype in _NARROW if high - low <= np.iinfo(dtype).max), None)
        return NotImplemented if narrow is None else (_widened, (low, (value - low).astype(narrow)))


_NARROW: Final = (np.uint8, np.uint16, np.uint32)
_FEWEST: Final = 64
"""Shorter columns are written as they are."""


def _constant(value: int, shape: tuple[int, ...]) -> Array:
    # One number in memory, whatever the shape. It cannot be written to, and nobody writes to a report.
    return np.broadcast_to(np.int64(value), shape)


def _widened(low: int, values: Array) -> Array:
    wide: Array = values.astype(np.int64)
    wide += low
    return wide
