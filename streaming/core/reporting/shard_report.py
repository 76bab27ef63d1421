"""The report of one shard after a step."""

from __future__ import annotations

import pickle
import struct
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final

from streaming.core.columns import CODEC
from streaming.core.events.packet import Quarantined
from streaming.core.gc_pause import gc_paused
from streaming.core.reporting.narrowing import Narrowing
from streaming.core.reporting.queue_columns import QueueColumns
from streaming.core.reporting.report import Arrival


@dataclass(slots=True)
class ShardReport:
    """The report of one shard at `now`."""

    now: int
    rows: int
    queues: QueueColumns
    arrivals: list[Arrival]
    """The latest `arrivals_per_queue` of each dead-letter queue."""
    arrivals_per_queue: int
    events_total: Counter[str]
    invalid_total: Counter[str]
    collectors: dict[str, int]
    quarantine: list[Quarantined]
    high_water: int

    def to_bytes(self) -> bytes:
        """Serialize the report, compressed, to send it from a worker to a driver of the same release; not for storage."""
        # Joined at the end: a buffer that grows to megabytes is copied again and again, which takes a quarter of the time.
        parts: list[bytes] = []
        Narrowing(SimpleNamespace(write=parts.append), protocol=5).dump(self)
        body = b"".join(parts)
        # It shrinks to a tenth, in a small part of the time that its way through Java takes.
        return b"".join((_LENGTH.pack(len(body)), CODEC.compress(body, asbytes=True)))

    @classmethod
    def from_bytes(cls, blob: bytes) -> ShardReport:
        """Read the report from the bytes of `to_bytes`."""
        (length,) = _LENGTH.unpack_from(blob)
        with gc_paused():
            body = CODEC.decompress(memoryview(blob)[_LENGTH.size :], length)
            report = pickle.loads(body)  # noqa: S301 -- written by our own workers; see docs/reliability.md
        if not isinstance(report, cls):
            raise TypeError(f"not a shard report: {type(report).__name__}")
        return report


_LENGTH: Final = struct.Struct("<Q")
"""The bytes before compression."""
