"""A second job on a checkpoint behind a URI is refused; after the first job is gone, it may start."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
from pyspark.sql import SparkSession

from streaming.checkpoint import lease as lease_module
from streaming.checkpoint.lease import GONE_AFTER_S, NAME, STOP_AFTER_S, Lease
from streaming.errors import CheckpointInUse
from streaming.folder import LocalFolder
from streaming.spark.hadoop_folder import HadoopFolder

URI = "s3a://bucket/checkpoint"


class Clock:
    """A clock that moves when someone waits; `meanwhile` is what others do during that time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.meanwhile: Callable[[], None] = lambda: None

    def __call__(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> None:
        """Advance the clock."""
        self.now_s += seconds
        self.meanwhile()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path) -> LocalFolder:
    return LocalFolder(tmp_path)


def lease(folder: LocalFolder, clock: Clock) -> Lease:
    """Return a lease as one job holds it."""
    return Lease(folder, URI, clock_s=clock, wait=clock.wait)


def test_the_first_job_takes_the_lease_at_once(folder: LocalFolder, clock: Clock) -> None:
    lease(folder, clock).take()
    assert clock.now_s == 0
    assert folder.read(NAME) is not None


def test_a_second_job_is_refused_while_the_first_renews(folder: LocalFolder, clock: Clock) -> None:
    first = lease(folder, clock)
    first.take()
    clock.meanwhile = lambda: first.renew() if clock.now_s % 10 == 0 else None
    with pytest.raises(CheckpointInUse, match=URI):
        lease(folder, clock).take()
    first.renew()
    first.check()


def test_a_released_lease_is_taken_at_once(folder: LocalFolder, clock: Clock) -> None:
    with lease(folder, clock).held():
        assert folder.read(NAME) is not None
    assert folder.read(NAME) is None


def test_a_lease_that_is_not_renewed_is_taken_after_a_timeout(folder: LocalFolder, clock: Clock) -> None:
    """Its job may run on another machine with another clock."""
    lease(folder, clock).take()
    lease(folder, clock).take()
    assert clock.now_s == GONE_AFTER_S


def test_a_lease_released_during_the_wait_is_taken(folder: LocalFolder, clock: Clock) -> None:
    first = lease(folder, clock)
    first.take()
    clock.meanwhile = first.release
    lease(folder, clock).take()
    assert clock.now_s < GONE_AFTER_S


def test_the_lease_of_a_dead_local_process_is_taken_at_once(folder: LocalFolder, clock: Clock) -> None:
    """A restart after a kill need not wait."""
    lease(folder, clock).take()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    body = json.loads(folder.read(NAME) or b"")
    folder.write(NAME, json.dumps({**body, "pid": dead.pid}).encode())
    lease(folder, clock).take()
    assert clock.now_s == 0


def test_a_job_that_lost_its_lease_notices_and_leaves_it_alone(folder: LocalFolder, clock: Clock) -> None:
    """The job was suspended for longer than the other job waited."""
    first, second = lease(folder, clock), lease(folder, clock)
    first.take()
    second.take()
    taken = folder.read(NAME)
    first.renew()
    with pytest.raises(CheckpointInUse, match="taken over"):
        first.check()
    first.release()
    assert folder.read(NAME) == taken
    second.renew()
    second.check()


def test_a_job_that_cannot_renew_its_lease_stops_before_another_may_take_it(
    folder: LocalFolder, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes take some seconds, then fail. The time counts from the start of the last one that succeeded."""
    write = LocalFolder.write

    def slowly(self: LocalFolder, name: str, content: bytes) -> None:
        clock.now_s += 4
        write(self, name, content)

    def not_at_all(*_: object) -> None:
        raise OSError("the file system is away")

    monkeypatch.setattr(LocalFolder, "write", slowly)
    first = lease(folder, clock)
    first.take()
    clock.now_s = 20
    first.renew()
    monkeypatch.setattr(LocalFolder, "write", not_at_all)
    clock.now_s = 20 + STOP_AFTER_S
    with pytest.raises(OSError, match="away"):
        first.renew()
    first.check()
    clock.now_s += 1
    with pytest.raises(CheckpointInUse, match=r"could not renew its lease on the checkpoint .* for 26 s"):
        first.check()
    assert STOP_AFTER_S < GONE_AFTER_S


@pytest.mark.parametrize(
    ("error", "traced"),
    [(OSError("the disk is gone"), [False, False, False]), (KeyError("pid"), [True, False, True])],
    ids=["an outage", "a defect"],
)
def test_the_log_tells_a_defect_from_an_outage(
    folder: LocalFolder, clock: Clock, monkeypatch: pytest.MonkeyPatch, error: Exception, traced: list[bool]
) -> None:
    """It names the kind of the error; a defect comes with its traceback, once a minute."""
    monkeypatch.setattr(lease_module, "RENEW_EVERY_S", 0.001)
    own = lease(folder, clock)
    three = threading.Event()
    times_s = [30.0, 30.0, 61.0]

    def renew() -> None:
        clock.now_s += times_s.pop(0)
        if not times_s:
            times_s.append(0.0)
            three.set()
        raise error

    monkeypatch.setattr(own, "renew", renew)
    with structlog.testing.capture_logs() as logs, own.held():
        assert three.wait(20)
    said = [(line["error"], line["exc_info"]) for line in logs if line["event"] == "lease_not_renewed"]
    assert said[:3] == [(repr(error), one) for one in traced]


def test_an_unreadable_lease_expires_too(folder: LocalFolder, clock: Clock) -> None:
    folder.write(NAME, b"{")
    lease(folder, clock).take()
    assert clock.now_s == GONE_AFTER_S


def test_the_lease_works_through_spark_s_file_systems(spark: SparkSession, tmp_path: Path) -> None:
    """The lease file is replaced through Java, and the thread that renews it did not take it."""
    folder = HadoopFolder(spark, tmp_path.as_uri())
    with Lease(folder, URI).held() as first:
        second = Lease(folder, URI, wait=lambda _: _in_thread(first.renew))
        with pytest.raises(CheckpointInUse):
            second.take()
        first.check()
    assert folder.names() == []


def _in_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
