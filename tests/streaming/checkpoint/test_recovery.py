"""A damaged checkpoint goes back to the last intact batch, reports it, and loses nothing the sources still have."""

from __future__ import annotations

import json
import os
import shutil
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import structlog
from pyspark.sql import SparkSession

from streaming.checkpoint import seed, state_files
from streaming.checkpoint.memory_store import SEED
from streaming.checkpoint.offset_log import batch_ids
from streaming.checkpoint.recovery import recover
from streaming.checkpoint.spark_files import SparkFiles
from streaming.checkpoint.stored import verify
from streaming.checkpoint.versions import FOLDER, LedgerDamaged, ShardVersion, Version, VersionLedger
from streaming.errors import CheckpointMismatch
from streaming.folder import LocalFolder
from tests.streaming.checkpoints import FOLDER as CHECKPOINTS
from tests.streaming.checkpoints import NAMES, unpacked
from tests.streaming.spark.live import Live
from tests.streaming.spark.test_pipeline import messages, sent_total


@pytest.fixture
def live(spark: SparkSession, tmp_path: Path) -> Live:
    """A pipeline for this test alone."""
    return Live(spark, tmp_path)


def run_some_batches(live: Live) -> None:
    """Process three files of events, each in its own batch, and stop."""
    with live.running() as query:
        for count in (3, 5, 7):
            live.send(*messages(f"m{count}", count - sent_total(live.snapshots[-1]) if live.snapshots else count))
            live.wait(lambda s, n=count: sent_total(s) == n, query)  # type: ignore[misc] # a default binds the number


def latest(live: Live) -> Version:
    """Return the entry of the last committed batch."""
    return VersionLedger(LocalFolder(live.checkpoint / FOLDER)).read(batch_ids(LocalFolder(live.checkpoint / "commits"))[-1])


def cut_head(live: Live) -> None:
    """Empty the state file of a shard, as a power cut may leave it."""
    name = next(iter(latest(live).shards.values())).files[0].name
    (live.checkpoint / "shards" / name).write_bytes(b"")


def cut_memory(live: Live) -> None:
    """Truncate the judge's memory."""
    path = live.checkpoint / "judge" / f"{latest(live).batch_id:012d}.memory"
    path.write_bytes(path.read_bytes()[:20])


def cut_ledger(live: Live) -> None:
    """Truncate the ledger entry itself."""
    (live.checkpoint / FOLDER / f"{latest(live).batch_id:012d}.json").write_bytes(b"{")


def assert_nothing_is_lost(live: Live) -> None:
    """Send two more messages and run: all nine are counted, each once."""
    before = len(live.snapshots)
    live.send(*messages("after", 2))
    with live.running() as query:
        snapshot = live.wait(lambda s: s in live.snapshots[before:] and sent_total(s) >= 9, query)
    assert sent_total(snapshot) == 9
    assert snapshot.events_total["accepted"] == 9


@pytest.mark.parametrize("damage", [cut_head, cut_memory, cut_ledger])
def test_a_damaged_version_falls_back_to_the_previous_one(live: Live, damage: Callable[[Live], None]) -> None:
    """On real Spark, the discarded batches run again and every total is as before; the log reports the fallback."""
    run_some_batches(live)
    assert recover(live.checkpoint) is None
    last = latest(live).batch_id
    damage(live)
    with structlog.testing.capture_logs() as logs:
        assert recover(live.checkpoint) == last - 1
    (said,) = [line for line in logs if line["event"] == "checkpoint_gone_back"]
    assert (said["damaged_batch"], said["to_batch"]) == (last, last - 1)
    assert recover(live.checkpoint) is None
    assert_nothing_is_lost(live)


def test_a_changed_bit_in_the_judge_s_memory_is_found_before_the_query_starts(tmp_path: Path) -> None:
    """In what it remembers of a queue, which is parsed only when the queue is judged. The stored memory has no checksum."""
    checkpoint = unpacked("state-14", tmp_path)
    path = checkpoint / "judge" / "000000000002.memory"
    content = bytearray(path.read_bytes())
    content[1528] ^= 0x10
    path.write_bytes(content)
    assert [problem for problem in verify(checkpoint) if "the judge's memory of batch 2" in problem]
    assert recover(checkpoint) == 1
    assert list(verify(checkpoint)) == []


