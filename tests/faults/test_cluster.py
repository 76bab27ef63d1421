"""A job whose tasks run outside the driver's process, where one executor dies. `make cluster` tests a whole cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.cluster import shared_settings
from tests.faults.cluster_faults import EXECUTORS, executor_killed
from tests.faults.scene import Fault, Place, Prepared
from tests.faults.trial import tried
from tests.services import hdfs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.skipif(
        "CLUSTER_TESTS" not in os.environ, reason="takes minutes on a busy machine: CLUSTER_TESTS=1, or make cluster"
    ),
]


@contextmanager
def _small_cluster(folder: Path, checkpoint: str) -> Iterator[Place]:
    """Run master and workers in the driver's Java, which saves two processes; each executor is a process of its own."""
    with shared_settings(folder / "spark"):
        master = "local-cluster[2,1,1024]"
        yield Place(folder, spark={"checkpoint_dir": checkpoint, "master": master, "conf": dict(EXECUTORS)})


@contextmanager
def _state_in_files(folder: Path) -> Iterator[Place]:
    with _small_cluster(folder, str(folder / "checkpoint")) as place:
        yield place


@contextmanager
def _state_in_hdfs(folder: Path) -> Iterator[Place]:
    with hdfs.start() as uri, _small_cluster(folder, f"{uri}/checkpoint") as place:
        yield place


@pytest.mark.timeout(900)
@pytest.mark.parametrize("prepared", [_state_in_files, _state_in_hdfs])
def test_nothing_is_lost_or_doubled_when_an_executor_is_killed(prepared: Prepared) -> None:
    """Its tasks run again in the other executor, with the states from before the batch."""
    outcome = tried(Fault(executor_killed, prepared), events_per_s=200, times=1, steady_s=0)
    assert (outcome.lost, outcome.doubled) == (0, 0)
    assert outcome.sent > 0
