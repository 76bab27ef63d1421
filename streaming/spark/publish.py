"""Merge, judge, publish: what the driver does with the shards' reports of one batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import structlog
from pyspark.sql import DataFrame, Row

from streaming.core.packet import Quarantined
from streaming.core.report import Merged, ShardReport, merge
from streaming.core.settings import Settings
from streaming.judge.judge import judge
from streaming.judge.signals import SignalChange
from streaming.judge.snapshot import Snapshot
from streaming.spark.memory_store import MemoryStore
from streaming.spark.monitor import Monitor
from streaming.spark.state_files import Pruner

_log = structlog.get_logger(__name__)
T = TypeVar("T")

UNDELIVERED_KEPT = 10_000
"""Changes (and invalid events) kept in memory while their destination does not take them; beyond, the oldest go."""


@dataclass(frozen=True)
class Outlets:
    """Where results go. Each is given the batch id, for a batch may run twice and must leave one copy."""

    signals: Callable[[Sequence[SignalChange], int], None]
    quarantine: Callable[[Sequence[Quarantined], int], None]
    snapshot: Callable[[Snapshot], None]


class Publisher:
    """The function for `foreachBatch`."""

    def __init__(
        self,
        settings: Settings,
        shards: int,
        memories: MemoryStore,
        outlets: Outlets,
        monitor: Monitor,
        pruner: Pruner,
    ) -> None:
        self._settings = settings
        self._shards = shards
        self._memories = memories
        self._outlets = outlets
        self._signals = Delivery("signal_log", outlets.signals)
        self._quarantine = Delivery("quarantine", outlets.quarantine)
        self._monitor = monitor
        self._pruner = pruner

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Collect the reports (this is what runs the batch), judge every step in order, publish the last."""
        rows = batch.collect()
        memory = self._memories.before(batch_id)
        changes: list[SignalChange] = []
        invalid: list[Quarantined] = []
        snapshot: Snapshot | None = None
        merged: Merged | None = None
        for step_ms, reports in steps_of(rows):
            if len(reports) < self._shards:
                # Only where neither a tick nor a record came: totals must not drop to those of a few shards.
                continue
            merged = merge(reports, self._settings)
            memory, snapshot, changed = judge(memory, merged, step_ms, self._settings)
            changes += changed
            invalid += merged.quarantine
        self._signals.deliver(changes, batch_id)
        self._quarantine.deliver(invalid, batch_id)
        self._memories.save(batch_id, memory)
        self._pruner.published(row["state_file"] for row in rows)
        if snapshot is not None and merged is not None:
            pipeline = self._monitor.published(batch_id, merged, *_state_size(rows))
            self._outlets.snapshot(replace(snapshot, pipeline=pipeline))


class Delivery:
    """Hands the results of each batch to one destination; while it fails, keeps them and tries again with the next.

    A destination that is down must neither stop the others nor the job.
    """

    def __init__(self, name: str, send: Callable[[Sequence[Any], int], None]) -> None:
        self._name = name
        self._send = send
        self._waiting: list[tuple[int, Sequence[Any]]] = []

    def deliver(self, items: Sequence[Any], batch_id: int) -> None:
        """Send what waits and then `items`, batch by batch. Never raises for what the destination raises."""
        self._waiting.append((batch_id, items))
        while self._waiting:
            waiting_id, waiting = self._waiting[0]
            try:
                self._send(waiting, waiting_id)
            except Exception as error:
                _log.error(f"{self._name}_failed", error=str(error), batches_waiting=len(self._waiting))
                self._drop_oldest()
                return
            del self._waiting[0]

    def _drop_oldest(self) -> None:
        # Batches with nothing to say need no second try.
        self._waiting = [(batch_id, items) for batch_id, items in self._waiting if items]
        while len(self._waiting) > 1 and sum(len(items) for _, items in self._waiting) > UNDELIVERED_KEPT:
            batch_id, items = self._waiting.pop(0)
            _log.error(f"{self._name}_lost", batch_id=batch_id, items=len(items))


def steps_of(rows: Iterable[Row]) -> list[tuple[int, list[ShardReport]]]:
    """The shards' reports by step, in the order of time, each step's in the order of shards."""
    steps: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for row in rows:
        steps[row["step_ms"]].append((row["shard"], row["report"]))
    return [(step_ms, [ShardReport.from_bytes(report) for _, report in sorted(steps[step_ms])]) for step_ms in sorted(steps)]


def _state_size(rows: Iterable[Row]) -> tuple[int, int]:
    by_shard = {row["shard"]: (row["state_bytes"], row["state_rows"]) for row in rows}
    return sum(size for size, _ in by_shard.values()), sum(count for _, count in by_shard.values())
