"""A checkpoint of a release that let Spark's own file source read the spool folder: nothing is read twice, nothing left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.config.source import SpoolSource
from streaming.folder import LocalFolder
from streaming.spool.ledger import SpoolLedger
from streaming.spool.migration import migrate
from streaming.spool.planner import SpoolPlanner
from tests.streaming.checkpoints import unpacked


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """As an earlier release left it, its spool folder beside it; two files in it were read, in the batches 1 and 2."""
    return unpacked("state-2", tmp_path)


def taken_over(checkpoint: Path) -> tuple[int, SpoolPlanner]:
    """The files taken over, and what plans from then on."""
    spool = checkpoint.parent / "spool"
    ledger = SpoolLedger(LocalFolder(checkpoint / "spool"), kept=20)
    files = migrate(lambda name: LocalFolder(checkpoint / name), spool, ledger)
    return files, SpoolPlanner(SpoolSource(folder=str(spool)), spool, ledger, lambda: 0.0, 20)


def test_what_spark_had_read_is_not_read_again(checkpoint: Path) -> None:
    """What comes after it is; the checkpoint no longer names Spark's source, or Spark would refuse the query."""
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


def test_a_batch_that_was_not_committed_reads_the_files_it_had(checkpoint: Path) -> None:
    """The plan of each logged batch is that of Spark's source."""
    _, planner = taken_over(checkpoint)
    planned = [[piece.name for piece in planner.plan(batch_id).pieces] for batch_id in range(3)]
    assert sorted(len(names) for names in planned) == [0, 1, 1]


@pytest.mark.parametrize("stripped", [0, 1, 2])
def test_it_can_be_cut_short_anywhere(checkpoint: Path, stripped: int) -> None:
    """The process ended after so many of Spark's logs had been rewritten."""
    before = {name: (checkpoint / "offsets" / name).read_bytes() for name in ("0", "1", "2")}
    _, whole = taken_over(checkpoint)
    wanted = [whole.plan(batch_id) for batch_id in range(3)]
    for name in ("0", "1", "2")[stripped:]:
        (checkpoint / "offsets" / name).write_bytes(before[name])
    _, again = taken_over(checkpoint)
    assert [again.plan(batch_id) for batch_id in range(3)] == wanted
    assert again.plan(3).pieces == ()


def test_a_checkpoint_without_such_a_source_is_left_alone(tmp_path: Path) -> None:
    """A new one, and one of this release."""
    assert taken_over(tmp_path / "checkpoint")[0] == 0
