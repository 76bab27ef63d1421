"""Shard states in files: every version stays readable as long as Spark may ask for it, and no longer."""

from __future__ import annotations

import itertools
import os
import pickle
from pathlib import Path

import pytest

from streaming.checkpoint import state_files
from streaming.checkpoint.state_files import (
    EARLIER_EVERY,
    RECENT_KEPT,
    VERSIONS_KEPT,
    FileState,
    InlineState,
    Pruner,
    StateDamaged,
    StateFile,
    state_keeper,
)
from streaming.checkpoint.versions import FOLDER, ShardVersion, Version, VersionLedger
from streaming.core.state.state import Packed
from streaming.folder import LocalFolder

BLOB = bytes(range(256)) * 4


def packed(head: bytes, **segments: bytes) -> Packed:
    return Packed(head, segments)


@pytest.mark.parametrize("keeper", ["files", "inline"])
def test_a_stored_state_is_fetched_by_another_worker(tmp_path: Path, keeper: str) -> None:
    """Workers receive the keeper pickled."""
    made = state_keeper(str(tmp_path)) if keeper == "files" else state_keeper("s3a://bucket/checkpoint")
    state = packed(BLOB, a=b"one layer", b=BLOB)
    fetched = pickle.loads(pickle.dumps(made)).fetch(made.keep(3, state))
    assert fetched.head == BLOB
    assert {name: bytes(body) for name, body in fetched.segments.items()} == state.segments
    assert fetched.size == state.size


def test_only_a_local_checkpoint_uses_files(tmp_path: Path) -> None:
    """Workers reach other file systems only through Spark."""
    assert isinstance(state_keeper(str(tmp_path)), FileState)
    assert isinstance(state_keeper(tmp_path.as_uri()), FileState)
    assert isinstance(state_keeper("hdfs://name/checkpoint"), InlineState)


def test_spark_s_own_state_is_small(tmp_path: Path) -> None:
    """Spark keeps only the names of the files, less than 100 bytes."""
    assert len(state_keeper(str(tmp_path)).keep(0, packed(BLOB * 1000))) < 100


def test_every_attempt_writes_a_file_of_its_own(tmp_path: Path) -> None:
    """A task that fails or runs twice never harms the previous version."""
    keeper = state_keeper(str(tmp_path))
    first, second = keeper.keep(0, packed(b"first")), keeper.keep(0, packed(b"second"))
    assert (keeper.fetch(first).head, keeper.fetch(second).head) == (b"first", b"second")


def test_a_checkpoint_may_move_from_inline_to_files_but_not_back(tmp_path: Path) -> None:
    """The error says that the state is in a local checkpoint folder."""
    files, inline = state_keeper(str(tmp_path)), InlineState()
    assert files.fetch(inline.keep(0, packed(BLOB))).head == BLOB
    with pytest.raises(StateDamaged, match="local checkpoint folder"):
        inline.fetch(files.keep(0, packed(BLOB)))


def test_files_that_no_version_needs_are_deleted(tmp_path: Path) -> None:
    """All files of the latest batches stay, and of every few before them; those of failed attempts are deleted."""
    keeper = state_keeper(str(tmp_path))
    pruner = Pruner(keeper, 2)
    keeper.keep(0, packed(b"of an attempt that failed", lost=b"its layer"))
    versions = []
    for batch in range(VERSIONS_KEPT + 3):
        kept = [keeper.keep(shard, packed(b"%d" % batch)) for shard in range(2)]
        pruner.published(batch, {shard: keeper.files_of(k) for shard, k in enumerate(kept)})
        versions.append(kept)
    last = len(versions) - 1
    whole = [
        batch for batch in range(last - VERSIONS_KEPT + 1, last + 1) if batch % EARLIER_EVERY == 0 or batch > last - RECENT_KEPT
    ]
    assert whole == [8, 16, 24, 25, 26, 27]
    for batch in whole:
        assert [int(keeper.fetch(k).head) for k in versions[batch]] == [batch] * 2
    assert len(list((tmp_path / "shards").iterdir())) == 2 * len(whole)


def test_a_batch_that_runs_again_counts_once(tmp_path: Path) -> None:
    """Spark repeats a batch that failed; its files replace those of the attempt before."""
    keeper = state_keeper(str(tmp_path))
    pruner = Pruner(keeper, 1)
    for batch in (*range(VERSIONS_KEPT), *[VERSIONS_KEPT - 1] * RECENT_KEPT):
        pruner.published(batch, {0: keeper.files_of(keeper.keep(0, packed(b"%d" % batch)))})
    left = sorted(int(path.read_bytes()) for path in (tmp_path / "shards").iterdir())
    assert left == [0, 8, 16, 22, 23, 24]


