"""What tasks receive of the spool folder, and what follows from what they read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame

from streaming.config.source import SpoolSource
from streaming.folder import LocalFolder
from streaming.spark.spool_batches import LostFiles, SpoolBatches
from streaming.spark.spool_in_task import SPOOL, planned_pieces
from streaming.spool.cut import WHOLE_BYTES
from streaming.spool.ledger import SpoolLedger
from streaming.spool.pieces import Piece
from streaming.spool.planner import SpoolPlanner
from streaming.spool.reading import Read


class Properties:
    """A fake batch frame, session, context and task: everything a property passes through."""

    def __init__(self) -> None:
        self.properties: dict[str, str] = {}
        self.sparkSession = self
        self.sparkContext = self

    def setLocalProperty(self, name: str, value: str) -> None:  # noqa: N802 - Spark's name
        """Set a property, on the driver."""
        self.properties[name] = value

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        """Get a property, in a task."""
        return self.properties.get(name)

    def read(self, lane: int) -> int:
        """Return the number of pieces one task reads."""
        return sum(one.pieces if isinstance(one, Read) else 1 for one in planned_pieces(cast(TaskContext, self), lane))


class Batches:
    """A spool folder with three files, and Spark's log of batches."""

    def __init__(self, folder: Path) -> None:
        self.spool = folder / "in"
        self.spool.mkdir()
        for name in ("a.json", "b.json", "c.json"):
            (self.spool / name).write_bytes(b'{"v": 1}')
        self.folder = folder
        self.offsets = LocalFolder(folder / "offsets")
        self.start()

    def start(self) -> None:
        """Start or restart the job."""
        ledger = SpoolLedger(LocalFolder(self.folder / "spool"), kept=3)
        planner = SpoolPlanner(SpoolSource(folder=str(self.spool)), self.spool, ledger, lambda: 0.0, 3)
        self.spool_batches = SpoolBatches(planner, 2, self.offsets)
        self.frame = Properties()

    def log(self, batch_id: int, ticks: int, at_ms: int = 0) -> None:
        """Log a batch as Spark does before it runs, with ticks up to that second."""
        self.offsets.write(str(batch_id), f'v1\n{{"batchTimestampMs":{at_ms}}}\n{ticks}'.encode())

    def announce(self, batch_id: int, ticks: int) -> None:
        """Begin a batch that Spark logged with ticks up to that second."""
        self.log(batch_id, ticks)
        self.spool_batches.announce(cast(DataFrame, cast(Any, self.frame)), batch_id)


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    """A job ready for its first batch."""
    return Batches(tmp_path)


def test_the_pieces_are_spread_over_the_tasks_that_have_ticks(batches: Batches) -> None:
    """One task reads each piece; tasks without ticks read none."""
    batches.announce(1, 1)
    assert sorted(batches.frame.read(lane) for lane in range(4)) == [0, 0, 1, 2]
    assert batches.spool_batches.lost(3) == LostFiles()
    assert batches.spool_batches.last == 1


def test_a_batch_without_a_tick_reads_nothing(batches: Batches) -> None:
    """It has no task to read with, so files wait for the next second."""
    batches.announce(0, 0)
    assert batches.frame.read(0) == 0
    batches.announce(1, 1)
    assert json.loads(batches.frame.properties[SPOOL])["folder"] == str(batches.spool)
    batches.announce(2, 1)
    assert batches.frame.properties[SPOOL] == ""
    assert batches.spool_batches.last == 1


def test_a_batch_logged_before_a_restart_leaves_newer_files_to_the_next_one(batches: Batches) -> None:
    """It runs again with its old time, and the new files' events would be in its future."""
    began_ms = 1_700_000_000_000
    for name, changed_ms in (("a.json", began_ms - 500), ("b.json", began_ms), ("c.json", began_ms + 3_600_000)):
        os.utime(batches.spool / name, ns=(changed_ms * 1_000_000,) * 2)
    batches.log(1, 1, began_ms)
    batches.start()
    frame = cast(DataFrame, cast(Any, batches.frame))
    batches.spool_batches.announce(frame, 1)
    assert _planned(batches) == ["a.json", "b.json"]
    batches.announce(2, 2)
    assert _planned(batches) == ["c.json"]


def _planned(batches: Batches) -> list[str]:
    lanes = json.loads(batches.frame.properties[SPOOL])["lanes"]
    return sorted(Piece.of(piece).name for lane in lanes for piece in lane)


@pytest.mark.parametrize("content", [None, b"{"], ids=["removed", "cut short"])
def test_a_deleted_file_is_lost_but_not_a_failure(batches: Batches, content: bytes | None) -> None:
    """It is named, so that it can be counted and reported."""
    batches.announce(1, 1)
    (batches.spool / "b.json").unlink()
    if content is not None:
        (batches.spool / "b.json").write_bytes(content)
    assert batches.spool_batches.lost(sum(batches.frame.read(lane) for lane in range(2))) == LostFiles(gone=frozenset({"b.json"}))


@pytest.mark.parametrize("gone", [False, True])
def test_a_file_that_is_refused_is_lost_by_name(batches: Batches, gone: bool) -> None:
    """It is one invalid event, however many it contains. If it is also deleted, it is lost once."""
    with (batches.spool / "d.json").open("wb") as file:
        file.write(b"[")
        file.truncate(WHOLE_BYTES)
        file.seek(0, 2)
        file.write(b"]")
    batches.announce(1, 1)
    if gone:
        (batches.spool / "d.json").unlink()
    assert batches.spool_batches.lost(sum(batches.frame.read(lane) for lane in range(2))) == LostFiles(
        **{"gone" if gone else "refused": frozenset({"d.json"})}
    )


def test_an_existing_file_that_was_not_read_fails_the_batch(batches: Batches) -> None:
    """Nothing is left out silently, however Spark scheduled the tasks."""
    batches.announce(1, 1)
    with pytest.raises(RuntimeError, match="2 of 3 pieces of spool files were not read"):
        batches.spool_batches.lost(1)
