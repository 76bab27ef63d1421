"""The judge's memory is stored by batch id: a batch that runs again starts from the same memory as the first time."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.checkpoint.memory_store import MemoryStore
from streaming.checkpoint.state_files import EARLIER_EVERY, RECENT_KEPT, VERSIONS_KEPT
from streaming.folder import LocalFolder
from streaming.judge.memory.memory import JudgeMemory


def saved(folder: LocalFolder, *batch_ids: int) -> MemoryStore:
    """Return a store in which each batch saved its own id as the memory's time."""
    store = MemoryStore(folder)
    for batch_id in batch_ids:
        store.save(batch_id, JudgeMemory(at=batch_id))
    return store


@pytest.mark.parametrize("restarted", [False, True], ids=["in the same process", "after a restart"])
def test_a_batch_starts_from_the_memory_of_the_batch_before(tmp_path: Path, restarted: bool) -> None:
    """This holds for the first run of a batch and for every repetition."""
    folder = LocalFolder(tmp_path)
    store = saved(folder, 0, 1, 2)
    if restarted:
        store = MemoryStore(folder)
    assert store.before(3).at == 2
    assert store.before(2).at == 1
    assert store.before(1).at == 0


def test_the_first_batch_starts_empty(tmp_path: Path) -> None:
    """This holds even when it runs again after its first run saved a memory."""
    folder = LocalFolder(tmp_path)
    assert MemoryStore(folder).before(0) == JudgeMemory.empty()
    saved(folder, 0)
    assert MemoryStore(folder).before(0) == JudgeMemory.empty()


def test_a_batch_that_runs_again_discards_later_memories(tmp_path: Path) -> None:
    """Spark never continues from a batch that was undone."""
    folder = LocalFolder(tmp_path)
    store = saved(folder, 0, 1, 2)
    store.save(1, JudgeMemory(at=11))
    assert store.before(2).at == 11
    assert MemoryStore(folder).before(9).at == 11


def test_old_memories_are_deleted(tmp_path: Path) -> None:
    """Those of the batches whose states are kept stay, also over a restart."""
    saved(LocalFolder(tmp_path), *range(VERSIONS_KEPT))
    last = VERSIONS_KEPT + 6
    saved(LocalFolder(tmp_path), *range(VERSIONS_KEPT, last + 1))
    left = sorted(int(path.stem) for path in tmp_path.iterdir())
    earlier = [batch for batch in range(last - VERSIONS_KEPT + 1, last + 1 - RECENT_KEPT) if batch % EARLIER_EVERY == 0]
    assert left == [*earlier, last - 2, last - 1, last] == [8, 16, 24, 29, 30, 31]
    assert [MemoryStore(LocalFolder(tmp_path)).before(batch + 1).at for batch in left] == left


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    """A user's notes or a backup may be in the folder."""
    (tmp_path / "notes.txt").write_text("x")
    saved(LocalFolder(tmp_path), *range(VERSIONS_KEPT + 3))
    assert (tmp_path / "notes.txt").exists()


def test_a_damaged_memory_is_refused(tmp_path: Path) -> None:
    """Without it, every signal would be announced again."""
    saved(LocalFolder(tmp_path), 0)
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"garbage")
    with pytest.raises(ValueError, match="memory is damaged"):
        MemoryStore(LocalFolder(tmp_path)).before(1)
