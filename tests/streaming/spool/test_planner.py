"""Each file of a folder is read once, by the same batch however often it runs, and only existing files are remembered."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import structlog

from streaming.config.source import SpoolSource
from streaming.folder import LocalFolder
from streaming.spool import cut, ledger
from streaming.spool.ledger import SpoolDamaged, SpoolLedger
from streaming.spool.planner import SETTLES_WITHIN_S, SpoolPlanner
from streaming.spool.reading import Read, read_pieces


class Inbox:
    """A folder and its planner, over any number of starts."""

    def __init__(self, folder: Path, **source: Any) -> None:
        self.folder = folder / "in"
        self.folder.mkdir()
        self.ledger_folder = LocalFolder(folder / "checkpoint" / "spool")
        self.source = SpoolSource(folder=str(self.folder), **source)
        self.now_s = 0.0
        self.start()

    def start(self, kept: int = 3) -> None:
        """Create the planner as after a restart."""
        self.planner = SpoolPlanner(
            self.source, self.folder, SpoolLedger(self.ledger_folder, kept=kept), lambda: self.now_s, kept
        )

    def put(self, name: str, content: bytes = b"{}\n") -> None:
        """Add a file."""
        (self.folder / name).write_bytes(content)

    def read(self, batch_id: int) -> list[tuple[str, int, int]]:
        """Return what a batch reads."""
        return [(piece.name, piece.start, piece.end) for piece in self.planner.plan(batch_id).pieces]

    def names(self, batch_id: int) -> list[str]:
        """Return the names of the files a batch reads."""
        return [name for name, _, _ in self.read(batch_id)]

    def there(self) -> set[str]:
        """Return the files in the folder."""
        return set(os.listdir(self.folder))


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    """A folder whose files are kept after reading."""
    return Inbox(tmp_path)


def test_a_file_is_read_once_and_in_order_of_time(inbox: Inbox) -> None:
    """This holds over batches and restarts; temporary names are ignored."""
    for number, name in enumerate(("b.ndjson", "a.json", "c.arrow", ".d.ndjson", "_e.ndjson", "f.txt")):
        inbox.put(name)
        os.utime(inbox.folder / name, (1_000 + number, 1_000 + number))
    assert inbox.names(0) == ["b.ndjson", "a.json", "c.arrow"]
    assert inbox.names(1) == []
    inbox.put("g.jsonl")
    inbox.start()
    assert inbox.names(2) == ["g.jsonl"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_batch_that_runs_again_reads_the_same(inbox: Inbox, restarted: bool) -> None:
    """New files and the deletion of a file it read do not change that; the next batch continues after it."""
    inbox.put("a.json")
    inbox.put("b.json")
    first = inbox.read(4)
    inbox.put("c.json")
    (inbox.folder / "a.json").unlink()
    if restarted:
        inbox.start()
    assert inbox.read(4) == first
    assert inbox.planner.missing(inbox.planner.plan(4)) == {"a.json"}
    assert inbox.names(5) == ["c.json"]
    inbox.start()
    assert inbox.read(4) == first


def test_the_plan_of_an_undone_run_is_planned_again(inbox: Inbox) -> None:
    """The checkpoint went back to batch 0: batch 1 reads the same as before, batch 2 is planned again."""
    inbox.put("a.json")
    assert inbox.names(0) == ["a.json"]
    inbox.put("b.json")
    assert inbox.names(1) == ["b.json"]
    inbox.put("c.json")
    assert inbox.names(2) == ["c.json"]
    inbox.ledger_folder.delete("000000000002.plan")
    inbox.start()
    assert inbox.names(1) == ["b.json"]
    assert inbox.names(2) == ["c.json"]


def test_a_batch_reads_no_more_than_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file larger than a batch is read over several, even with restarts between them."""
    monkeypatch.setattr(cut, "PIECE_BYTES", 100)
    inbox = Inbox(tmp_path, max_bytes_per_trigger=350)
    line = b'{"v": 1, "type": "x"}\n'
    inbox.put("large.ndjson", line * 50)
    at = 0
    for batch_id in range(20):
        inbox.start()
        for _, start, end in inbox.read(batch_id):
            assert start == at
            at = end
        assert sum(end - start for _, start, end in inbox.read(batch_id)) <= 350
        if at == 50 * len(line):
            break
    assert at == 50 * len(line)
    assert batch_id > 2
    assert inbox.planner.waiting == 0
    assert inbox.read(batch_id + 1) == []


