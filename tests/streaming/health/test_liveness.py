"""A job that hangs is detected, reported and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from pyspark.sql import SparkSession

from streaming.health.liveness import Liveness, Watchdog, descendants, state_of
from streaming.spark.failure import reason_of
from streaming.spark.internals import java_pid
from tests.streaming.spark.live import Live
from tests.waiting import until


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.s = 100.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.s

    def wait_looked(self) -> None:
        """Wait until someone has acted on the current time: has looked at the clock, and looked again."""
        before = self.looks
        until(lambda: self.looks >= before + 2, "the clock is looked at")


def test_a_process_without_progress_is_not_healthy() -> None:
    """The limit counts from the last commit, or before the first one from the start; the report says what the job was doing."""
    clock = Clock()
    liveness = Liveness(clock)
    clock.s += 600
    assert liveness.fault(600) is None
    clock.s += 1
    liveness.watch_from_now()
    assert liveness.fault(600) == "no batch has been committed for 601 s (limit: 600 s): starting"
    liveness.progressed()
    assert liveness.fault(600) is None
    clock.s += 700
    liveness.doing = "waiting for Kafka"
    assert "700 s" in (fault := liveness.fault(600) or "")
    assert fault.endswith("waiting for Kafka")


def test_a_restarted_query_gets_its_full_deadline() -> None:
    """A query that was just restarted does not count as hanging, even if nothing was committed for an hour."""
    clock = Clock()
    liveness = Liveness(clock)
    clock.s += 3_600
    liveness.watch_from_now()
    clock.s += 5
    assert liveness.query_silent_s == 5
    assert liveness.silent_s == 3_605


@pytest.fixture
def family() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process with a child, like Java with a Python worker."""
    code = "import subprocess as s, time; c = s.Popen(['sleep', '600']); print(c.pid, flush=True); c.wait(); time.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    yield parent, int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()


def test_the_workers_are_ended_before_java(family: tuple[subprocess.Popen[bytes], int]) -> None:
    """This includes a stopped process, which only SIGKILL can end."""
    parent, child = family
    os.kill(child, signal.SIGSTOP)
    assert descendants(parent.pid) == [child]
    clock = Clock()
    watchdog = Watchdog(Liveness(clock), lambda: parent.pid, deadline_s=240, look_every_s=0.01)
    with structlog.testing.capture_logs() as logs, watchdog.watching():
        clock.wait_looked()
        assert logs == []
        clock.s += 241
        wait_gone(child)
        clock.wait_looked()
        assert parent.poll() is None
        clock.s += 120
        assert parent.wait(20) == -signal.SIGKILL
    assert [line["event"] for line in logs] == ["batch_deadline_exceeded"] * 2
    assert logs[0]["workers"] == {child: "T"}
    assert watchdog.ended_java is not None


@pytest.fixture
def unnamed() -> Iterator[int]:
    """A process whose name is not UTF-8, as any program on the machine may give itself one."""
    code = "import ctypes, time; print(ctypes.CDLL(None).prctl(15, b'w\\xff', 0, 0, 0), flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"0\n"
    yield process.pid
    process.kill()
    process.wait()
    process.stdout.close()


def test_the_name_of_a_process_may_be_any_bytes(unnamed: int) -> None:
    """Every process on the machine is looked at, whoever started it."""
    assert b"(w\xff)" in Path(f"/proc/{unnamed}/stat").read_bytes()
    assert unnamed in descendants(os.getpid())
    assert state_of(unnamed) in "RSD"


def test_the_watchdog_survives_a_look_that_fails(family: tuple[subprocess.Popen[bytes], int]) -> None:
    """It logs why, and looks again."""
    parent, child = family
    clock = Clock()
    fails = threading.Event()
    failed = threading.Event()

    def pid() -> int:
        if fails.is_set():
            failed.set()
            raise RuntimeError("Java is half gone")
        return parent.pid

    with (
        structlog.testing.capture_logs() as logs,
        Watchdog(Liveness(clock), pid, deadline_s=240, look_every_s=0.01).watching(),
    ):
        fails.set()
        clock.s += 241
        assert failed.wait(20)
        fails.clear()
        wait_gone(child)
    assert [line["event"] for line in logs] == ["watchdog_failed", "batch_deadline_exceeded"], "logged once a minute"


_DRIVER = """
import os, subprocess, sys
from streaming.health.liveness import Liveness, Watchdog, state_of
from tests.waiting import until

worker = int(sys.argv[1])
own = subprocess.Popen(["sleep", "600"]) if sys.argv[2] == "a process of its own" else None
now_s = [0.0]
with Watchdog(Liveness(lambda: now_s[0]), os.getppid, deadline_s=240, look_every_s=0.01).watching():
    now_s[0] = 241
    until(lambda: state_of(worker) in "?Z", "the worker ended")
if own is not None:
    assert own.poll() is None
    own.kill()
"""
_SUBMITTED = """
import subprocess, sys
worker = subprocess.Popen(["sleep", "600"])
print(subprocess.call([sys.executable, "-c", sys.argv[1], str(worker.pid), sys.argv[2]]), worker.wait())
"""


@pytest.mark.parametrize("with_process", ["a process of its own", "no process"])
def test_the_service_spares_itself_where_java_is_its_parent(with_process: str) -> None:
    """As under spark-submit: the service and what it started are below Java, like the workers."""
    command = [sys.executable, "-c", _SUBMITTED, _DRIVER, with_process]
    *_logged, ended = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60).stdout.splitlines()
    assert ended == b"0 -9"


def wait_gone(pid: int) -> None:
    """Wait until a process has ended."""
    until(lambda: state_of(pid) in ("?", "Z"), f"process {pid} ended")


def test_a_stopped_worker_is_ended_and_fails_the_query(spark: SparkSession, tmp_path: Path) -> None:
    """On real Spark, the batch hangs on the worker until the watchdog ends it; then the query restarts as usual."""
    live = Live(spark, tmp_path)
    java = java_pid()
    assert java is not None
    with live.running() as query:
        live.wait(lambda _: True, query)
        clock = Clock()
        for pid in descendants(java):
            if int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) != java:
                os.kill(pid, signal.SIGSTOP)
        time.sleep(3)
        assert query.isActive
        with Watchdog(Liveness(clock), lambda: java, deadline_s=240, look_every_s=0.1).watching():
            # Not so long that it would end Java too, which other tests need.
            clock.s += 241
            until(lambda: not query.isActive, "the query failed", within_s=60, every_s=0.1)
    assert "Python worker" in reason_of(query.exception())
    with live.running() as query:
        before = len(live.snapshots)
        live.wait(lambda s: s in live.snapshots[before:], query)
