"""A checkpoint's manifest records what it was created with, and a job that does not fit is refused."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streaming.checkpoint.formats import FORMATS
from streaming.checkpoint.manifest import NAME, Order, claim, find, locked, read_manifest
from streaming.errors import CheckpointInUse, CheckpointMismatch, CheckpointUnwritable
from streaming.folder import LocalFolder


def test_a_second_claim_finds_the_manifest_of_the_first(tmp_path: Path) -> None:
    """The id stays: it distinguishes this checkpoint's batch 7 from another checkpoint's."""
    folder = LocalFolder(tmp_path)
    assert find(folder, "here", shards=4, sources=["kafka"]) is None
    made = claim(folder, "here", shards=4, sources=["kafka"], order=())
    assert claim(folder, "here", shards=4, sources=["kafka"], order=()) == made
    found = find(folder, "here", shards=4, sources=["kafka"])
    assert found is not None
    assert found.checkpoint == made
    assert dict(found.formats) == FORMATS
    assert claim(LocalFolder(tmp_path / "other"), "there", shards=4, sources=["kafka"], order=()).id != made.id


def test_the_patterns_of_ordered_queues_are_kept(tmp_path: Path) -> None:
    """Those of the latest start, which had to fit: see `check_order`. A manifest of an earlier release lists none."""
    folder = LocalFolder(tmp_path)
    (tmp_path / NAME).write_text(json.dumps({"layout": 1, "id": "x", "shards": 2, "sources": ["kafka"], "formats": FORMATS}))
    orders: list[Order | None] = [getattr(read_manifest(folder, "here"), "order", ())]
    for order in ((("a*", None), ("b", True)), (("b", False),), ()):
        claim(folder, "here", shards=2, sources=["kafka"], order=order)
        orders.append(getattr(read_manifest(folder, "here"), "order", None))
    assert orders == [None, (("a*", None), ("b", True)), (("b", False),), ()]


@pytest.mark.parametrize(
    ("shards", "sources", "says"),
    [
        (3, ["kafka"], "Set spark.shards back to 2"),
        (2, ["kafka", "spool"], "Configure the same sources again"),
        (2, ["spool"], "made with the sources kafka, not spool"),
    ],
)
def test_an_impossible_change_is_refused_with_the_fix(tmp_path: Path, shards: int, sources: list[str], says: str) -> None:
    """The fix names both options: revert the change or use a new folder."""
    folder = LocalFolder(tmp_path)
    claim(folder, "here", shards=2, sources=["kafka"], order=())
    with pytest.raises(CheckpointMismatch, match=says) as caught:
        claim(folder, "here", shards=shards, sources=sources, order=())
    assert "spark.checkpoint_dir" in caught.value.fix


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        ("/data/check point", "queuewatch state reshard '/data/check point' --shards 3 --out NEW"),
        ("s3a://bucket/checkpoint", "set spark.checkpoint_dir to a new folder"),
    ],
)
def test_the_remedy_for_another_number_of_shards_can_be_entered(tmp_path: Path, uri: str, remedy: str) -> None:
    """A path may have spaces. Behind the URI of another file system, states are in Spark's own and cannot be converted."""
    claim(LocalFolder(tmp_path), uri, shards=2, sources=["kafka"], order=())
    with pytest.raises(CheckpointMismatch) as caught:
        find(LocalFolder(tmp_path), uri, shards=3, sources=["kafka"])
    assert remedy in caught.value.fix
    assert ("reshard" in caught.value.fix) == ("reshard" in remedy)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"layout": 1, "id": "x", "shards": "two", "sources": []}'])
def test_an_unreadable_manifest_is_named(tmp_path: Path, content: bytes) -> None:
    """It is not overwritten, because the state beside it would be misread."""
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(CheckpointMismatch, match=f"here/{NAME} cannot be read"):
        claim(LocalFolder(tmp_path), "here", shards=2, sources=["kafka"], order=())
    assert (tmp_path / NAME).read_bytes() == content


