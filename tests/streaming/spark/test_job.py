"""The life of the query in the job, with a query that does nothing."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import structlog

from streaming.checkpoint.manifest import Checkpoint
from streaming.config.model import Config
from streaming.health.monitor import Monitor
from streaming.spark import job as module
from streaming.spark.job import SET_BACK_MS, Job

NOW_MS = 1_795_000_000_000


class Waiting:
    """A query between two batches."""

    def __init__(self) -> None:
        self.isActive = True
        self.lastProgress = None
        self.status = {"message": "Waiting for next trigger", "isTriggerActive": False}

    def stop(self) -> None:
        """Stop it."""
        self.isActive = False


class Starting(Job):
    """A job that starts queries which wait, until it has started enough."""

    started: list[Waiting]
    barriers: list[Any]

    def _start(self, topics: object) -> Any:
        del topics
        self.started.append(Waiting())
        self.barriers.append(self._barrier)
        return self.started[-1]


def starting(folder: Path) -> Starting:
    config = Config.model_validate({"source": {"spool": {"folder": str(folder)}}, "spark": {"checkpoint_dir": str(folder)}})
    job = Starting(None, config, Checkpoint("c", 2, ("spool",)), None, None, None, Monitor())  # type: ignore[arg-type]
    job.started, job.barriers = [], []
    return job


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
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(module, "DRAIN_WITHIN_S", 0.5)
    monkeypatch.setattr(module, "java_pid", lambda: None)
    job = starting(tmp_path)
    job.run(stop)
    assert [query.isActive for query in job.started] == [False] * queries
    assert len(set(job.barriers)) == queries, "the next query's batches are not held"


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
    monkeypatch.setattr(module, "DRAIN_WITHIN_S", 0.1)
    with structlog.testing.capture_logs() as logs:
        starting(tmp_path).run(stop)
    assert [line["event"] for line in logs] == ["query_not_stopped"]
