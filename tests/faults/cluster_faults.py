"""Faults of a job on a Spark standalone cluster."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streaming.health.liveness import descendants, state_of
from tests.faults.cluster import Cluster, cluster, executors
from tests.faults.one_machine import driver_killed
from tests.faults.scene import WITHIN_S, Fault, Place, Scene


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
def state_in_spark(folder: Path) -> Iterator[Place]:
    """Start a cluster of two workers whose checkpoint is behind a URI of another file system: Hadoop's view of a folder."""
    data = folder / "data"
    data.mkdir()
    with _cluster(
        folder, "viewfs://here/data/checkpoint", {"spark.hadoop.fs.viewfs.mounttable.here.link./data": data.as_uri()}
    ) as place:
        yield place


@contextmanager
def _cluster(folder: Path, checkpoint: str, conf: dict[str, str]) -> Iterator[Place]:
    with cluster(folder / "cluster", workers=2) as made:
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
    "executor_killed": Fault(executor_killed, state_in_files, where="; cluster of two workers, state in files"),
    "executor_killed_state_in_spark": Fault(executor_killed, state_in_spark, where="; cluster of two workers, state in Spark"),
    "spark_worker_killed": Fault(spark_worker_killed, state_in_files, where="; cluster of two workers, state in files"),
    "driver_killed_on_cluster": Fault(driver_killed, state_in_files, where="; cluster of two workers, state in files"),
}