def test_nothing_is_deleted_while_a_previous_run_s_version_may_be_needed(tmp_path: Path) -> None:
    """After a restart Spark may go back to a version this run has not seen."""
    keeper = state_keeper(str(tmp_path))
    before = keeper.keep(0, packed(b"before the restart"))
    pruner = Pruner(keeper, 1)
    for batch in range(VERSIONS_KEPT - 1):
        pruner.published(batch, {0: keeper.files_of(keeper.keep(0, packed(b"x")))})
        assert keeper.fetch(before).head == b"before the restart"


def test_a_run_s_own_versions_are_deleted_from_its_first_batches_on(tmp_path: Path) -> None:
    """Only files that were there before it may be needed for longer; they are deleted with the last version of that time."""
    keeper = state_keeper(str(tmp_path))
    before = keeper.keep(0, packed(b"before the restart"))
    pruner = Pruner(keeper, 1)
    most = 0
    for batch in range(101, 101 + VERSIONS_KEPT - 1):
        pruner.published(batch, {0: keeper.files_of(keeper.keep(0, packed(b"%d" % batch)))})
        most = max(most, len(list((tmp_path / "shards").iterdir())))
        for recent in range(max(101, batch + 1 - RECENT_KEPT), batch + 1):
            assert b"%d" % recent in {path.read_bytes() for path in (tmp_path / "shards").iterdir()}
    assert most == 1 + VERSIONS_KEPT // EARLIER_EVERY + RECENT_KEPT
    assert keeper.fetch(before).head == b"before the restart"
    pruner.published(200, {0: keeper.files_of(keeper.keep(0, packed(b"200")))})
    with pytest.raises(StateDamaged):
        keeper.fetch(before)


def test_runs_that_end_after_a_few_batches_leave_no_more_files(tmp_path: Path) -> None:
    """As while a service is restarted again and again, or a batch fails on a full disk every five seconds."""
    keeper = state_keeper(str(tmp_path))
    most, committed = 0, -1
    for batch in range(4 * VERSIONS_KEPT):
        ledger = VersionLedger(LocalFolder(tmp_path / FOLDER))
        pruner = Pruner(keeper, 1, earlier=ledger.files(committed))
        most = max(most, len(list((tmp_path / "shards").iterdir())))
        if batch % 4 == 3:
            keeper.keep(0, packed(b"of an attempt that failed", lost=b"its segment"))
            continue
        files = keeper.files_of(keeper.keep(0, packed(b"%d" % batch)))
        ledger.save(Version(batch, 1, {0: ShardVersion(tuple(map(StateFile.of, files)))}))
        pruner.published(batch, {0: files})
        committed = batch
    assert most <= 2 * (RECENT_KEPT + VERSIONS_KEPT // EARLIER_EVERY + 1)


def test_what_the_next_batch_starts_from_is_kept(tmp_path: Path) -> None:
    """The states of the last versions, and those of a checkpoint that was created from another one; without a ledger, all."""
    seed = state_keeper(str(tmp_path)).keep(0, packed(b"seed"))
    keeper = state_keeper(str(tmp_path), {0: tuple(map(StateFile.of, FileState(tmp_path / "shards").files_of(seed)))})
    before = keeper.keep(0, packed(b"before the ledger"))
    ledger = VersionLedger(LocalFolder(tmp_path / FOLDER))
    assert ledger.files(-1) is None
    assert ledger.files(7) is None
    last = keeper.keep(0, packed(b"8"))
    ledger.save(Version(8, 1, {0: ShardVersion(tuple(map(StateFile.of, keeper.files_of(last))))}))
    assert ledger.files(7) is None, "batch 7 is of a release without a ledger"
    Pruner(keeper, 1, earlier=ledger.files(7))
    assert keeper.fetch(before).head == b"before the ledger"
    Pruner(keeper, 1, earlier=ledger.files(8))
    assert keeper.fetch(last).head == b"8"
    assert keeper.fetch(seed).head == b"seed"
    with pytest.raises(StateDamaged):
        keeper.fetch(before)
    (tmp_path / FOLDER / "000000000008.json").write_text("")
    assert ledger.files(8) is None


def test_inline_state_has_nothing_to_prune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder is touched: neither that of another checkpoint's states, nor the one in which the process runs."""
    monkeypatch.chdir(tmp_path)
    state_keeper(str(tmp_path)).keep(0, packed(b"of another checkpoint"))
    (tmp_path / "notes").write_text("by hand")
    before = sorted(tmp_path.rglob("*"))
    pruner = Pruner(InlineState(), 2)
    for batch in range(3 * VERSIONS_KEPT):
        pruner.published(batch, {0: [], 1: []})
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "notes").read_text() == "by hand"


