"""What one shard reports after a step."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass

from streaming.core.events.packet import Quarantined
from streaming.core.garbage import not_collecting
from streaming.core.reporting.queue_columns import QueueColumns
from streaming.core.reporting.report import Arrival


@dataclass(slots=True)
class ShardReport:
    """What one shard says as of `now`."""

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
        """For the way from a worker to the driver of the same release; not for keeping."""
        return pickle.dumps(self, protocol=5)

    @classmethod
    def from_bytes(cls, blob: bytes) -> ShardReport:
        """The report of `to_bytes`."""
        with not_collecting():
            report = pickle.loads(blob)
        if not isinstance(report, cls):
            raise TypeError(f"not a shard report: {type(report).__name__}")
        return report
