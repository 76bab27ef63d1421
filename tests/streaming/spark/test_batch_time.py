"""A batch's time is taken from Spark's log."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming.checkpoint.memory_store import MemoryStore
from streaming.folder import LocalFolder
from streaming.judge.memory.memory import JudgeMemory
from streaming.spark.batch_time import BatchTimes
from streaming.spark.in_task import BEFORE, task_now_ms
from tests.streaming.spark.live import Live

LOG = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795266478822,"conf":{}}\n0\n{"t":{"0":5}}'


def times(folder: Path, **batches: str) -> BatchTimes:
    """Return the times of a log with these batches, named `batch_N`."""
    for name, content in batches.items():
        (folder / name.removeprefix("batch_")).write_text(content)
    return BatchTimes(LocalFolder(folder))


def test_the_timestamp_is_read_from_the_log(tmp_path: Path) -> None:
    """It is the time of the requested batch."""
    assert times(tmp_path, batch_3=LOG, batch_4=LOG.replace("822", "999")).of(3) == 1795266478822


@pytest.mark.parametrize("content", ["", "v1", "v1\nnot JSON", "v1\n{}", "v1\n[]"])
def test_a_log_of_another_form_is_refused(tmp_path: Path, content: str) -> None:
    """Judging by a guessed time would be worse than stopping."""
    with pytest.raises(ValueError, match="batch 3 has another form"):
        times(tmp_path, batch_3=content).of(3)


def test_a_batch_that_was_not_logged_has_no_time(tmp_path: Path) -> None:
    """Such a batch cannot be running."""
    with pytest.raises(ValueError, match="has not logged batch 9"):
        times(tmp_path).of(9)


def test_a_task_outside_a_batch_has_no_time() -> None:
    """The error says that there is no batch."""
    with pytest.raises(RuntimeError, match="no batch time"):
        task_now_ms()


def test_shards_judge_by_the_time_in_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """This holds for all shards, in every batch."""
    live = Live(spark, tmp_path)
    with live.running() as query:
        live.wait(lambda _: len(live.snapshots) >= 3, query)
    logged = BatchTimes(LocalFolder(live.checkpoint / "offsets"))
    for batch_id, rows in live.batches:
        assert {step_ms for _, step_ms, _ in rows} <= {logged.of(batch_id)}
    assert [snapshot.at_ms for snapshot in live.snapshots] == [logged.of(n) for n, rows in live.batches if rows]


class Properties:
    """A fake frame that records the properties the tasks receive."""

    def __init__(self) -> None:
        self.properties: dict[str, str] = {}
        self.sparkSession = self
        self.sparkContext = self

    def setLocalProperty(self, name: str, value: str) -> None:  # noqa: N802 - Spark calls it so
        """Set a property, as Spark's context does."""
        self.properties[name] = value


def test_a_clock_that_jumps_for_one_batch_is_not_trusted(tmp_path: Path) -> None:
    """Tasks keep the last trusted time, events up to the clock's reading are not ahead, and a second run gives the same."""
    reads = {0: 1_795_000_000_000, 1: 1_797_592_000_000, 2: 1_795_000_002_000}
    logs = {f"batch_{n}": LOG.replace("1795266478822", str(read)) for n, read in reads.items()}
    offsets, judge = tmp_path / "offsets", tmp_path / "judge"
    offsets.mkdir()
    judge.mkdir()
    times(offsets, **logs)
    memories = MemoryStore(LocalFolder(judge))
    for _ in range(2):
        reported = []
        for batch_id in sorted(reads):
            clocked = BatchTimes(LocalFolder(offsets), memories)
            batch = Properties()
            clocked.announce(batch, batch_id)  # type: ignore[arg-type] # only what `announce` uses
            assert clocked.clock is not None
            memories.save(batch_id, JudgeMemory(clock=clocked.clock, at=clocked.clock.now))
            reported.append((*map(int, batch.properties.values()), clocked.clock.trusted))
        assert reported == [
            (reads[0], reads[0], 0, True),
            (reads[0], reads[1], reads[0], False),
            (reads[2], reads[2], reads[0], True),
        ]
        memories = MemoryStore(LocalFolder(judge))


def test_without_the_memory_of_earlier_batches_time_does_not_go_back(tmp_path: Path) -> None:
    """The states of the shards may be newer than old telemetry that is read now."""
    now = 1795266478822
    for folder in ("offsets", "judge"):
        (tmp_path / folder).mkdir()
    times(tmp_path / "offsets", batch_7=LOG)
    batch = Properties()
    clocked = BatchTimes(LocalFolder(tmp_path / "offsets"), MemoryStore(LocalFolder(tmp_path / "judge")))
    clocked.announce(batch, 7)  # type: ignore[arg-type] # only what `announce` uses
    assert batch.properties[BEFORE] == str(now)
