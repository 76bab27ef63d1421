"""The life of the streaming job: session, checkpoint, query; restarts after a failure, and a clean stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import structlog
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config.model import Config, to_settings
from streaming.config.service import Restarts
from streaming.spark import pipeline
from streaming.spark.batch_time import BatchTimes
from streaming.spark.checkpoint import Checkpoint, claim, find, locked
from streaming.spark.errors import JobError, QueryFailed, SourceUnavailable, SparkDied
from streaming.spark.failure import reason_of
from streaming.spark.folder import Folder, local_folder, open_folder
from streaming.spark.gate import Gate
from streaming.spark.listener import ProgressListener
from streaming.spark.memory_store import MemoryStore
from streaming.spark.monitor import Monitor
from streaming.spark.outlets import Outlets, reliable
from streaming.spark.publish import Publisher
from streaming.spark.readers.kafka import Topics, survey
from streaming.spark.readers.spool import prepare_spool
from streaming.spark.session import open_session
from streaming.spark.state_files import Pruner, state_keeper

DRAIN_WITHIN_S = 60.0
"""A batch is given so long to finish before a stop interrupts it."""

_LOOK_EVERY_S = 0.2
_log = structlog.get_logger(__name__)


class Job:
    """One streaming query and all it needs. Made by `open_job`."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        checkpoint: Checkpoint,
        topics: Topics | None,
        outlets: Outlets,
        monitor: Monitor,
    ) -> None:
        self.spark = spark
        self.checkpoint = checkpoint
        self._config = config
        self._topics = topics
        self._settings = to_settings(config)
        # Kept over restarts of the query: what waits for a destination waits on.
        self._outlets = reliable(outlets)
        self._monitor = monitor
        self._gate = Gate()
        self._fault: str | None = None

    def fault(self) -> str | None:
        """What keeps the query from running just now; None while it runs."""
        return self._fault

    def run(self, stop: threading.Event) -> None:
        """Run the query until `stop` is set; then let the batch in work finish. Restarts the query when it fails.

        Raises `QueryFailed` when restarts do not help, and `SparkDied`.
        """
        try:
            self._run(stop)
        except Exception as error:
            if isinstance(error, JobError) or _java_lives():
                raise
            # Whatever was asked of it last failed, in one of many ways.
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
            except (QueryFailed, SourceUnavailable) as error:
                self._fault = error.problem
                wait_s = failures.next_wait_s(self._monitor.last_committed, error)
                _log.error("query_failed", error=error.problem, restart_in_s=wait_s)
                stop.wait(wait_s)
                topics = None

    def _run_query(self, topics: Topics | None, stop: threading.Event) -> None:
        query = self._start(topics)
        try:
            while query.isActive:
                if stop.wait(_LOOK_EVERY_S):
                    self._drain(query)
                    return
                if query.lastProgress is not None:
                    self._fault = None
        finally:
            if _java_lives():
                query.stop()
        raise QueryFailed(f"the streaming query failed: {reason_of(query.exception())}", "See the log above")

    def _start(self, topics: Topics | None) -> StreamingQuery:
        spark_config = self._config.spark
        location = spark_config.checkpoint_dir
        keeper = state_keeper(location)
        publisher = Publisher(
            self._settings,
            spark_config.shards,
            MemoryStore(self._folder("judge")),
            self._outlets,
            self._monitor,
            Pruner(keeper, spark_config.shards),
            BatchTimes(self._folder("offsets")),
        )
        return pipeline.start(
            self.spark,
            self._config.source,
            topics,
            self._settings,
            self._gate.guarding(publisher),
            keeper,
            shards=spark_config.shards,
            trigger_interval_s=spark_config.trigger_interval_s,
            checkpoint=location,
        )

    def _folder(self, name: str) -> Folder:
        return open_folder(self.spark, f"{self._config.spark.checkpoint_dir.rstrip('/')}/{name}")

    def _drain(self, query: StreamingQuery) -> None:
        """Let the batch in work be finished and committed; the one after it does not begin."""
        self._gate.close()
        deadline_s = time.monotonic() + DRAIN_WITHIN_S
        while query.isActive and time.monotonic() < deadline_s:
            if self._gate.wait_held(_LOOK_EVERY_S):
                return


@contextmanager
def open_job(config: Config, outlets_for: Callable[[Checkpoint], Outlets], monitor: Monitor) -> Iterator[Job]:
    """A job ready to run, with its session and its checkpoint; both are let go at the end of the block.

    `outlets_for` makes the outlets once the checkpoint is known. Raises `RuntimeUnavailable` (no Java, no
    connector), `CheckpointMismatch`, `CheckpointInUse` or `SourceUnavailable`.
    """
    kinds = source_kinds(config)
    if config.source.spool is not None:
        prepare_spool(config.source.spool)
    location, shards = config.spark.checkpoint_dir, config.spark.shards
    with ExitStack() as stack:
        # What can be refused at once comes before Spark, which takes seconds to be up.
        local = local_folder(location)
        if local is not None:
            stack.enter_context(locked(local))
            find(local, location, shards=shards, sources=kinds)
        topics = survey_of(config)
        spark = open_session(
            config.spark,
            app_name="queuewatch",
            with_kafka=config.source.kafka is not None,
            log_level=config.log.spark_level,
        )
        stack.callback(_close, spark)
        checkpoint = claim(open_folder(spark, location), location, shards=shards, sources=kinds)
        spark.streams.addListener(ProgressListener(monitor.progressed))
        _log.info(
            "job_ready",
            checkpoint=location,
            checkpoint_id=checkpoint.id,
            shards=checkpoint.shards,
            sources=kinds,
            spark=spark.version,
            master=config.spark.master,
        )
        yield Job(spark, config, checkpoint, topics, outlets_for(checkpoint), monitor)


def survey_of(config: Config) -> Topics | None:
    """What is found out about the Kafka source, None without one. Raises `SourceUnavailable`."""
    return survey(config.source.kafka) if config.source.kafka is not None else None


def source_kinds(config: Config) -> tuple[str, ...]:
    """The kinds of source in the order the pipeline reads them. Raises `JobError` when there is none."""
    kinds = tuple(kind for kind in ("kafka", "spool") if getattr(config.source, kind) is not None)
    if not kinds:
        raise JobError("there is nothing to read: no source is configured", "Add source.kafka or source.spool")
    return kinds


def _java_lives() -> bool:
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    return process is None or process.poll() is None


def _close(spark: SparkSession) -> None:
    if _java_lives():
        spark.stop()


class _Failures:
    """Counts failures in a row and says how long to wait."""

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
        return float(min(self._restarts.longest_wait_s, self._restarts.wait_s * 2 ** (self._in_a_row - 1)))
