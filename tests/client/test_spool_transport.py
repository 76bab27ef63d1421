"""The transport that writes telemetry to a spool folder: what its reader sees, whatever happens to files and processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from queuewatch import SendError
from queuewatch.sender import BackgroundSender
from queuewatch.transports.spool import SpoolTransport
from tests.waiting import until


def shown(folder: Path) -> list[bytes]:
    """Return the contents of the files that a reader sees, oldest first."""
    return [path.read_bytes() for path in sorted(folder.glob("*.ndjson"))]


def test_spool_files_appear_complete_by_size_and_by_age(tmp_path: Path) -> None:
    """A reader never sees a file that is still being written."""
    folder = tmp_path / "spool"
    spool = SpoolTransport(str(folder), max_file_bytes=10, max_age_s=0.1)
    assert spool.due_s() is None
    spool.send(b"1234\n")
    assert shown(folder) == []
    assert 0 <= (spool.due_s() or 0) <= 0.1
    spool.send(b"5678\n")
    assert shown(folder) == [b"1234\n5678\n"]
    spool.send(b"9\n")
    spool.flush()
    assert shown(folder) == [b"1234\n5678\n", b"9\n"]
    spool.close()
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_a_file_may_be_filled_for_as_long_as_it_takes(tmp_path: Path) -> None:
    """An age beyond what a thread can wait for means that only the size counts."""
    sender = BackgroundSender(SpoolTransport(str(tmp_path), max_file_bytes=20, max_age_s=1e300), linger_s=0.01)
    sender.offer([{"n": 0}])
    until(lambda: sender.stats().sent == 1, "the first was sent")
    sender.offer([{"n": number} for number in range(1, 4)])
    until(lambda: sender.stats().sent == 4, "those after it were sent")
    assert shown(tmp_path) == [b'{"n":0}\n{"n":1}\n{"n":2}\n']
    assert sender.flush()
    sender.close()


def test_a_file_in_place_of_the_folder_is_said_to_be_none(tmp_path: Path) -> None:
    """That it exists is no hint at what is wrong."""
    (tmp_path / "spool").touch()
    spool = SpoolTransport(str(tmp_path / "spool"))
    with pytest.raises(SendError, match="spool: Not a directory"):
        spool.send(b"x\n")


def test_a_full_spool_accepts_nothing_until_it_is_read(tmp_path: Path) -> None:
    """A spool without a reader must not fill the application's disk."""
    spool = SpoolTransport(str(tmp_path), max_file_bytes=10, max_folder_bytes=25)
    spool.send(b"x" * 9 + b"\n")
    spool.send(b"x" * 9 + b"\n")
    with pytest.raises(SendError, match="does anything read it") as caught:
        spool.send(b"x" * 9 + b"\n")
    assert caught.value.retry
    next(tmp_path.glob("*.ndjson")).unlink()
    spool.send(b"x" * 9 + b"\n")
    spool.close()


