"""The life cycle of the streaming job: session, checkpoint, query, restarts after a failure, and a clean stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Literal

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sinks.clock import wall_ms
from streaming.checkpoint import versions
from streaming.checkpoint.lease import Lease
from streaming.checkpoint.manifest import Checkpoint, claim, find, locked
from streaming.checkpoint.memory_store import FOLDER as MEMORIES
from streaming.checkpoint.memory_store import MemoryStore
from streaming.checkpoint.offset_log import COMMITS, Partition, batch_ids, with_offsets
from streaming.checkpoint.offset_log import FOLDER as OFFSETS
from streaming.checkpoint.order import check_order, order_of, queues_out_of_place, queues_remembered
from streaming.checkpoint.recovery import recover, remove_unfinished_files
from streaming.checkpoint.seed import read_seed
from streaming.checkpoint.spark_files import rewrite_spark_file
from streaming.checkpoint.spool_migration import migrate
from streaming.checkpoint.state_files import VERSIONS_KEPT, Pruner, state_keeper
from streaming.checkpoint.tick_log import continue_ticks
from streaming.checkpoint.versions import VersionLedger
from streaming.config.errors import ConfigError
from streaming.config.model import Config, to_settings
from streaming.config.service import Restarts
from streaming.delivery.outlets import Outlets
from streaming.errors import JobError, QueryFailed, SourceUnavailable, SparkDied
from streaming.folder import Folder, local_folder
from streaming.health.liveness import Watchdog
from streaming.health.losses import Brokers, KafkaLosses
from streaming.health.monitor import Monitor
from streaming.spark import pipeline
from streaming.spark.batch_barrier import BatchBarrier
from streaming.spark.batch_time import BatchTimes
from streaming.spark.failure import is_full_disk, reason_of
from streaming.spark.hadoop_folder import open_folder
from streaming.spark.internals import java_lives, java_pid
from streaming.spark.listener import ProgressListener
from streaming.spark.publish import Publisher
from streaming.spark.readers.kafka import Topics, survey
from streaming.spark.readers.spool import prepare_spool, spool_path
from streaming.spark.scratch import scratch_for
from streaming.spark.session import open_session
from streaming.spark.spool_batches import SpoolBatches, lanes_of
from streaming.spool.ledger import FOLDER as SPOOLED
from streaming.spool.ledger import SpoolLedger
from streaming.spool.planner import SpoolPlanner

DRAIN_WITHIN_S = 60.0
"""How long a batch may take to finish before a stop interrupts it."""

IDLE_WITHIN_S = 2.0
"""How long a stop between two batches waits for the next one. Stopped where it is held, the query is in the middle of nothing;
with a long trigger interval it hardly begins meanwhile."""

FolderOf = Callable[[str], Folder]
"""Returns a folder of the checkpoint by its name, which may have slashes."""

FULL_DISK_WAIT_S = 5.0
"""The interval at which a full disk is retried, without limit."""

SET_BACK_MS = 5_000
"""When the clock is set back by more than this, the query is restarted: Spark would wait until the clock has caught up."""

SILENT_AFTER_S = 15.0
"""After this long without a batch, the log says what the job waits for; again after twice as long, and so on."""

_LOOK_EVERY_S = 0.2
_log = structlog.get_logger(__name__)


class Job:
    """One streaming query and everything it needs. Created by `open_job`."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        checkpoint: Checkpoint,
        lease: Lease | None,
        topics: Topics | None,
        outlets: Outlets,
        monitor: Monitor,
    ) -> None:
        self.spark = spark
        self.checkpoint = checkpoint
        self._config = config
        self._lease = lease
        self._topics = topics
        self._settings = to_settings(config)
        self._outlets = outlets
        self._monitor = monitor
        self._liveness = monitor.liveness
        self._watchdog = Watchdog(monitor.liveness, java_pid, deadline_s=config.spark.batch_deadline_s)
        kafka = config.source.kafka
        self._brokers = Brokers(kafka) if kafka is not None else None
        self._losses = KafkaLosses(self._folder(OFFSETS), self._brokers.earliest) if self._brokers is not None else None

    def close(self) -> None:
        """Close the connection to the brokers."""
        if self._brokers is not None:
            self._brokers.close()

    def run(self, stop: threading.Event) -> None:
        """Run the query until `stop` is set, then let the current batch finish. Restarts the query when it fails.

        Raises `QueryFailed` when restarts do not help, `SparkDied`, and `CheckpointInUse` when another job took the checkpoint.
        """
        try:
            self._run(stop)
        except Exception as error:
            if isinstance(error, JobError) or java_lives():
                raise
            if self._watchdog.ended_java is not None:
                raise SparkDied(
                    f"Spark hung and was ended: {self._watchdog.ended_java}",
                    "Start again: it goes on from its checkpoint. See the log above for what it was doing",
                ) from error
            # The last call into Java failed, in one of many ways.
            raise SparkDied(
                "Spark's Java process ended unexpectedly, perhaps for lack of memory",
                "See the log above and the system's; lower spark.driver_memory or give the machine more",
            ) from error

    def _run(self, stop: threading.Event) -> None:
        failures = _Failures(self._config.restarts)
        topics = self._topics
        while not stop.is_set():
            try:
                self._run_query(topics if topics is not None else survey_of(self._config), stop)
            except Exception as error:
                problem = error.problem if isinstance(error, JobError) else reason_of(error)
                if is_full_disk(error) and java_lives():
                    # This is temporary, and a restarted process would find the disk just as full.
                    problem, wait_s = f"a disk is full: {problem}", FULL_DISK_WAIT_S
                elif isinstance(error, QueryFailed | SourceUnavailable):
                    wait_s = failures.next_wait_s(self._monitor.last_committed, error)
                else:
                    raise
                self._liveness.doing = problem
                _log.error("query_failed", error=problem, restart_in_s=wait_s)
                stop.wait(wait_s)
                topics = None

    def _run_query(self, topics: Topics | None, stop: threading.Event) -> None:
        """Run a query until there is a reason to end it, then let its batch finish. Raises `QueryFailed` when it fails."""
        query, barrier = self._start(topics)
        try:
            is_drained = self._watch(query, barrier, stop)
        except BaseException:
            # Why it is to end says more than that it does not stop.
            self._stop(query, forever=True)
            raise
        self._stop(query, forever=stop.is_set())
        if not is_drained:
            cause = query.exception()
            raise QueryFailed(f"the streaming query failed: {reason_of(cause)}", "See the log above") from cause

    def _watch(self, query: StreamingQuery, barrier: BatchBarrier, stop: threading.Event) -> bool:
        """Watch a query until there is a reason to end it, and let its batch finish; False when it ended by itself."""
        with self._watchdog.watching():
            log_at_s = SILENT_AFTER_S
            looked_ms = wall_ms()
            while query.isActive:
                if self._lease is not None:
                    self._lease.check()
                stop.wait(_LOOK_EVERY_S)
                before_ms, looked_ms = looked_ms, wall_ms()
                reason = self._reason_to_end(stop, set_back_ms=before_ms - looked_ms)
                if reason is not None:
                    # After the clock was set back, the next batch may be due in a year.
                    _drain(query, barrier, idle_within_s=0.0 if reason == "clock set back" else IDLE_WITHIN_S)
                    return True
                log_at_s = self._watch_silence(query, log_at_s)
        return False

    def _reason_to_end(self, stop: threading.Event, *, set_back_ms: int) -> Literal["stop", "reset", "clock set back"] | None:
        """Return why the query, which works, is to be ended. After all but a stop, another one is started."""
        if stop.is_set():
            return "stop"
        if self._monitor.pending_reset():
            return "reset"
        if set_back_ms > SET_BACK_MS:
            _log.warning("clock_set_back", by_s=set_back_ms // 1000, action="restarting the query")
            return "clock set back"
        return None

    def _watch_silence(self, query: StreamingQuery, log_at_s: float) -> float:
        """Log that no batch was committed for `log_at_s`. Return after which silence to log next."""
        silent_s = self._liveness.query_silent_s
        if silent_s < SILENT_AFTER_S:
            return SILENT_AFTER_S
        if silent_s < log_at_s:
            return log_at_s
        self._log_silence(query, silent_s)
        return 2 * silent_s

    def _stop(self, query: StreamingQuery, *, forever: bool) -> None:
        """Stop the query. One that hangs, as while brokers do not answer, fails a restart, but not the end of the service."""
        if not java_lives():
            return
        try:
            query.stop()
        except Exception as error:
            if not forever:
                raise
            _log.warning("query_not_stopped", reason=reason_of(error), effect="its batch runs again after the next start")

    def _log_silence(self, query: StreamingQuery, silent_s: float) -> None:
        """Log that nothing was committed for a while, and what Spark is waiting for."""
        doing = str(query.status["message"])
        self._liveness.doing = f"no batch for {silent_s:.0f} s; Spark: {doing}"
        hint = "the brokers may not answer" if "Kafka" in doing else "a large batch, or a worker that hangs"
        _log.warning("no_progress", silent_s=round(silent_s), doing=doing, hint=hint)

    def _start(self, topics: Topics | None) -> tuple[StreamingQuery, BatchBarrier]:
        """Start a query, with the barrier that its batches pass."""
        spark_config = self._config.spark
        location = spark_config.checkpoint_dir
        local = local_folder(location)
        if local is not None:
            recover(local.path)
        if beyond_s := continue_ticks(self._folder, wall_ms()):
            _log.warning("clock_far_from_last_batch", by_s=beyond_s, effect="ticks continue from the last batch")
        if reset := self._monitor.pending_reset():
            self._read_from_beginning(reset)
            self._monitor.reset_done(reset)
        seed = read_seed(local.path) if local is not None else None
        keeper = state_keeper(location, seed.states if seed is not None else None)
        kept = self._versions_kept()
        memories = MemoryStore(self._folder(MEMORIES), kept=kept)
        ledger = VersionLedger(self._folder(versions.FOLDER), kept=kept)
        committed = max(batch_ids(self._folder(COMMITS)), default=-1)
        publisher = Publisher(
            settings=self._settings,
            shards=spark_config.shards,
            memories=memories,
            outlets=self._outlets,
            monitor=self._monitor,
            pruner=Pruner(keeper, spark_config.shards, kept=kept, earlier=ledger.files(committed)),
            times=BatchTimes(self._folder(OFFSETS), memories),
            ledger=ledger,
            losses=self._losses,
            spool=self._spool(kept),
            lost_before=seed.lost if seed is not None else None,
        )
        barrier = BatchBarrier()
        query = pipeline.start(
            self.spark,
            self._config.source,
            topics,
            self._settings,
            barrier.guarding(publisher),
            keeper,
            shards=spark_config.shards,
            trigger_interval_s=spark_config.trigger_interval_s,
            checkpoint=location,
            starting=seed.kafka if seed is not None else None,
        )
        return query, barrier

    def _spool(self, kept: int) -> SpoolBatches | None:
        """Return the reader of the spool folder, if the folder is on this machine."""
        source = self._config.source.spool
        path = spool_path(source) if source is not None else None
        if source is None or path is None:
            return None
        ledger = SpoolLedger(self._folder(SPOOLED), kept=kept)
        migrate(self._folder, path, ledger)
        planner = SpoolPlanner(source=source, folder=path, ledger=ledger, clock_s=time.monotonic, kept=kept)
        return SpoolBatches(planner, lanes_of(self.spark.sparkContext.defaultParallelism), self._folder(OFFSETS))

    def _read_from_beginning(self, reset: Mapping[Partition, int]) -> None:
        """Let the next query read partitions from their start: after a reset, Spark resumed at their end."""
        folder = self._folder(OFFSETS)
        committed = str(max(batch_ids(self._folder(COMMITS)), default=-1))
        logged = folder.read(committed)
        if logged is not None:
            rewrite_spark_file(folder, committed, with_offsets(logged, dict.fromkeys(reset, 0)))

    def _versions_kept(self) -> int:
        """Return a few more than Spark keeps of its own."""
        return max(VERSIONS_KEPT, int(self.spark.conf.get("spark.sql.streaming.minBatchesToRetain") or 0) + 5)

    def _folder(self, name: str) -> Folder:
        return open_folder(self.spark, f"{self._config.spark.checkpoint_dir.rstrip('/')}/{name}")


@contextmanager
def open_job(
    config: Config, outlets_for: Callable[[Checkpoint, FolderOf], AbstractContextManager[Outlets]], monitor: Monitor
) -> Iterator[Job]:
    """Open a job that is ready to run, with its outlets, its session and its checkpoint: at the end of the block, it closes them.

    `outlets_for` opens the outlets once the checkpoint is known, with folders in it for their data. They are closed before the
    checkpoint is released: the next job sends what waits in these folders. Raises `RuntimeUnavailable` (no Java, no connector),
    `CheckpointMismatch`, `CheckpointInUse` or `SourceUnavailable`.
    """
    kinds = source_kinds(config)
    if config.source.spool is not None:
        prepare_spool(config.source.spool)
    location, shards, settings = config.spark.checkpoint_dir, config.spark.shards, to_settings(config)
    with ExitStack() as stack:
        # Checks that can fail at once come before Spark, which takes seconds to start.
        local, scratch = local_folder(location), None
        if local is not None:
            stack.enter_context(locked(local))
            found = find(local, location, shards=shards, sources=kinds)
            check_order(found, location, settings, lambda: queues_out_of_place(local.path, settings))
            remove_unfinished_files(local.path)
            scratch = stack.enter_context(scratch_for(local.path))
        topics = survey_of(config)
        spark = open_session(
            config.spark,
            app_name="queuewatch",
            with_kafka=config.source.kafka is not None,
            log_level=config.log.spark_level,
            scratch=scratch,
        )
        stack.callback(_close, spark)
        root = open_folder(spark, location)
        lease = stack.enter_context(Lease(root, location).held()) if local is None else None
        if local is None:
            found = find(root, location, shards=shards, sources=kinds)
            memories = f"{location.rstrip('/')}/{MEMORIES}"
            check_order(found, location, settings, lambda: queues_remembered(open_folder(spark, memories)))
        checkpoint = claim(root, location, shards=shards, sources=kinds, order=order_of(settings))
        spark.streams.addListener(ProgressListener(monitor.progressed))
        _log.info(
            "job_ready",
            checkpoint=location,
            checkpoint_id=checkpoint.id,
            shards=checkpoint.shards,
            sources=kinds,
            spark=spark.version,
            master=spark.sparkContext.master,
        )
        outlets = stack.enter_context(outlets_for(checkpoint, lambda name: open_folder(spark, f"{location.rstrip('/')}/{name}")))
        job = Job(spark=spark, config=config, checkpoint=checkpoint, lease=lease, topics=topics, outlets=outlets, monitor=monitor)
        stack.callback(job.close)
        yield job


def survey_of(config: Config) -> Topics | None:
    """Survey the Kafka source, None without one. Raises `SourceUnavailable`."""
    return survey(config.source.kafka) if config.source.kafka is not None else None


def source_kinds(config: Config) -> tuple[str, ...]:
    """Return the kinds of source in the order the pipeline reads them. Raises `ConfigError` when there is none."""
    kinds = tuple(kind for kind in ("kafka", "spool") if getattr(config.source, kind) is not None)
    if not kinds:
        raise ConfigError("source", "there is nothing to read: no source is configured", "Add source.kafka or source.spool")
    return kinds


def _close(spark: SparkSession) -> None:
    if java_lives():
        spark.stop()


def _drain(query: StreamingQuery, barrier: BatchBarrier, *, idle_within_s: float) -> None:
    """Let the current batch be finished and committed; the next one does not start.

    Between two batches, wait for the next one to be held, but no longer than `idle_within_s`.
    """
    barrier.close()
    began_s = time.monotonic()
    while query.isActive and (waited_s := time.monotonic() - began_s) < DRAIN_WITHIN_S:
        if barrier.wait_held(_LOOK_EVERY_S):
            return
        if waited_s >= idle_within_s and not query.status["isTriggerActive"]:
            return


class _Failures:
    """Counts consecutive failures and decides how long to wait."""

    def __init__(self, restarts: Restarts) -> None:
        self._restarts = restarts
        self._in_a_row = 0
        self._last_committed: int | None = None

    def next_wait_s(self, committed: int | None, error: JobError) -> float:
        if committed != self._last_committed:
            self._in_a_row = 0
        self._last_committed = committed
        self._in_a_row += 1
        if self._in_a_row >= self._restarts.max_failures:
            problem = f"{error.problem} ({self._in_a_row} failures in a row)"
            raise QueryFailed(problem, error.fix) from error
        # The power is limited: from 2 to the 1,024th on, it cannot be multiplied with a fraction.
        return float(min(self._restarts.longest_wait_s, self._restarts.wait_s * 2 ** min(self._in_a_row - 1, 100)))
