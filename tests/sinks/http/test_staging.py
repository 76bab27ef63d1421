"""The spool of ingest: events are durable before they are accepted, and a disk that fails accepts nothing."""

from __future__ import annotations

import errno
import json
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from sinks.http import HttpSettings, IngestSettings, Spool, StageUnavailableError
from sinks.http.staging import BodyKind, _PendingBody
from sources.wire import encode_arrow
from streaming.config.source import SpoolSource
from streaming.spark.readers.spool import prepare_spool
from tests.sinks.http.conftest import StartService
from tests.sinks.http.ingesting import EVENTS, NDJSON, NDJSON_TYPE, ids, post, refused, serve_ingest, spooled
from tests.waiting import until


def test_no_room_is_507_with_the_folder_and_the_remedy(start: StartService, spool: Path) -> None:
    """No half-written file is left."""
    service = start(None, HttpSettings(ingest=IngestSettings(Spool(spool, min_free_bytes=1 << 60))))
    answer = post(service, NDJSON, NDJSON_TYPE)
    error = refused(answer, 507, "no_room")
    assert str(spool) in error["message"]
    assert answer.headers["retry-after"] == "30"
    assert list(spool.iterdir()) == []


def test_a_full_spool_refuses_events(start: StartService, spool: Path) -> None:
    """The reader removes files, so a spool that reaches its limit means that it stopped; the error says to check the job."""
    service = start(None, HttpSettings(ingest=IngestSettings(Spool(spool, max_spooled_bytes=1))))
    assert post(service, NDJSON, NDJSON_TYPE).status_code == 202
    error = refused(post(service, NDJSON, NDJSON_TYPE), 507, "no_room")
    assert "check that the job runs" in error["message"]


def test_a_file_that_its_reader_removes_meanwhile_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job removes files while the waiting bytes are added up; events are accepted all the same."""
    spool = Spool(tmp_path, max_spooled_bytes=1)
    spool.put(NDJSON, "ndjson")
    scandir = os.scandir

    @contextmanager
    def overtaken(folder: Path) -> Iterator[list[os.DirEntry[str]]]:
        with scandir(folder) as entries:
            found = list(entries)
        for entry in found:
            os.unlink(entry.path)
        yield found

    monkeypatch.setattr(os, "scandir", overtaken)
    spool.put(NDJSON, "ndjson")
    monkeypatch.undo()
    assert len(spooled(tmp_path)) == 1


@pytest.mark.parametrize(
    ("number", "status", "code"),
    [(errno.ENOSPC, 507, "no_room"), (errno.EACCES, 503, "stage"), (errno.EIO, 503, "stage")],
)
def test_an_fsync_error_accepts_nothing(
    start: StartService, spool: Path, monkeypatch: pytest.MonkeyPatch, number: int, status: int, code: str
) -> None:
    """The error comes at fsync, after the write appeared to succeed."""
    service = serve_ingest(start, spool)

    def failing(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", failing)
    refused(post(service, NDJSON, NDJSON_TYPE), status, code)
    assert list(spool.iterdir()) == []


def test_a_missing_spool_folder_is_named(tmp_path: Path) -> None:
    """The error names the folder if it was deleted while the service ran."""
    spool = Spool(tmp_path / "spool")
    (tmp_path / "spool").rmdir()
    with pytest.raises(StageUnavailableError, match="spool"):
        spool.put(NDJSON, "ndjson")


class Senders:
    """Threads that put bodies into a spool; the first waits within its fsync until all have arrived."""

    def __init__(self, spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
        self._spool = spool
        self._answers: queue.Queue[Exception | None] = queue.Queue()
        self._entered, self._go = threading.Event(), threading.Event()
        fsync = os.fsync

        def waiting(descriptor: int) -> None:
            self._entered.set()
            assert self._go.wait(20)
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", waiting)

    def arrive(self, count: int) -> None:
        """Start the threads. All but the first form one batch, in which each body has a file of its own."""
        for i in range(count):
            # Daemons, so that a sender that hangs fails the test and not its end.
            threading.Thread(target=self._put, daemon=True).start()
            assert self._entered.wait(20)
            until(lambda i=i: len(self._spool._pending) == i, "the sender waits for its turn")  # type: ignore[misc]

    def answers(self, count: int) -> list[Exception | None]:
        """Let all threads go on; return their answers, None for an accepted body."""
        self._go.set()
        return [self._answers.get(timeout=20) for _ in range(count)]

    def _put(self) -> None:
        try:
            self._spool.put(encode_arrow(EVENTS), "arrow")
        except Exception as error:
            self._answers.put(error)
        else:
            self._answers.put(None)


def test_a_disk_that_refuses_even_the_removal_of_a_file_accepts_nothing_until_its_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sender of the batch gets an answer that its events were kept, and the service needs no restart afterwards."""
    folder = tmp_path / "spool"
    senders = Senders(Spool(folder), monkeypatch)
    senders.arrive(4)
    shutil.rmtree(folder)
    folder.touch()  # Every call in it fails now, as on a disk that has become read-only.
    assert [type(answer) for answer in senders.answers(4)] == [StageUnavailableError] * 4
    folder.unlink()
    folder.mkdir()
    senders.arrive(1)
    assert senders.answers(1) == [None]
    assert ids(spooled(folder)) == ["m0", "m1", "m2"]


