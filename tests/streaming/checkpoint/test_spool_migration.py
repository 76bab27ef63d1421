"""Checkpoints of releases that read the spool folder with Spark's file source: nothing is read twice or left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.checkpoint.spool_migration import migrate
from streaming.config.source import SpoolSource
from streaming.folder import LocalFolder
from streaming.spool.ledger import SpoolLedger
from streaming.spool.planner import SpoolPlanner
from tests.streaming.checkpoints import unpacked


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint of an earlier release with its spool folder; two of the files were read, in batches 1 and 2."""
    return unpacked("state-2", tmp_path)


def taken_over(checkpoint: Path) -> tuple[int, SpoolPlanner]:
    """Return the number of migrated files, and the planner that continues."""
    spool = checkpoint.parent / "spool"
    ledger = SpoolLedger(LocalFolder(checkpoint / "spool"), kept=20)
    files = migrate(lambda name: LocalFolder(checkpoint / name), spool, ledger)
    return files, SpoolPlanner(SpoolSource(folder=str(spool)), spool, ledger, lambda: 0.0, 20)


def test_files_spark_had_read_are_not_read_again(checkpoint: Path) -> None:
    """Later files are; the checkpoint no longer names Spark's source, or Spark would refuse the query."""
    new = checkpoint.parent / "spool" / "new.ndjson"
    new.write_bytes(b"{}\n")
    files, planner = taken_over(checkpoint)
    assert files == 2
    assert [piece.name for piece in planner.plan(3).pieces] == ["new.ndjson"]
    logs = [path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()]
    assert len(logs) == 3
    assert not any("logOffset" in path.read_text() for path in logs)
    assert not [path for path in (checkpoint / "offsets").iterdir() if path.name.endswith(".crc")]
    assert [len(path.read_text().splitlines()) for path in logs] == [3, 3, 3]


def test_an_uncommitted_batch_reads_its_planned_files(checkpoint: Path) -> None:
    """The plan of each logged batch is that of Spark's source."""
    _, planner = taken_over(checkpoint)
    planned = [[piece.name for piece in planner.plan(batch_id).pieces] for batch_id in range(3)]
    assert sorted(len(names) for names in planned) == [0, 1, 1]


@pytest.mark.parametrize("stripped", [0, 1, 2])
def test_the_migration_can_be_interrupted_anywhere(checkpoint: Path, stripped: int) -> None:
    """The process ended after it had rewritten this many of Spark's logs."""
    before = {name: (checkpoint / "offsets" / name).read_bytes() for name in ("0", "1", "2")}
    _, whole = taken_over(checkpoint)
    wanted = [whole.plan(batch_id) for batch_id in range(3)]
    for name in ("0", "1", "2")[stripped:]:
        (checkpoint / "offsets" / name).write_bytes(before[name])
    _, again = taken_over(checkpoint)
    assert [again.plan(batch_id) for batch_id in range(3)] == wanted
    assert again.plan(3).pieces == ()


def test_a_checkpoint_without_spark_s_file_source_is_left_alone(tmp_path: Path) -> None:
    """New checkpoints have none, nor have those of this release."""
    assert taken_over(tmp_path / "checkpoint")[0] == 0
