"""The life of the query in the job, with a query that does nothing."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from streaming.checkpoint.manifest import Checkpoint
from streaming.checkpoint.offset_log import kafka_offsets
from streaming.checkpoint.spark_files import rewrite_spark_file
from streaming.config.model import Config
from streaming.config.service import Restarts
from streaming.errors import CheckpointInUse, QueryFailed
from streaming.folder import Folder, LocalFolder
from streaming.health.losses import Brokers, Losses
from streaming.health.monitor import Monitor
from streaming.spark import job as module
from streaming.spark import pipeline
from streaming.spark.batch_barrier import BatchBarrier
from streaming.spark.job import SET_BACK_MS, Job, _Failures, open_job

NOW_MS = 1_795_000_000_000


class Waiting:
    """A query between two batches."""

    def __init__(self) -> None:
        self.isActive = True
        self.batch_ends_s = 0.0

    @property
    def status(self) -> dict[str, Any]:
        """What Spark says of it."""
        return {"message": "Waiting for next trigger", "isTriggerActive": time.monotonic() < self.batch_ends_s}

    def stop(self) -> None:
        """Stop it."""
        self.isActive = False


@dataclass
class Queries:
    """The queries that a job starts, which wait, and the barriers that it makes."""

    job: Job
    started: list[Waiting] = field(default_factory=list)
    barriers: list[BatchBarrier] = field(default_factory=list)

    def start(self, *_: object, **__: object) -> Waiting:
        """Start a query; in place of the pipeline."""
        self.started.append(Waiting())
        return self.started[-1]

    def barrier(self) -> BatchBarrier:
        """Return a new barrier."""
        self.barriers.append(BatchBarrier())
        return self.barriers[-1]


def starting(monkeypatch: pytest.MonkeyPatch, folder: Path, **source: Any) -> Queries:
    """Return a job that starts no query on Spark, and its queries."""
    spark: Any = SimpleNamespace(conf={}, sparkContext=SimpleNamespace(defaultParallelism=2))
    given = source or {"spool": {"folder": str(folder / "spool")}}
    config = Config.model_validate({"source": given, "spark": {"checkpoint_dir": str(folder / "checkpoint")}})
    outlets: Any = None
    job = Job(spark, config, Checkpoint("c", 2, tuple(given)), None, None, outlets, Monitor())
    queries = Queries(job)
    monkeypatch.setattr(pipeline, "start", queries.start)
    monkeypatch.setattr(module, "BatchBarrier", queries.barrier)
    monkeypatch.setattr(module, "survey_of", lambda _: None)
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(module, "DRAIN_WITHIN_S", 0.1)
    monkeypatch.setattr(module, "java_pid", lambda: None)
    return queries


@pytest.mark.parametrize(("back_ms", "queries"), [(SET_BACK_MS + 1, 2), (SET_BACK_MS, 1)], ids=["a step", "a second or two"])
def test_a_clock_that_is_set_back_restarts_the_query(
    back_ms: int, queries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark waits for its next trigger by the clock: set back by a day, it would do nothing for a day."""
    stop = threading.Event()
    looked: list[int] = []

    def clock_ms() -> int:
        looked.append(NOW_MS - back_ms if len(looked) > 1 else NOW_MS)
        if len(looked) > 6:
            stop.set()
        return looked[-1]

    monkeypatch.setattr(module, "wall_ms", clock_ms)
    ran = starting(monkeypatch, tmp_path)
    ran.job.run(stop)
    assert [query.isActive for query in ran.started] == [False] * queries
    assert len(ran.barriers) == queries, "the next query's batches are not held"