def test_an_unforeseen_error_reaches_every_sender_of_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that writes for the others fails with the error itself; the others get the answer to send again."""
    senders = Senders(Spool(tmp_path), monkeypatch)
    senders.arrive(4)
    rename = os.rename
    renamed: list[Path] = []

    def failing(old: Path, new: Path) -> None:
        renamed.append(new)
        if len(renamed) == 2:  # the first file of the batch; that of the first sender was alone
            raise MemoryError
        rename(old, new)

    monkeypatch.setattr(os, "rename", failing)
    kinds = [type(answer) for answer in senders.answers(4)]
    assert sorted(kind.__name__ for kind in kinds) == ["MemoryError", "NoneType"] + ["StageUnavailableError"] * 2
    senders.arrive(1)
    assert senders.answers(1) == [None]


def test_a_body_is_on_disk_under_its_final_name_before_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fsync the file, rename it, fsync the folder: in any other order a power cut can lose acknowledged events."""
    done: list[str] = []
    fsync, rename = os.fsync, os.rename

    def syncing(descriptor: int) -> None:
        done.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).suffix or 'folder'}")
        fsync(descriptor)

    def renaming(old: Path, new: Path) -> None:
        assert old.name.startswith(".")
        done.append(f"rename to {new.suffix}")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "rename", renaming)
    Spool(tmp_path).put(NDJSON, "ndjson")
    assert done == ["sync .part", "rename to .ndjson", "sync folder"]


@pytest.mark.parametrize("create", [Spool, lambda folder: prepare_spool(SpoolSource(folder=str(folder)))], ids=["ingest", "job"])
def test_a_new_spool_folder_is_on_disk_before_its_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, create: Callable[[Path], object]
) -> None:
    """A power cut that removes the folder would take acknowledged events with it."""
    synced: set[str] = set()
    fsync = os.fsync

    def syncing(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", syncing)
    create(tmp_path / "data" / "spool")
    assert synced == {str(tmp_path), str(tmp_path / "data")}


def test_bodies_that_wait_for_the_disk_share_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty senders with 40 bodies make fewer than 15 files, and every line is in exactly one of them."""
    fsync = os.fsync

    def slow(descriptor: int) -> None:
        time.sleep(0.02)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    spool = Spool(tmp_path)
    bodies = [json.dumps(EVENTS[0] | {"message_id": f"m{i}"}).encode() for i in range(40)]
    with ThreadPoolExecutor(20) as senders:
        list(senders.map(lambda body: spool.put(body, "ndjson"), bodies))
    assert ids(spooled(tmp_path)) == sorted(f"m{i}" for i in range(40))
    assert len(spooled(tmp_path)) < 15


def test_an_arrow_stream_and_json_that_is_not_lines_have_files_of_their_own(tmp_path: Path) -> None:
    """They cannot be concatenated as lines can, and a file ends at the size limit."""
    spool = Spool(tmp_path, max_file_bytes=len(NDJSON) + 1)
    array = json.dumps(EVENTS, indent=1).encode()
    kinds: list[tuple[BodyKind, bytes]] = [
        ("json", array),
        ("arrow", encode_arrow(EVENTS)),
        ("ndjson", NDJSON),
        ("ndjson", NDJSON),
    ]
    spool._write([_PendingBody(body, kind) for kind, body in (*kinds, ("json", array))])
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".arrow"] + [".ndjson"] * 4
    assert ids(spooled(tmp_path)) == sorted(["m0", "m1", "m2"] * 5)


def test_files_left_by_a_crash_are_removed_but_not_those_of_a_running_process(tmp_path: Path) -> None:
    """Temporary files older than an hour are leftovers."""
    (tmp_path / ".old.ndjson.part").touch()
    os.utime(tmp_path / ".old.ndjson.part", (0, 0))
    (tmp_path / ".new.ndjson.part").touch()
    Spool(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".new.ndjson.part"]