def test_the_commits_are_rolled_back_once_all_else_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a power cut could leave files of later batches, and no commit that would have them rolled back."""
    checkpoint = unpacked(NAMES[-1], tmp_path / "stored")
    last = batch_ids(LocalFolder(checkpoint / "commits"))[-1]
    (checkpoint / FOLDER / f"{last:012d}.json").write_bytes(b"{")
    steps: list[str] = []
    rename = os.rename

    def moved(source: Path, target: Path) -> None:
        steps.append(f"move from {source.parent.name}")
        rename(source, target)

    def synced(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        steps.append(f"sync {'undone ' if 'undone' in path.parts else ''}{path.name}")

    monkeypatch.setattr(os, "rename", moved)
    monkeypatch.setattr(os, "fsync", synced)
    assert recover(checkpoint) is not None
    moves = list(dict.fromkeys(step for step in steps if step.startswith("move")))
    assert moves[-1] == "move from commits"
    assert {"move from judge", "move from versions"} < set(moves)
    for move in moves:
        name = move.removeprefix("move from ")
        ended = len(steps) - steps[::-1].index(move)
        assert steps[ended : ended + 2] == [f"sync undone {name}", f"sync {name}"]


def test_a_power_cut_that_empties_spark_s_last_logs_loses_nothing(live: Live) -> None:
    """On real Spark: it does not flush its logs, so that of a batch that has just begun, or ended, may be empty."""
    run_some_batches(live)
    last = latest(live).batch_id
    (live.checkpoint / "commits" / str(last)).write_bytes(b"")
    for batch_id in (last, last + 1):
        (live.checkpoint / "offsets" / str(batch_id)).write_bytes(b"")
    with structlog.testing.capture_logs() as logs:
        assert recover(live.checkpoint) == last - 1
    assert [line["batch_id"] for line in logs if line["event"] == "unreadable_batch_dropped"] == [last]
    assert_nothing_is_lost(live)


def test_a_power_failure_costs_one_batch(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file of Spark that was never flushed is emptied, as file systems do that allocate late."""
    flushed = set()
    real = os.fsync

    def recording(descriptor: int) -> None:
        real(descriptor)
        flushed.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", recording)
    run_some_batches(live)
    last = latest(live).batch_id
    for name in ("offsets", "commits", "state", "sources"):
        for path in (live.checkpoint / name).rglob("*"):
            if path.is_file() and path.stat().st_ino not in flushed:
                path.write_bytes(b"")
    assert recover(live.checkpoint) in (last - 1, None)
    assert_nothing_is_lost(live)


def test_spark_s_files_are_flushed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the names in their folders; a file that Spark is still writing, or has deleted meanwhile, is left out."""
    flushed: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    files = SparkFiles(tmp_path)
    files.flush()
    for name in ("metadata", "offsets/0", "offsets/.1.7a.tmp", "state/0/0/1.changelog", "state/0/0/logs/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    files.flush()
    names = ["metadata", ".", "offsets/0", "offsets", "state/0/0/1.changelog", "state/0/0", "state/0/0/logs/x", "state/0/0/logs"]
    assert sorted(flushed) == sorted(str(tmp_path / name) for name in names)
    flushed.clear()
    files.flush()
    assert flushed == []
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").touch()
    (tmp_path / "offsets" / "0").unlink()
    files.flush()
    assert flushed == [str(tmp_path / "commits" / "0"), str(tmp_path / "commits")]


def test_a_new_checkpoint_starts_although_its_first_plan_was_not_finished(live: Live) -> None:
    """Spark leaves such files on a full disk, and refused the checkpoint for good although the disk had space again."""
    offsets = live.checkpoint / "offsets"
    offsets.mkdir(parents=True)
    for name in (f".0.{uuid4()}.tmp", f"..0.{uuid4()}.tmp.crc"):
        (offsets / name).touch()
    assert recover(live.checkpoint) is None
    assert not list(offsets.iterdir())
    run_some_batches(live)


@pytest.mark.parametrize("content", [b"", b"v1\n", b'v1\n{"batchWatermarkMs":0,"batchTime'])
def test_an_unreadable_log_of_the_next_batch_is_moved_aside(tmp_path: Path, content: bytes) -> None:
    """Also that of the first batch of a checkpoint; one that is whole stays."""
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    (offsets / "0").write_bytes(content)
    (offsets / ".0.crc").write_bytes(b"crc")
    assert recover(tmp_path) is None
    assert list(offsets.iterdir()) == []
    (offsets / "0").write_text('v1\n{"batchTimestampMs":1}\n1')
    assert recover(tmp_path) is None
    assert [path.name for path in offsets.iterdir()] == ["0"]


@pytest.mark.parametrize("content", [b"", b'{"id":', b'{"id":"\x00\x00"}', b'{"id":7}', b"[]"])
def test_an_unreadable_id_of_the_query_is_replaced(tmp_path: Path, content: bytes) -> None:
    """A power failure before the first batch leaves an empty file; one that is whole stays."""
    metadata = tmp_path / "metadata"
    metadata.write_bytes(content)
    (tmp_path / ".metadata.crc").write_bytes(b"crc")
    assert recover(tmp_path) is None
    assert UUID(json.loads(metadata.read_text())["id"])
    assert not (tmp_path / ".metadata.crc").exists()
    renewed = metadata.read_text()
    assert recover(tmp_path) is None
    assert metadata.read_text() == renewed


def test_a_missing_id_of_the_query_is_replaced_where_there_are_batches(tmp_path: Path) -> None:
    """Spark refuses to start without it. A new checkpoint gets its id from Spark."""
    assert recover(tmp_path) is None
    assert not (tmp_path / "metadata").exists()
    checkpoint = unpacked(NAMES[-1], tmp_path / "stored")
    (checkpoint / "metadata").unlink()
    assert recover(checkpoint) is None
    assert UUID(json.loads((checkpoint / "metadata").read_text())["id"])


def test_a_query_goes_on_with_another_id(live: Live) -> None:
    """Spark demands one where there are batches, and reads it before anything else."""
    run_some_batches(live)
    (live.checkpoint / "metadata").write_bytes(b"")
    assert recover(live.checkpoint) is None
    assert_nothing_is_lost(live)


def test_a_copy_of_a_running_checkpoint_can_be_continued(live: Live, tmp_path: Path) -> None:
    """It is copied file by file while batches run, in the worst order for Spark's logs: offsets and commits last."""
    live.send(*messages("a", 5))
    copy = tmp_path / "copy"
    with live.running() as query:
        live.wait(lambda s: sent_total(s) == 5, query)
        for name in ("shards", "judge", FOLDER, "state", "sources", "offsets", "commits"):
            shutil.copytree(live.checkpoint / name, copy / name, ignore_dangling_symlinks=True, copy_function=copy_if_there)
            live.wait_batch()
        shutil.copy(live.checkpoint / "metadata", copy / "metadata")
    assert recover(copy) is not None
    live.checkpoint = copy
    before = len(live.snapshots)
    live.send(*messages("b", 2))
    with live.running() as query:
        snapshot = live.wait(lambda s: s in live.snapshots[before:] and sent_total(s) >= 7, query)
    assert sent_total(snapshot) == 7


