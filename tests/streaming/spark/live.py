"""A real query on a test's own folder, which the test starts and stops."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sinks.clock import wall_ms
from streaming.checkpoint.memory_store import MemoryStore
from streaming.checkpoint.offset_log import batch_ids
from streaming.checkpoint.seed import read_seed
from streaming.checkpoint.spool_migration import migrate
from streaming.checkpoint.state_files import VERSIONS_KEPT, Pruner, state_keeper
from streaming.checkpoint.tick_log import continue_ticks
from streaming.checkpoint.versions import VersionLedger
from streaming.config.source import Sources, SpoolSource
from streaming.core.events.packet import Quarantined
from streaming.core.settings import Settings
from streaming.delivery.outlets import Outlets
from streaming.folder import LocalFolder
from streaming.health.monitor import Monitor
from streaming.judge.findings.signals import SignalChange
from streaming.judge.snapshot import Snapshot
from streaming.spark import pipeline
from streaming.spark.batch_barrier import BatchBarrier
from streaming.spark.batch_time import BatchTimes
from streaming.spark.publish import Publisher
from streaming.spark.readers.kafka import Topics
from streaming.spark.spool_batches import SpoolBatches, lanes_of
from streaming.spool.ledger import Plan, SpoolLedger
from streaming.spool.planner import SpoolPlanner
from tests.streaming.spark.packets import ndjson

SHARDS = 2
WITHIN_S = 60.0


class Live:
    """A pipeline's folder, and everything it has published over any number of runs."""

    def __init__(self, spark: SparkSession, folder: Path, settings: Settings | None = None, shards: int = SHARDS) -> None:
        self.spark = spark
        self.shards = shards
        self.spool = folder / "spool"
        self.spool.mkdir()
        self.checkpoint = folder / "checkpoint"
        self.checkpoint_uri: str | None = None
        """What the pipeline gets instead of its path."""
        self.sources = Sources(spool=SpoolSource(folder=str(self.spool)))
        self.kept = VERSIONS_KEPT
        """The number of batches after which files that were read are removed."""
        self.planned: Callable[[Plan], object] = lambda _: None
        """Called when a batch is planned but not yet read."""
        self.topics: Topics | None = None
        self.settings = settings or Settings()
        self.snapshots: list[Snapshot] = []
        self.changes: list[tuple[int, SignalChange]] = []
        self.quarantined: list[Quarantined] = []
        self.batches: list[tuple[int, list[tuple[int, int, bytes]]]] = []
        """Batch id and (shard, step, report) of each batch's rows; a batch that ran again is listed twice."""
        self.breaks: Callable[[], bool] = lambda: False
        """Whether to crash now: the batch is published, but Spark has not committed it."""
        self._news = threading.Condition()

    def send(self, *events: dict[str, Any], suffix: str = "ndjson") -> Path:
        """Add a file with these events."""
        return self.put(ndjson(*events), suffix)

    def put(self, content: bytes, suffix: str = "ndjson") -> Path:
        """Add a file with this content."""
        path = self.spool / f"{uuid.uuid4().hex}.{suffix}"
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(content)
        return part.rename(path)

    @contextmanager
    def running(self) -> Iterator[StreamingQuery]:
        """Run the query until the end of the block."""
        barrier = BatchBarrier()
        query = self._start(barrier)
        try:
            yield query
        finally:
            barrier.close()
            while query.isActive and not barrier.wait_held(0.1):
                pass
            query.stop()

    def wait(self, done: Callable[[Snapshot], bool], query: StreamingQuery | None = None) -> Snapshot:
        """Return the first snapshot that satisfies `done`, published already or yet to come."""
        deadline = time.monotonic() + WITHIN_S
        looked = 0
        with self._news:
            while time.monotonic() < deadline:
                for snapshot in self.snapshots[looked:]:
                    if done(snapshot):
                        return snapshot
                looked = len(self.snapshots)
                self._news.wait(0.5)
                if query is not None and not query.isActive:
                    raise AssertionError(f"the query ended: {query.exception()}")
        last = self.snapshots[-1] if self.snapshots else None
        raise AssertionError(f"no such snapshot within {WITHIN_S} s; the last of {len(self.snapshots)}: {last}")

    def wait_batch(self) -> None:
        """Wait until one more batch is published."""
        with self._news:
            before = len(self.batches)
            self._news.wait_for(lambda: len(self.batches) > before, 10)

    def _start(self, barrier: BatchBarrier) -> StreamingQuery:
        continue_ticks(lambda name: LocalFolder(self.checkpoint / name), wall_ms())
        seed = read_seed(self.checkpoint)
        keeper = state_keeper(str(self.checkpoint), seed.states if seed is not None else None)
        outlets = Outlets(self._take_snapshot, self._take_changes, self._take_invalid)
        memories = MemoryStore(LocalFolder(self.checkpoint / "judge"))
        times = BatchTimes(LocalFolder(self.checkpoint / "offsets"), memories)
        ledger = VersionLedger(LocalFolder(self.checkpoint / "versions"))
        spool = self._spool()
        committed = max(batch_ids(LocalFolder(self.checkpoint / "commits")), default=-1)
        pruner = Pruner(keeper, self.shards, earlier=ledger.files(committed))
        publisher = Publisher(
            settings=self.settings,
            shards=self.shards,
            memories=memories,
            outlets=outlets,
            monitor=Monitor(),
            pruner=pruner,
            times=times,
            ledger=ledger,
            spool=spool,
        )

        def publish(batch: DataFrame, batch_id: int) -> None:
            publisher(_Recorded(batch, lambda rows: self._record(batch_id, rows)), batch_id)  # type: ignore[arg-type] # collect only
            if self.breaks():
                raise RuntimeError("crashed before the batch was committed")

        # A query keeps the settings that its session has at the start.
        partitions = str(self.spark.conf.get("spark.sql.shuffle.partitions"))
        self.spark.conf.set("spark.sql.shuffle.partitions", self.shards)
        try:
            return pipeline.start(
                self.spark,
                self.sources,
                self.topics,
                self.settings,
                barrier.guarding(publish),
                keeper,
                shards=self.shards,
                trigger_interval_s=0,
                checkpoint=self.checkpoint_uri or str(self.checkpoint),
            )
        finally:
            self.spark.conf.set("spark.sql.shuffle.partitions", partitions)

    def _spool(self) -> SpoolBatches | None:
        if self.sources.spool is None:
            return None
        ledger = SpoolLedger(LocalFolder(self.checkpoint / "spool"), kept=VERSIONS_KEPT)
        migrate(lambda name: LocalFolder(self.checkpoint / name), self.spool, ledger)
        planner = _Watched(self.sources.spool, self.spool, ledger, time.monotonic, self.kept)
        planner.planned = self.planned
        return SpoolBatches(
            planner, lanes_of(self.spark.sparkContext.defaultParallelism), LocalFolder(self.checkpoint / "offsets")
        )

    def _record(self, batch_id: int, rows: Sequence[Any]) -> None:
        with self._news:
            self.batches.append((batch_id, sorted((r["shard"], r["step_ms"], r["report"]) for r in rows)))
            self._news.notify_all()

    def _take_changes(self, changes: Sequence[SignalChange], batch_id: int) -> None:
        self.changes += [(batch_id, change) for change in changes]

    def _take_invalid(self, invalid: Sequence[Quarantined], _: int) -> None:
        self.quarantined += invalid

    def _take_snapshot(self, snapshot: Snapshot) -> None:
        with self._news:
            self.snapshots.append(snapshot)
            self._news.notify_all()


class _Watched(SpoolPlanner):
    """A planner that passes on each plan before it is read."""

    planned: Callable[[Plan], object]

    def plan(self, batch_id: int, changed_by_ms: int | None = None) -> Plan:
        """Plan as usual, and call `planned`."""
        plan = super().plan(batch_id, changed_by_ms)
        self.planned(plan)
        return plan


class _Recorded:
    """A batch's frame that records the collected rows."""

    def __init__(self, batch: DataFrame, note: Callable[[Sequence[Any]], None]) -> None:
        self._batch = batch
        self._note = note
        self.sparkSession = batch.sparkSession

    def collect(self) -> Sequence[Any]:
        """Run the batch."""
        rows = self._batch.collect()
        self._note(rows)
        return rows
