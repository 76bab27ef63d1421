"""The judge's memory by batch id: a batch that runs again starts where it started the first time."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.checkpoint.memory_store import KEPT, MemoryStore
from streaming.folder import LocalFolder
from streaming.judge.memory import JudgeMemory


def saved(folder: LocalFolder, *batch_ids: int) -> MemoryStore:
    """A store in which each batch left its own id as the memory's time."""
    store = MemoryStore(folder)
    for batch_id in batch_ids:
        store.save(batch_id, JudgeMemory(at=batch_id))
    return store


@pytest.mark.parametrize("restarted", [False, True], ids=["in the same process", "after a restart"])
def test_a_batch_starts_from_the_memory_of_the_batch_before(tmp_path: Path, restarted: bool) -> None:
    """Whether it runs for the first time or again."""
    folder = LocalFolder(tmp_path)
    store = saved(folder, 0, 1, 2)
    if restarted:
        store = MemoryStore(folder)
    assert store.before(3).at == 2
    assert store.before(2).at == 1
    assert store.before(1).at == 0


def test_the_first_batch_starts_empty(tmp_path: Path) -> None:
    """Also when it runs again and its first run got as far as saving."""
    folder = LocalFolder(tmp_path)
    assert MemoryStore(folder).before(0) == JudgeMemory.empty()
    saved(folder, 0)
    assert MemoryStore(folder).before(0) == JudgeMemory.empty()


def test_a_batch_that_runs_again_replaces_what_came_after_it(tmp_path: Path) -> None:
    """Spark never goes on from a batch it has undone."""
    folder = LocalFolder(tmp_path)
    store = saved(folder, 0, 1, 2)
    store.save(1, JudgeMemory(at=11))
    assert store.before(2).at == 11
    assert MemoryStore(folder).before(9).at == 11


def test_old_memories_are_deleted(tmp_path: Path) -> None:
    """Only as many as Spark could go back are kept."""
    saved(LocalFolder(tmp_path), *range(KEPT + 7))
    assert len(list(tmp_path.iterdir())) == KEPT
    assert MemoryStore(LocalFolder(tmp_path)).before(KEPT + 7).at == KEPT + 6


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    """A person's notes, a backup."""
    (tmp_path / "notes.txt").write_text("x")
    saved(LocalFolder(tmp_path), *range(KEPT + 3))
    assert (tmp_path / "notes.txt").exists()


def test_a_memory_that_is_damaged_is_refused(tmp_path: Path) -> None:
    """Going on without it would announce every signal again."""
    saved(LocalFolder(tmp_path), 0)
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"garbage")
    with pytest.raises(ValueError, match="memory is damaged"):
        MemoryStore(LocalFolder(tmp_path)).before(1)