def copy_if_there(source: str, target: str) -> None:
    """Copy a file; one that was deleted during the copy is not needed."""
    try:
        shutil.copy2(source, target)
    except FileNotFoundError:
        time.sleep(0)


def test_a_checkpoint_without_any_intact_version_is_refused_with_a_fix(tmp_path: Path) -> None:
    """The refusal comes before Spark starts."""
    ledger = VersionLedger(LocalFolder(tmp_path / FOLDER))
    ledger.save(Version(3, 1, {}))
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "3").write_text("v1\n{}")
    with pytest.raises(CheckpointMismatch, match=r"the judge's memory of batch 3: it is gone.*Restore a copy"):
        recover(tmp_path)


DAMAGED_SEEDS = {
    seed.NAME: (b"{half", b"[]", b"{}", b'{"version": 9}', b'{"version": 1, "states": [], "kafka": {}}'),
    f"judge/{SEED}": (b"", zlib.compress(b"{}")),
}


@pytest.mark.parametrize(
    ("name", "content"), [(name, content) for name, contents in DAMAGED_SEEDS.items() for content in contents]
)
def test_a_new_checkpoint_whose_initial_state_is_damaged_is_refused_with_a_fix(tmp_path: Path, name: str, content: bytes) -> None:
    """It is that of another checkpoint, which still has it. The refusal comes before Spark starts a batch that would fail."""
    seed.write_seed(tmp_path, seed.Seed({}, {}))
    assert recover(tmp_path) is None
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointMismatch, match=rf"^the initial state of checkpoint {tmp_path} is damaged: .*state reshard"):
        recover(tmp_path)


def test_a_checkpoint_without_a_ledger_is_left_alone(tmp_path: Path) -> None:
    """New checkpoints have none, nor do those of releases before the ledger."""
    assert recover(tmp_path) is None
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "3").write_text("v1\n{}")
    assert recover(tmp_path) is None


def test_the_ledger_keeps_the_last_entries_and_drops_undone_ones(tmp_path: Path) -> None:
    """An entry reads back as it was written; a damaged one is named."""
    ledger = VersionLedger(LocalFolder(tmp_path), kept=3)
    file = state_files.StateFile("0-1.state", 12, 0xBEEF)
    for batch_id in range(6):
        ledger.save(Version(batch_id, 1_000 + batch_id, {5: ShardVersion((file,), 12, 3)}, {"t/0": batch_id}))
    again = VersionLedger(LocalFolder(tmp_path), kept=3)
    assert again.batches == (3, 4, 5)
    assert again.before(5) == Version(4, 1_004, {5: ShardVersion((file,), 12, 3)}, {"t/0": 4})
    assert again.before(3) is None
    again.save(Version(4, 9, {}))
    assert list(again.batches) == [3, 4]
    (tmp_path / "000000000004.json").write_text("[]")
    with pytest.raises(LedgerDamaged, match=r"versions/000000000004\.json cannot be read"):
        again.read(4)


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_checkpoint_of_every_format_is_continued(live: Live, name: str, tmp_path: Path) -> None:
    """On real Spark, an earlier release's checkpoint is read, counted on from, and written in the current format."""
    live.checkpoint = unpacked(name, tmp_path / "stored")
    published = json.loads((CHECKPOINTS / f"{name}.json").read_text())["metrics"]
    accepted = published['queuewatch_events_total{result="accepted"}']
    live.send(*messages("new", 2))
    with live.running() as query:
        snapshot = live.wait(lambda s: s.events_total.get("accepted", 0) >= accepted + 2, query)
        live.wait_batch()
    assert snapshot.events_total["accepted"] == accepted + 2
    assert recover(live.checkpoint) is None
