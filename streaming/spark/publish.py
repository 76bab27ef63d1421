"""Merge, judge, publish: the driver's work on the shards' reports of one batch."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from pyspark.sql import DataFrame, Row

from streaming.checkpoint.memory_store import MemoryStore
from streaming.checkpoint.state_files import Pruner, StateFile
from streaming.checkpoint.versions import LOST_FILES, ShardVersion, Version, VersionLedger
from streaming.core.clock import LARGEST_STEP_BACK_MS, count_confirmations
from streaming.core.events.packet import Quarantined
from streaming.core.gc_pause import BatchHeap, gc_paused
from streaming.core.reporting.merge import Merged, merge
from streaming.core.reporting.shard_report import ShardReport
from streaming.core.settings import Settings
from streaming.delivery.outlets import Outlets
from streaming.health.losses import NOTHING, KafkaLosses, named
from streaming.health.monitor import Monitor
from streaming.judge.findings.signals import SignalChange
from streaming.judge.judge import judge
from streaming.judge.memory.memory import JudgeMemory
from streaming.judge.memory.rewind import rewind_memory
from streaming.judge.snapshot import Snapshot
from streaming.spark.batch_time import BatchTimes
from streaming.spark.spool_batches import LostFiles, SpoolBatches
from streaming.spark.spool_in_task import PIECES_READ


@dataclass
class _Judged:
    """What the judge says of a batch."""

    memory: JudgeMemory
    """As it is after the batch."""
    changes: list[SignalChange] = field(default_factory=list)
    invalid: list[Quarantined] = field(default_factory=list)
    latest: tuple[Snapshot, Merged] | None = None
    """Those of the last step for which every shard reported; None when there was none."""


class Publisher:
    """The function for `foreachBatch`."""

    def __init__(
        self,
        *,
        settings: Settings,
        shards: int,
        memories: MemoryStore,
        outlets: Outlets,
        monitor: Monitor,
        pruner: Pruner,
        times: BatchTimes,
        ledger: VersionLedger,
        losses: KafkaLosses | None = None,
        spool: SpoolBatches | None = None,
        lost_before: Mapping[str, int] | None = None,
    ) -> None:
        self._settings = settings
        self._shards = shards
        self._memories = memories
        self._outlets = outlets
        self._monitor = monitor
        self._pruner = pruner
        self._times = times
        self._ledger = ledger
        self._losses = losses
        self._spool = spool
        self._lost_before = lost_before or {}
        """What was lost before the first batch: by the job of the checkpoint that this one was made from."""
        self._heap = BatchHeap()

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Collect the reports (which runs the batch), judge every step in order, and publish the last."""
        now_ms = self._times.announce(batch, batch_id)
        if self._spool is not None:
            self._spool.announce(batch, batch_id)
        rows = batch.collect()
        with gc_paused():
            self._publish(rows, batch_id, now_ms)
            self._heap.freeze()

    def _publish(self, rows: list[Row], batch_id: int, now_ms: int) -> None:
        read = _read(rows)
        files = self._spool.lost(read.pop(PIECES_READ, 0)) if self._spool is not None else None
        judged = self._judge(rows, batch_id)
        # The ledger is written after everything that it vouches for, and states are deleted after the ledger: a process that ends
        # anywhere in between runs the batch again from the same memory, and stores the same records under the same batch id.
        self._send(judged, rows, batch_id, now_ms)
        self._memories.save(batch_id, judged.memory)
        self._save_version(rows, batch_id, now_ms, read, files)
        self._pruner.published(batch_id, {row["shard"]: row["state_files"] for row in rows})

    def _judge(self, rows: list[Row], batch_id: int) -> _Judged:
        """Judge every step of the batch, in order."""
        memory = self._memories.before(batch_id)
        if self._times.clock is not None:
            memory = replace(memory, clock=self._times.clock)
        judged = _Judged(memory)
        for step_ms, reports in steps_of(rows):
            if len(reports) < self._shards:
                # Neither a tick nor a record arrived: totals must not drop to those of a few shards.
                continue
            merged = merge(reports, self._settings)
            if step_ms <= judged.memory.at - LARGEST_STEP_BACK_MS:
                judged.memory = rewind_memory(judged.memory, step_ms)
            judged.memory, snapshot, changes = judge(judged.memory, merged, step_ms, self._settings)
            judged.latest = snapshot, merged
            judged.changes += changes
            judged.invalid += merged.quarantine
        if judged.latest is not None:
            _, merged = judged.latest
            judged.memory.clock = count_confirmations(judged.memory.clock, _newest_times(merged))
        return judged

    def _send(self, judged: _Judged, rows: list[Row], batch_id: int, now_ms: int) -> None:
        """Show the last step, and store the records for the destinations."""
        # The status page and metrics first: they wait for no destination.
        if judged.latest is not None:
            snapshot, merged = judged.latest
            waiting = self._spool.waiting if self._spool is not None else None
            pipeline = self._monitor.published(batch_id, merged, *_state_size(rows), waiting_files=waiting)
            read_ms = self._times.clock.read if self._times.clock is not None else now_ms
            self._outlets.snapshot(replace(snapshot, pipeline=pipeline, behind_ms=read_ms - snapshot.at_ms))
        self._outlets.signals(judged.changes, batch_id)
        self._outlets.quarantine(judged.invalid, batch_id)

    def _save_version(
        self, rows: list[Row], batch_id: int, now_ms: int, read: Mapping[str, int], files: LostFiles | None
    ) -> None:
        """Write the batch's entry of the ledger, with the losses so far."""
        before = self._ledger.before(batch_id)
        shards = {**before.shards, **_shards_of(rows)} if before is not None else _shards_of(rows)
        lost = self._lost(batch_id, read, files, before.lost if before is not None else self._lost_before)
        spool = self._spool.last if self._spool is not None else -1
        self._ledger.save(Version(batch_id=batch_id, now_ms=now_ms, shards=shards, lost=lost, spool=spool))

    def _lost(self, batch_id: int, read: Mapping[str, int], files: LostFiles | None, before: Mapping[str, int]) -> dict[str, int]:
        """Return the total losses by `topic/partition` and files by `LOST_FILES`, including this batch; 0 where none was lost."""
        so_far = {**dict.fromkeys(read, 0), **before}
        losses = self._losses.of(batch_id, read) if self._losses is not None else NOTHING
        for partition, n in losses.lost.items():
            so_far[named(partition)] = so_far.get(named(partition), 0) + n
        for reason, names in files._asdict().items() if files is not None else ():
            so_far[LOST_FILES[reason]] = so_far.get(LOST_FILES[reason], 0) + len(names)
        if so_far:
            self._monitor.lost(batch_id, losses, so_far)
        if files is not None:
            self._monitor.lost_files(batch_id, **files._asdict())
        return so_far