def test_at_least_one_piece_is_read_per_batch(tmp_path: Path) -> None:
    """Otherwise nothing would ever be read."""
    inbox = Inbox(tmp_path, max_bytes_per_trigger=1)
    inbox.put("a.json", b"{}" * 100)
    inbox.put("b.json", b"{}" * 100)
    assert len(inbox.names(0)) == 1
    assert inbox.planner.waiting == 1
    assert len(inbox.names(1)) == 1


def test_an_unfinished_file_is_waited_for(inbox: Inbox) -> None:
    """It was written under its final name, against the rules: it is read when its end is complete or writing has stopped."""
    inbox.put("a.ndjson", b'{"v": 1}\n{"v"')
    assert inbox.read(0) == []
    inbox.put("a.ndjson", b'{"v": 1}\n{"v": 1}\n')
    assert inbox.read(1) == [("a.ndjson", 0, 18)]
    inbox.put("torn.ndjson", b'{"v": 1}\n{"v"')
    assert inbox.read(2) == []
    inbox.now_s += SETTLES_WITHIN_S
    assert inbox.read(3) == [("torn.ndjson", 0, 13)]


def test_appended_data_is_read_too(inbox: Inbox) -> None:
    """Only the new part is read."""
    inbox.put("a.ndjson", b'{"v": 1}\n')
    assert inbox.read(0) == [("a.ndjson", 0, 9)]
    inbox.put("a.ndjson", b'{"v": 1}\n{"v": 2}\n')
    assert inbox.read(1) == [("a.ndjson", 9, 18)]


def test_files_are_removed_once_no_batch_that_read_them_can_run_again(tmp_path: Path) -> None:
    """The checkpoint can go back three batches here."""
    inbox = Inbox(tmp_path, after_reading="delete")
    for batch_id in range(6):
        inbox.put(f"{batch_id}.json")
        inbox.names(batch_id)
    assert inbox.there() == {"2.json", "3.json", "4.json", "5.json"}
    inbox.start()
    inbox.names(9)
    assert inbox.there() == set()


def test_files_are_removed_sooner_when_there_are_many(tmp_path: Path) -> None:
    """No more bytes may wait for removal than a batch may read."""
    inbox = Inbox(tmp_path, after_reading="delete", max_bytes_per_trigger=100)
    for batch_id in range(4):
        inbox.put(f"{batch_id}.json", b"{}" * 40)
        assert inbox.names(batch_id) == [f"{batch_id}.json"]
    assert inbox.there() == {"2.json", "3.json"}