def test_files_of_a_dead_process_are_published(tmp_path: Path) -> None:
    """The next process publishes complete lines; files of a running process are left alone."""
    program = (
        "import os, sys; from queuewatch.transports.spool import SpoolTransport as S;"
        "s = S(sys.argv[1], max_age_s=1000); s.send(b'{1}\\n{2}\\n{3'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    living = SpoolTransport(str(tmp_path), max_age_s=1000)
    living.send(b"mine\n")
    for path in tmp_path.glob(".*"):
        os.utime(path, (time.time() - 60, time.time() - 60))
    other = SpoolTransport(str(tmp_path), max_age_s=1000)
    other.send(b"x\n")
    assert shown(tmp_path) == [b"{1}\n{2}\n"]
    living.close()
    other.close()
    assert sorted(shown(tmp_path)) == [b"mine\n", b"x\n", b"{1}\n{2}\n"]


@pytest.mark.parametrize("act", ["send", "flush"])
@pytest.mark.parametrize("set_back_s", [0, 3600])
def test_files_of_a_process_that_was_restarted_at_once_are_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str, set_back_s: int
) -> None:
    """They are too young when the next process begins. It looks again even with one file open, or when it has nothing to send."""
    clock = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(
        "queuewatch.transports.spool.time",
        SimpleNamespace(monotonic=lambda: clock.now_s, time=lambda: time.time() + clock.now_s - 1000, time_ns=time.time_ns),
    )
    program = (
        "import os, sys; from queuewatch.transports.spool import SpoolTransport as S;"
        "s = S(sys.argv[1], durable=True); s.send(b'{1}\\n'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    spool = SpoolTransport(str(tmp_path), max_age_s=1000 if act == "send" else 1)
    spool.send(b"{2}\n")
    assert b"{1}\n" not in shown(tmp_path)
    assert spool.due_s() == (10 if act == "send" else 1)
    clock.now_s += 5
    spool.flush() if act == "flush" else spool.send(b"{3}\n")
    assert b"{1}\n" not in shown(tmp_path)
    assert spool.due_s() == 5
    clock.now_s += 5 - set_back_s
    monkeypatch.setattr("queuewatch.transports.spool.time.monotonic", lambda: clock.now_s + set_back_s)
    assert spool.due_s() == 0
    spool.flush() if act == "flush" else spool.send(b"{4}\n")
    assert b"{1}\n" in shown(tmp_path)
    assert spool.due_s() == (None if act == "flush" else 990)
    spool.close()


def test_a_spool_keeps_its_own_times_beside_a_living_neighbour(tmp_path: Path) -> None:
    """The neighbour's file is young too, but it began later, or is locked: there is nothing to wait for."""
    spool, neighbour = (SpoolTransport(str(tmp_path), max_age_s=1000) for _ in range(2))
    spool.send(b"{1}\n")
    time.sleep(0.002)  # the names of files have milliseconds
    neighbour.send(b"{2}\n")
    spool._adopted_s -= 60
    spool.send(b"{3}\n")
    assert (spool.due_s() or 0) > 900
    spool.close()
    neighbour.close()


def test_two_transports_of_a_process_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their files have different names even if both are opened in the same millisecond."""
    monkeypatch.setattr(time, "time_ns", lambda: 1_795_518_460_148_000_000)
    transports = [SpoolTransport(str(tmp_path), max_age_s=1000) for _ in range(2)]
    for transport in transports:
        transport.send(b"x\n")
    for transport in transports:
        transport.close()
    assert shown(tmp_path) == [b"x\n", b"x\n"]


def _remove_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def _empty_folder(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize("remove", [_remove_folder, _empty_folder])
@pytest.mark.parametrize("max_age_s", [0.0, 1000.0], ids=["each payload in a file", "one file"])
def test_a_spool_whose_folder_or_open_file_is_removed_starts_again(
    tmp_path: Path, remove: Callable[[Path], None], max_age_s: float
) -> None:
    """What was in the open file is written again, once; what a reader could see is gone."""
    folder = tmp_path / "spool"
    spool = SpoolTransport(str(folder), max_age_s=max_age_s)
    spool.send(b"1\n")
    remove(folder)
    spool.send(b"2\n")
    remove(folder)
    spool.flush()
    assert shown(folder) == ([] if max_age_s == 0 else [b"1\n2\n"])
    spool.send(b"3\n")
    spool.close()
    assert shown(folder)[-1] == b"3\n"
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_a_spool_folder_that_is_moved_is_not_written_twice(tmp_path: Path) -> None:
    """The open file still exists in the moved folder."""
    folder = tmp_path / "spool"
    spool = SpoolTransport(str(folder), max_age_s=1000)
    spool.send(b"1\n")
    folder.rename(tmp_path / "moved")
    spool.send(b"2\n")
    spool.close()
    assert shown(folder) == [b"2\n"]


def test_a_payload_is_written_once_even_if_its_file_cannot_be_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`send` succeeds, the next call fails without writing, and later both payloads appear once."""
    spool = SpoolTransport(str(tmp_path), max_file_bytes=1)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as broken:
        broken.setattr(os, "rename", refuse)
        spool.send(b"1\n")
        for call in (spool.flush, lambda: spool.send(b"2\n")):
            with pytest.raises(SendError, match="Permission denied"):
                call()
    spool.send(b"2\n")
    assert shown(tmp_path) == [b"1\n", b"2\n"]


def test_a_spool_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    """The error names the path, here a file where the folder should be."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(SendError, match="taken") as caught:
        SpoolTransport(str(tmp_path / "taken")).send(b"x\n")
    assert caught.value.retry