def test_a_shard_untouched_by_a_batch_keeps_its_file(tmp_path: Path) -> None:
    """Its current state is from an earlier batch, however long ago."""
    keeper = state_keeper(str(tmp_path))
    pruner = Pruner(keeper, 2)
    resting = keeper.keep(0, packed(b"resting"))
    pruner.published(0, {0: keeper.files_of(resting), 1: keeper.files_of(keeper.keep(1, packed(b"x")))})
    for batch in range(1, 3 * VERSIONS_KEPT):
        pruner.published(batch, {1: keeper.files_of(keeper.keep(1, packed(b"x")))} if batch % 2 else {})
    assert keeper.fetch(resting).head == b"resting"


def test_nothing_is_deleted_before_every_shard_is_known(tmp_path: Path) -> None:
    """After a restart the other shards may still refer to any file."""
    keeper = state_keeper(str(tmp_path))
    before = keeper.keep(0, packed(b"before the restart"))
    pruner = Pruner(keeper, 2)
    for batch in range(3 * VERSIONS_KEPT):
        pruner.published(batch, {1: keeper.files_of(keeper.keep(1, packed(b"x")))})
    assert keeper.fetch(before).head == b"before the restart"


def test_a_segment_is_written_once_and_kept_while_a_version_refers_to_it(tmp_path: Path) -> None:
    """Any number of versions may share it."""
    keeper = state_keeper(str(tmp_path))
    pruner = Pruner(keeper, 1)
    segment = tmp_path / "shards" / "abc.layer"
    batches = itertools.count()

    def batch(**segments: bytes) -> None:
        pruner.published(next(batches), {0: keeper.files_of(keeper.keep(0, packed(b"x", **segments)))})

    batch(abc=BLOB)
    written = segment.stat().st_ino
    for _ in range(2 * VERSIONS_KEPT):
        batch(abc=BLOB)
    assert segment.stat().st_ino == written
    assert segment.read_bytes() == BLOB
    for _ in range(VERSIONS_KEPT):
        batch()
    assert not segment.exists()


@pytest.fixture
def another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a process that has not checked any file yet."""
    monkeypatch.setattr(state_files, "_verified", set())


DAMAGES = {
    "gone": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "changed": lambda path: path.write_bytes(b"\xff" + path.read_bytes()[1:]),
}


@pytest.mark.parametrize("suffix", ["state", "layer"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_found_and_named(tmp_path: Path, suffix: str, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that did not write the files detects it, in the head and in segments."""
    keeper = state_keeper(str(tmp_path))
    kept = keeper.keep(0, packed(BLOB, abc=BLOB))
    (path,) = (tmp_path / "shards").glob(f"*.{suffix}")
    DAMAGES[damage](path)
    monkeypatch.setattr(state_files, "_verified", set())
    with pytest.raises(StateDamaged, match=path.name):
        keeper.fetch(kept)


@pytest.mark.usefixtures("another_process")
def test_an_empty_segment_file_is_not_reused(tmp_path: Path) -> None:
    """A power cut may leave an empty file under the right name; it is written again."""
    keeper = state_keeper(str(tmp_path))
    segment = tmp_path / "shards" / "abc.layer"
    segment.write_bytes(b"")
    kept = keeper.keep(0, packed(BLOB, abc=BLOB))
    assert bytes(keeper.fetch(kept).segments["abc"]) == BLOB


def test_a_state_is_synced_before_spark_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is synced, then the folder."""
    synced: list[str] = []
    real = os.fsync

    def recording(descriptor: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        real(descriptor)

    keeper = state_keeper(str(tmp_path))
    monkeypatch.setattr(os, "fsync", recording)
    keeper.keep(0, packed(b"x", abc=b"y"))
    assert [name == "shards" for name in synced] == [False, True, False, True]


def test_a_state_of_an_earlier_release_is_fetched(tmp_path: Path) -> None:
    """It consists of file names only."""
    keeper = state_keeper(str(tmp_path))
    (tmp_path / "shards" / "0-1.state").write_bytes(b"head")
    (tmp_path / "shards" / "abc.layer").write_bytes(b"layer")
    fetched = keeper.fetch(b"F0-1.state abc.layer")
    assert (fetched.head, bytes(fetched.segments["abc"])) == (b"head", b"layer")
    assert keeper.files_of(b"F0-1.state abc.layer") == ["0-1.state", "abc.layer"]
