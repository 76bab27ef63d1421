"""Faults of a job on a Spark standalone cluster."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from streaming.health.liveness import descendants, state_of
from tests.e2e.service import running
from tests.faults.cluster import Cluster, cluster, executors
from tests.faults.one_machine import driver_killed
from tests.faults.scene import WITHIN_S, Fault, Place, Scene
from tests.services import hdfs, moto_s3
from tests.services.process import jar_folder

_ABORTABLE: Final = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"


@dataclass
class OnCluster(Place):
    """The service is the driver; its tasks run in the workers' executors."""

    cluster: Cluster | None = None


def executor_killed(scene: Scene) -> None:
    """Executor killed (SIGKILL) in a batch"""
    executor = _busy_executor()
    scene.strike()
    os.kill(executor, signal.SIGKILL)


def spark_worker_killed(scene: Scene) -> None:
    """Spark worker killed (SIGKILL) in a batch with its executor, and another one started"""
    assert isinstance(scene.place, OnCluster)
    assert scene.place.cluster is not None
    executor = _busy_executor()
    worker = next(pid for pid in scene.place.cluster.workers if executor in descendants(pid))
    scene.strike()
    for pid in (worker, executor):
        os.kill(pid, signal.SIGKILL)
    scene.place.cluster.start_worker()


def second_job(scene: Scene) -> None:
    """A second job started on the checkpoint: it is refused"""
    scene.strike()
    with TemporaryDirectory(dir=scene.place.folder) as folder, running(Path(folder), scene.place.config) as second:
        code = second.process.wait(WITHIN_S)
    if code != 1 or "another queuewatch is using the checkpoint" not in second.words():
        raise AssertionError(f"the second job ended with {code}: {second.words()}")


def _busy_executor() -> int:
    """Return an executor that has a running Python process."""
    deadline_s = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline_s:
        for executor in executors():
            if any(state_of(pid) == "R" and not descendants(pid) for pid in descendants(executor)):
                return executor
        time.sleep(0.02)
    raise AssertionError("no executor is at work")


@contextmanager
def state_in_files(folder: Path) -> Iterator[Place]:
    """Start a cluster of two workers that share a folder."""
    with _cluster(folder, str(folder / "data" / "checkpoint"), {}) as place:
        yield place


@contextmanager
def state_in_hdfs(folder: Path) -> Iterator[Place]:
    """Start a cluster of two workers and an HDFS, which has the checkpoint; Spark keeps the state."""
    with hdfs.start() as uri, _cluster(folder, f"{uri}/queuewatch/checkpoint", {}) as place:
        yield place


@contextmanager
def state_in_s3(folder: Path) -> Iterator[Place]:
    """Start a cluster of two workers and an S3 server, which has the checkpoint; Spark keeps the state."""
    jars = jar_folder("cluster/s3a").glob("*.jar")
    with moto_s3.start() as endpoint:
        conf = {
            "spark.jars": ",".join(map(str, sorted(jars))),
            "spark.sql.streaming.checkpointFileManagerClass": _ABORTABLE,
            "spark.hadoop.fs.s3a.endpoint": endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": "any",
            "spark.hadoop.fs.s3a.secret.key": "any",
        }
        with _cluster(folder, f"s3a://{moto_s3.BUCKET}/checkpoint", conf) as place:
            yield place


@contextmanager
def tls(folder: Path) -> Iterator[Place]:
    """Start a cluster of two workers whose processes talk TLS."""
    with _cluster(folder, str(folder / "data" / "checkpoint"), {}, tls=True) as place:
        yield place


@contextmanager
def _cluster(folder: Path, checkpoint: str, conf: dict[str, str], *, tls: bool = False) -> Iterator[Place]:
    with cluster(folder / "cluster", workers=2, tls=tls) as made:
        place = OnCluster(folder, cluster=made)
        place.spark = {"checkpoint_dir": checkpoint, "master": made.master, "conf": {**EXECUTORS, **conf}}
        yield place


EXECUTORS: Final = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""A small machine has room for this much."""

CLUSTER: Final = {
    "executor_killed": Fault(executor_killed, state_in_files, where="; state in files"),
    "executor_killed_tls": Fault(executor_killed, tls, where="; state in files, TLS"),
    "executor_killed_hdfs": Fault(executor_killed, state_in_hdfs, where="; checkpoint in HDFS"),
    "spark_worker_killed": Fault(spark_worker_killed, state_in_files, where="; state in files"),
    "driver_killed_on_cluster": Fault(driver_killed, state_in_files, where="; state in files"),
    "driver_killed_hdfs": Fault(driver_killed, state_in_hdfs, where="; checkpoint in HDFS"),
    "executor_killed_s3": Fault(executor_killed, state_in_s3, where="; checkpoint in S3"),
    "second_job_hdfs": Fault(second_job, state_in_hdfs, where="; checkpoint in HDFS"),
}