def test_a_checkpoint_that_lost_its_manifest_is_refused(tmp_path: Path) -> None:
    """Continued with another number of shards, it would route events to shards that do not know their messages."""
    claim(LocalFolder(tmp_path), "here", shards=2, sources=["kafka"], order=())
    LocalFolder(tmp_path / "offsets").write("0", b"v1")
    (tmp_path / NAME).unlink()
    with pytest.raises(CheckpointMismatch, match=f"here has batches but no {NAME}"):
        claim(LocalFolder(tmp_path), "here", shards=4, sources=["kafka"], order=())


def test_another_release_s_layout_is_refused(tmp_path: Path) -> None:
    """The error gives both layout numbers and the release that wrote the manifest."""
    (tmp_path / NAME).write_text(json.dumps({"layout": 9, "id": "x", "shards": 2, "sources": ["kafka"]}))
    with pytest.raises(CheckpointMismatch, match=r"holds layout 9 \(this release writes 1\)"):
        claim(LocalFolder(tmp_path), "here", shards=2, sources=["kafka"], order=())


@pytest.mark.parametrize(
    ("formats", "says"),
    [
        ({"state": FORMATS["state"] + 1}, "state of version"),
        ({"state": 1}, "state of version 1"),
        ({"judge": 99}, "judge of version 99"),
        ({"telepathy": 1}, "telepathy, which this release does not know"),
    ],
)
def test_unreadable_formats_are_refused_before_spark_starts(tmp_path: Path, formats: dict[str, int], says: str) -> None:
    """The manifest shows it, so no batch has to fail again and again; nothing is written."""
    body = {"layout": 1, "id": "x", "shards": 2, "sources": ["kafka"], "formats": {**FORMATS, **formats}, "written_by": "9.1"}
    (tmp_path / NAME).write_text(json.dumps(body))
    with pytest.raises(CheckpointMismatch, match=f"written by release 9.1 of queuewatch and holds {says}") as caught:
        claim(LocalFolder(tmp_path), "here", shards=2, sources=["kafka"], order=())
    assert "Use the release that wrote it" in caught.value.fix
    assert json.loads((tmp_path / NAME).read_text()) == body


def test_an_earlier_release_s_manifest_is_updated_before_anything_is_written(tmp_path: Path) -> None:
    """It listed no formats; its id stays. The earlier release then refuses what it can no longer read."""
    (tmp_path / NAME).write_text(json.dumps({"layout": 1, "id": "x", "shards": 2, "sources": ["kafka"]}))
    assert claim(LocalFolder(tmp_path), "here", shards=2, sources=["kafka"], order=()).id == "x"
    manifest = read_manifest(LocalFolder(tmp_path), "here")
    assert manifest is not None
    assert dict(manifest.formats) == FORMATS


@pytest.mark.slow
def test_two_jobs_cannot_use_one_checkpoint(tmp_path: Path) -> None:
    """The lock lasts until the first job ends, even if it is killed."""
    hold = (
        "import sys; from pathlib import Path\n"
        "from streaming.checkpoint.manifest import locked; from streaming.folder import LocalFolder\n"
        "with locked(LocalFolder(Path(sys.argv[1]))): print('held', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", hold, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(CheckpointInUse, match="another queuewatch is using"), locked(LocalFolder(tmp_path)):
            pass
        other.kill()
        other.wait()
    with locked(LocalFolder(tmp_path)):
        pass


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A read-only or missing volume is an operator's mistake: one line with the remedy, not a traceback, and not "in use"."""
    (tmp_path / "file").touch()
    with (
        pytest.raises(CheckpointUnwritable, match=r"file/checkpoint cannot be written \(Not a directory\)"),
        locked(LocalFolder(tmp_path / "file" / "checkpoint")),
    ):
        pass


def test_a_full_disk_is_named_when_the_checkpoint_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk has room for the empty lock file, so the manifest is the first file that does not fit."""

    def write(_folder: LocalFolder, _name: str, _content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(LocalFolder, "write", write)
    with pytest.raises(CheckpointUnwritable, match=r"here cannot be written \(No space left on device\)") as caught:
        claim(LocalFolder(tmp_path), "here", shards=2, sources=["kafka"], order=())
    assert "free space" in caught.value.fix