def _read(rows: Iterable[Row]) -> Counter[str]:
    """Return how many Kafka records were read by `topic/partition`, and how many pieces of spool files."""
    read: Counter[str] = Counter()
    for row in rows:
        if row["read"] is not None:
            read.update(json.loads(row["read"]))
    return read


def _newest_times(merged: Merged) -> Iterator[int]:
    """Yield the time up to which each source of telemetry has reported."""
    yield from merged.collectors.values()
    columns = merged.queues.columns
    yield from np.maximum(columns["last_event_at"], columns["last_state_at"]).tolist()


def steps_of(rows: Iterable[Row]) -> list[tuple[int, list[ShardReport]]]:
    """Return the shards' reports by step, ordered by time and, within a step, by shard."""
    steps: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for row in rows:
        steps[row["step_ms"]].append((row["shard"], row["report"]))
    return [(step_ms, [ShardReport.from_bytes(report) for _, report in sorted(steps[step_ms])]) for step_ms in sorted(steps)]


def _shards_of(rows: Iterable[Row]) -> dict[int, ShardVersion]:
    return {
        row["shard"]: ShardVersion(tuple(map(StateFile.of, row["state_files"])), row["state_bytes"], row["state_rows"])
        for row in rows
    }


def _state_size(rows: Iterable[Row]) -> tuple[int, int]:
    by_shard = {row["shard"]: (row["state_bytes"], row["state_rows"]) for row in rows}
    return sum(size for size, _ in by_shard.values()), sum(count for _, count in by_shard.values())
