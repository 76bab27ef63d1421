"""What tasks are told of the spool folder, and what is concluded from what they read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame

from streaming.config.source import SpoolSource
from streaming.spark.folder import LocalFolder
from streaming.spark.spool_task import PROPERTY, SpoolBatches, told_pieces
from streaming.spool.ledger import SpoolLedger
from streaming.spool.planner import SpoolPlanner
from streaming.spool.reading import Read


class Told:
    """A batch's frame, its session, its context and its tasks: all that a property passes."""

    def __init__(self) -> None:
        self.properties: dict[str, str] = {}
        self.sparkSession = self
        self.sparkContext = self

    def setLocalProperty(self, name: str, value: str) -> None:  # noqa: N802 - Spark's name
        """The driver's side."""
        self.properties[name] = value

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        """The task's side."""
        return self.properties.get(name)

    def read(self, lane: int) -> int:
        """The pieces one task reads."""
        return sum(one.pieces for one in told_pieces(cast(TaskContext, self), lane) if isinstance(one, Read))


class Batches:
    """A spool folder with three files, and Spark's log of batches."""

    def __init__(self, folder: Path) -> None:
        self.spool = folder / "in"
        self.spool.mkdir()
        for name in ("a.json", "b.json", "c.json"):
            (self.spool / name).write_bytes(b'{"v": 1}')
        self.offsets = LocalFolder(folder / "offsets")
        planner = SpoolPlanner(
            SpoolSource(folder=str(self.spool)), self.spool, SpoolLedger(LocalFolder(folder / "spool"), kept=3), lambda: 0.0, 3
        )
        self.spool_batches = SpoolBatches(planner, 2, self.offsets)
        self.frame = Told()

    def tell(self, batch_id: int, ticks: int) -> None:
        """Begin a batch that Spark logged with ticks up to that second."""
        self.offsets.write(str(batch_id), f"v1\n{{}}\n{ticks}".encode())
        self.spool_batches.tell(cast(DataFrame, cast(Any, self.frame)), batch_id)


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    """Ready for the first batch."""
    return Batches(tmp_path)


def test_the_pieces_are_spread_over_the_tasks_that_have_ticks(batches: Batches) -> None:
    """Each is read by one of them, and by no task beyond."""
    batches.tell(1, 1)
    assert sorted(batches.frame.read(lane) for lane in range(4)) == [0, 0, 1, 2]
    assert batches.spool_batches.lost(3) == set()
    assert batches.spool_batches.last == 1


def test_a_batch_without_a_tick_reads_nothing(batches: Batches) -> None:
    """It has no task that would: what is there waits for the next second."""
    batches.tell(0, 0)
    assert batches.frame.read(0) == 0
    batches.tell(1, 1)
    assert json.loads(batches.frame.properties[PROPERTY])["folder"] == str(batches.spool)
    batches.tell(2, 1)
    assert batches.frame.properties[PROPERTY] == ""
    assert batches.spool_batches.last == 1


@pytest.mark.parametrize("content", [None, b"{"], ids=["removed", "cut short"])
def test_a_file_that_is_gone_is_lost_and_no_failure(batches: Batches, content: bytes | None) -> None:
    """Named, so that it can be counted and told."""
    batches.tell(1, 1)
    (batches.spool / "b.json").unlink()
    if content is not None:
        (batches.spool / "b.json").write_bytes(content)
    assert batches.spool_batches.lost(sum(batches.frame.read(lane) for lane in range(2))) == {"b.json"}


def test_a_file_that_is_there_and_was_not_read_fails_the_batch(batches: Batches) -> None:
    """Nothing is left out in silence, whatever Spark made of the tasks."""
    batches.tell(1, 1)
    with pytest.raises(RuntimeError, match="2 of 3 pieces of spool files were not read"):
        batches.spool_batches.lost(1)