def test_a_partly_read_file_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later batch reads the rest."""
    monkeypatch.setattr(cut, "PIECE_BYTES", 10)
    inbox = Inbox(tmp_path, after_reading="delete", max_bytes_per_trigger=20)
    inbox.start(kept=0)
    inbox.put("a.ndjson", b'{"v": 1}\n' * 9)
    for batch_id in range(9):
        if not inbox.read(batch_id):
            break
        assert "a.ndjson" in inbox.there()
    assert inbox.there() == set()


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_files_move_to_the_archive(tmp_path: Path, scheme: str) -> None:
    """They keep their names. The folder may be given as a URI, like the spool folder."""
    inbox = Inbox(tmp_path, after_reading="archive", archive_folder=f"{scheme}{tmp_path / 'archive'}")
    inbox.put("a.json")
    inbox.names(0)
    inbox.names(9)
    assert os.listdir(tmp_path / "archive") == ["a.json"]
    assert inbox.there() == set()


def test_a_file_with_the_name_of_an_earlier_one_replaces_only_a_copy_of_it(tmp_path: Path) -> None:
    """A sender may use the same name every day. Of the same content, the earlier one is of a move that a crash interrupted."""
    archive = tmp_path / "archive"
    inbox = Inbox(tmp_path, after_reading="archive", archive_folder=str(archive))
    for day, content in enumerate((b"[1]\n", b"[22]\n", b"[1]\n", b"[333]\n")):
        inbox.put("a.json", content)
        assert inbox.names(20 * day) == ["a.json"]
        inbox.names(20 * day + 9)
        assert inbox.there() == set()
    assert {path.name: path.read_bytes() for path in archive.iterdir()} == {
        "a.json": b"[1]\n",
        "a.2.json": b"[22]\n",
        "a.3.json": b"[333]\n",
    }


def to_another_file_system(source: Path, target: Path) -> None:
    """Rename nothing, as to another file system."""
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source), None, str(target))


def test_a_file_is_on_the_archive_s_disk_before_it_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive may be on another file system, to which nothing can be renamed; a power cut must not cost the file."""
    archive = tmp_path / "archive"
    inbox = Inbox(tmp_path, after_reading="archive", archive_folder=str(archive))
    archive.mkdir()
    inbox.put("a.json")
    os.utime(inbox.folder / "a.json", (1_000, 1_000))
    inbox.names(0)
    steps: list[str] = []
    fsync, unlink = os.fsync, os.unlink

    def synced(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        steps.append(f"sync {os.path.relpath(path, tmp_path)}: {os.path.isdir(path) and sorted(os.listdir(path))}")
        fsync(descriptor)

    def removed(path: Path) -> None:
        steps.append(f"remove {os.path.relpath(path, tmp_path)}")
        unlink(path)

    monkeypatch.setattr(os, "rename", to_another_file_system)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "unlink", removed)
    inbox.names(9)
    assert steps == [
        "sync archive/.a.json.part: False",
        "sync archive: ['a.json']",
        "remove in/a.json",
        "sync in: []",
    ]
    assert (archive / "a.json").read_bytes() == b"{}\n"
    assert (archive / "a.json").stat().st_mtime == 1_000


def test_a_full_archive_costs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing remains there of the copy that did not fit, and the file is moved once there is room."""
    archive = tmp_path / "archive"
    inbox = Inbox(tmp_path, after_reading="archive", archive_folder=str(archive))
    inbox.put("a.json")
    inbox.names(0)

    def full(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:1])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", to_another_file_system)
        patched.setattr(shutil, "copy2", full)
        inbox.names(9)
    assert inbox.there() == {"a.json"}
    assert os.listdir(archive) == []
    inbox.names(10)
    assert os.listdir(archive) == ["a.json"]


def test_a_file_whose_name_is_not_utf_8_is_read_and_removed_like_any_other(tmp_path: Path) -> None:
    """Plans keep its name over restarts; where its events came from is shown with replacement characters."""
    inbox = Inbox(tmp_path, after_reading="delete")
    name = os.fsdecode(b"caf\xe9.ndjson")
    inbox.put(name, b'{"v": 1}\n')
    planned = inbox.planner.plan(0)
    inbox.start()
    assert inbox.planner.plan(0) == planned
    (read,) = read_pieces(inbox.folder, planned.pieces)
    assert isinstance(read, Read)
    assert read.records.column("value").to_pylist() == [b'{"v": 1}\n']
    assert read.records.column("origin").to_pylist() == [f"{inbox.folder}/caf\ufffd.ndjson"]
    assert inbox.names(1) == []
    assert inbox.names(9) == []
    assert inbox.there() == set()


@pytest.mark.slow
def test_a_month_of_removed_files_leaves_no_trace(tmp_path: Path) -> None:
    """The ledger's size is limited by the files in the folder and the batches the checkpoint can go back."""
    inbox = Inbox(tmp_path, after_reading="delete")
    for batch_id in range(400):
        inbox.put(f"{batch_id}.json")
        inbox.names(batch_id)
        if batch_id % 37 == 0:
            inbox.start()
    kept = inbox.ledger_folder.names()
    assert len(kept) < 2 * ledger.INDEX_EVERY + 10
    index = max(name for name in kept if name.endswith(".index"))
    assert len(json.loads(inbox.ledger_folder.read(index) or b"")["files"]) <= 5
    inbox.start()
    assert inbox.names(400) == []