@pytest.mark.parametrize("batch_s", [0.0, 0.5], ids=["between two batches", "in a batch"])
def test_a_stop_does_not_wait_for_a_batch_that_is_due_in_a_minute(
    batch_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trigger interval may be longer than the time after which Kubernetes kills the process. A running batch is waited for."""
    queries = starting(monkeypatch, tmp_path)
    monkeypatch.setattr(module, "DRAIN_WITHIN_S", 30)
    monkeypatch.setattr(module, "IDLE_WITHIN_S", 0.1)
    stop, began_s = threading.Event(), time.monotonic()

    def wall_ms() -> int:
        stop.set()
        queries.started[-1].batch_ends_s = began_s + batch_s
        return NOW_MS

    monkeypatch.setattr(module, "wall_ms", lambda: wall_ms() if queries.started else NOW_MS)
    queries.job.run(stop)
    assert batch_s <= time.monotonic() - began_s < 10


def test_a_query_that_cannot_be_stopped_does_not_fail_the_end_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the brokers do not answer, Spark's thread hangs in their client, and Spark gives up waiting for it."""
    stop = threading.Event()

    def hang(self: Waiting) -> None:
        self.isActive = False
        raise TimeoutError("Stream Execution thread failed to stop within 30000 milliseconds")

    def clock_ms() -> int:
        stop.set()
        return NOW_MS

    monkeypatch.setattr(Waiting, "stop", hang)
    monkeypatch.setattr(module, "wall_ms", clock_ms)
    with structlog.testing.capture_logs() as logs:
        starting(monkeypatch, tmp_path).job.run(stop)
    assert [line["event"] for line in logs] == ["query_not_stopped"]


def test_a_query_that_does_not_stop_does_not_hide_why_the_job_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That another job has the checkpoint says what to do; that the query hangs is logged."""

    def hang(_: Waiting) -> None:
        raise TimeoutError("Stream Execution thread failed to stop within 30000 milliseconds")

    class Taken:
        def check(self) -> None:
            raise CheckpointInUse("another job took the checkpoint", "Stop one of them")

    monkeypatch.setattr(Waiting, "stop", hang)
    lease: Any = Taken()
    job = starting(monkeypatch, tmp_path).job
    job._lease = lease
    with structlog.testing.capture_logs() as logs, pytest.raises(CheckpointInUse):
        job.run(threading.Event())
    assert [line["event"] for line in logs] == ["query_not_stopped"]


def test_a_full_disk_does_not_forget_that_a_topic_was_reset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next query reads the new topic from its beginning as soon as that can be written, and its batches are not held."""
    stop = threading.Event()
    checkpoint = LocalFolder(tmp_path / "checkpoint")
    for name in ("offsets", "commits"):
        LocalFolder(checkpoint.path / name).write("3", b'v1\n{"batchTimestampMs":1}\n1\n{"t":{"0":5,"1":7}}')
    queries = starting(monkeypatch, tmp_path, kafka={"bootstrap_servers": ["nowhere.invalid:9092"], "topics": ["t"]})
    offsets: list[object] = []

    def start(*_: object, **__: object) -> Waiting:
        offsets.append(kafka_offsets((checkpoint.path / "offsets" / "3").read_bytes()))
        if len(offsets) == 1:
            queries.job._monitor.lost(3, Losses(reset={("t", 0): 5}), {})
            full.append(OSError(errno.ENOSPC, "No space left on device"))
        else:
            stop.set()
        return queries.start()

    full: list[OSError] = []

    def rewrite(folder: Folder, name: str, content: bytes) -> None:
        if full:
            raise full.pop()
        rewrite_spark_file(folder, name, content)

    monkeypatch.setattr(pipeline, "start", start)
    monkeypatch.setattr(module, "rewrite_spark_file", rewrite)
    monkeypatch.setattr(module, "FULL_DISK_WAIT_S", 0.01)
    queries.job.run(stop)
    assert offsets == [{("t", 0): 5, ("t", 1): 7}, {("t", 0): 0, ("t", 1): 7}]
    assert len(queries.barriers) == 2
    assert queries.job._monitor.pending_reset() == {}


def test_restarts_go_on_for_any_number_of_failures() -> None:
    """The wait doubles until it reaches the longest one. A broker may be down for weeks."""
    failures = _Failures(Restarts(max_failures=5_000, wait_s=0.5, longest_wait_s=60))
    error = QueryFailed("the brokers are down", "Start them")
    waits = [failures.next_wait_s(3, error) for _ in range(4_999)]
    assert waits[:8] == [0.5, 1, 2, 4, 8, 16, 32, 60]
    assert set(waits[8:]) == {60}
    with pytest.raises(QueryFailed, match="5000 failures in a row"):
        failures.next_wait_s(3, error)


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `open_job` use a session that is none."""
    session = SimpleNamespace(
        version="4", sparkContext=SimpleNamespace(master="local[2]"), streams=SimpleNamespace(addListener=lambda _: None)
    )
    monkeypatch.setattr(module, "survey_of", lambda _: None)
    monkeypatch.setattr(module, "open_session", lambda *_, **__: session)
    monkeypatch.setattr(module, "java_lives", lambda: False)


def opened(checkpoint: Path, outlets: Any = None, **source: Any) -> AbstractContextManager[Job]:
    """Return the job on a checkpoint."""
    config = Config.model_validate({"source": source, "spark": {"checkpoint_dir": str(checkpoint)}})
    opening: Any = outlets or nullcontext()
    return open_job(config, lambda *_: opening, Monitor())


@pytest.mark.usefixtures("without_spark")
def test_the_connection_to_the_brokers_is_closed_with_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was opened to ask which records were deleted, and its client has threads and sockets."""
    closed: list[bool] = []
    monkeypatch.setattr(Brokers, "close", lambda _: closed.append(True))
    with opened(tmp_path / "checkpoint", kafka={"bootstrap_servers": ["nowhere.invalid:9092"], "topics": ["t"]}):
        assert not closed
    assert closed == [True]


@pytest.mark.usefixtures("without_spark")
def test_the_outlets_are_closed_before_another_job_may_use_the_checkpoint(tmp_path: Path) -> None:
    """They may still deliver what waits in the checkpoint; the next job would deliver the same at the same time."""
    checkpoint, spool = tmp_path / "checkpoint", {"spool": {"folder": str(tmp_path / "spool")}}
    tried: list[str] = []

    @contextmanager
    def outlets() -> Iterator[None]:
        yield
        with pytest.raises(CheckpointInUse), opened(checkpoint, **spool):
            pass
        tried.append("refused")

    with opened(checkpoint, outlets(), **spool):
        assert not tried
    assert tried == ["refused"]


FOLDERS = (".", "judge", "versions", "spool", "offsets", "sources/0", "outbox/signal_log_file", "outbox/alertmanager")


@pytest.mark.usefixtures("without_spark")
def test_files_that_killed_processes_were_writing_are_removed_at_the_start(tmp_path: Path) -> None:
    """Each was killed while it wrote, and had another process id. No other process writes while one holds the lock."""
    checkpoint, spool = tmp_path / "checkpoint", {"spool": {"folder": str(tmp_path / "spool")}}
    with opened(checkpoint, **spool):
        pass
    for folder in FOLDERS:
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
        for name in (".000000000007.memory.17.part", ".000000000007.memory.18.part", ".7.crc", "7", "7.part"):
            (checkpoint / folder / name).write_bytes(b"half")
    with opened(checkpoint, **spool):
        left = {folder: {path.name for path in (checkpoint / folder).iterdir() if path.is_file()} for folder in FOLDERS}
    assert left.pop(".") >= {".7.crc", "7", "7.part"}
    assert left == {folder: {".7.crc", "7", "7.part"} for folder in FOLDERS[1:]}


@pytest.mark.usefixtures("without_spark")
def test_nothing_is_removed_from_a_checkpoint_in_use(tmp_path: Path) -> None:
    """The other job may be writing these files."""
    checkpoint, spool = tmp_path / "checkpoint", {"spool": {"folder": str(tmp_path / "spool")}}
    with opened(checkpoint, **spool):
        (checkpoint / "judge").mkdir()
        written = checkpoint / "judge" / ".000000000007.memory.17.part"
        written.touch()
        with pytest.raises(CheckpointInUse), opened(checkpoint, **spool):
            pass
        assert written.exists()
