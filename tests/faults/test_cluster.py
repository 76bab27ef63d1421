"""A job whose tasks run outside the driver's process, where one executor dies. `make cluster` tests a whole cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.cluster import shared_secret
from tests.faults.cluster_faults import EXECUTORS, executor_killed
from tests.faults.scene import Fault, Place
from tests.faults.trial import tried

pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.skipif(
        "CLUSTER_TESTS" not in os.environ, reason="takes minutes on a busy machine: CLUSTER_TESTS=1, or make cluster"
    ),
]


@contextmanager
def _small_cluster(folder: Path) -> Iterator[Place]:
    """Run master and workers in the driver's Java, which saves two processes; each executor is a process of its own."""
    with shared_secret(folder / "spark"):
        master = "local-cluster[2,1,1024]"
        yield Place(folder, spark={"checkpoint_dir": str(folder / "checkpoint"), "master": master, "conf": dict(EXECUTORS)})


@pytest.mark.timeout(900)
def test_nothing_is_lost_or_doubled_when_an_executor_is_killed() -> None:
    """Its tasks run again in the other executor, with the states from before the batch."""
    outcome = tried(Fault(executor_killed, _small_cluster), events_per_s=200, times=1, steady_s=0)
    assert (outcome.lost, outcome.doubled) == (0, 0)
    assert outcome.sent > 0