def test_a_missing_folder_loses_no_history(inbox: Inbox) -> None:
    """After an unmounted disk is back, the files that were read are still known."""
    inbox.put("a.json")
    inbox.names(0)
    away = inbox.folder.rename(inbox.folder.with_name("away"))
    with structlog.testing.capture_logs() as logs:
        assert inbox.names(1) == [] == inbox.names(2)
    assert [line["event"] for line in logs] == ["spool_folder_not_listed"]
    away.rename(inbox.folder)
    inbox.put("b.json")
    assert inbox.names(3) == ["b.json"]


def test_a_file_that_cannot_be_examined_keeps_no_other_from_being_read(inbox: Inbox) -> None:
    """The log says so once. Here it is a link to itself; a link into a closed folder and a broken disk give such errors too."""
    (inbox.folder / "loop.ndjson").symlink_to("loop.ndjson")
    inbox.put("a.json")
    with structlog.testing.capture_logs() as logs:
        assert inbox.names(0) == ["a.json"]
        inbox.put("b.json")
        assert inbox.names(1) == ["b.json"]
    assert [(line["event"], line["path"]) for line in logs] == [("spool_file_not_read", f"{inbox.folder}/loop.ndjson")]


def test_a_file_that_was_read_is_not_forgotten_while_it_cannot_be_examined(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would be read a second time when the disk answers again."""
    monkeypatch.setattr(ledger, "INDEX_EVERY", 1)
    inbox.put("a.json")
    assert inbox.names(0) == ["a.json"]
    away = (inbox.folder / "a.json").rename(inbox.folder / ".away")
    (inbox.folder / "a.json").symlink_to("a.json")
    inbox.put("b.json")
    assert inbox.names(1) == ["b.json"]
    away.rename(inbox.folder / "a.json")
    inbox.start()
    assert inbox.names(2) == []


def test_the_plans_before_a_batch_are_verified(inbox: Inbox) -> None:
    """Continuing from a copied checkpoint without one of them would read files twice."""
    for batch_id in (0, 3, 5):
        inbox.put(f"{batch_id}.json")
        inbox.names(batch_id)
    found = SpoolLedger(inbox.ledger_folder, kept=3)
    assert found.last(4) == 3
    assert list(found.problems(5)) == []
    assert list(found.problems(-1)) == []
    inbox.ledger_folder.delete("000000000003.plan")
    assert list(SpoolLedger(inbox.ledger_folder, kept=3).problems(5)) == ["spool/000000000003.plan is gone"]
    inbox.ledger_folder.write("000000000003.plan", b"{")
    (problem,) = SpoolLedger(inbox.ledger_folder, kept=3).problems(5)
    assert problem.startswith("spool/000000000003.plan cannot be read")
    inbox.start()
    with pytest.raises(SpoolDamaged, match=r"000000000003\.plan"):
        inbox.names(6)


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("*.{ndjson,json}", "a.json", True),
        ("*.{ndjson,json}", "a.jsonl", False),
        ("{a,b}-*.{x,y}", "b-1.y", True),
        ("[^a]*.json", "a.json", False),
        ("[^a]*.json", "b.json", True),
        ("?.json", "ab.json", False),
    ],
)
def test_patterns_work_as_in_hadoop(tmp_path: Path, pattern: str, name: str, fits: bool) -> None:
    """Configurations used them with Spark's file source."""
    inbox = Inbox(tmp_path, pattern=pattern)
    inbox.put(name)
    assert inbox.names(0) == ([name] if fits else [])
