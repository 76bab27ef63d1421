"""Merge, judge, publish: what the driver does with the shards' reports of one batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql import DataFrame, Row

from streaming.core.garbage import not_collecting
from streaming.core.packet import Quarantined
from streaming.core.report import Merged, ShardReport, merge
from streaming.core.settings import Settings
from streaming.judge.judge import judge
from streaming.judge.signals import SignalChange
from streaming.judge.snapshot import Snapshot
from streaming.spark.batch_time import BatchTimes
from streaming.spark.memory_store import MemoryStore
from streaming.spark.monitor import Monitor
from streaming.spark.outlets import Outlets
from streaming.spark.state_files import Pruner


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
        times: BatchTimes,
    ) -> None:
        self._settings = settings
        self._shards = shards
        self._memories = memories
        self._outlets = outlets
        self._monitor = monitor
        self._pruner = pruner
        self._times = times

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Collect the reports (this is what runs the batch), judge every step in order, publish the last."""
        self._times.tell(batch, batch_id)
        rows = batch.collect()
        with not_collecting():
            self._publish(rows, batch_id)

    def _publish(self, rows: list[Row], batch_id: int) -> None:
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
        self._outlets.signals(changes, batch_id)
        self._outlets.quarantine(invalid, batch_id)
        self._memories.save(batch_id, memory)
        self._pruner.published({row["shard"]: row["state_files"] for row in rows})
        if snapshot is not None and merged is not None:
            pipeline = self._monitor.published(batch_id, merged, *_state_size(rows))
            self._outlets.snapshot(replace(snapshot, pipeline=pipeline))


def steps_of(rows: Iterable[Row]) -> list[tuple[int, list[ShardReport]]]:
    """The shards' reports by step, in the order of time, each step's in the order of shards."""
    steps: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for row in rows:
        steps[row["step_ms"]].append((row["shard"], row["report"]))
    return [(step_ms, [ShardReport.from_bytes(report) for _, report in sorted(steps[step_ms])]) for step_ms in sorted(steps)]


def _state_size(rows: Iterable[Row]) -> tuple[int, int]:
    by_shard = {row["shard"]: (row["state_bytes"], row["state_rows"]) for row in rows}
    return sum(size for size, _ in by_shard.values()), sum(count for _, count in by_shard.values())
