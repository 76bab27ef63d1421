"""A checkpoint knows what it was made with, and refuses what does not fit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streaming.spark.checkpoint import NAME, claim, find, locked
from streaming.spark.errors import CheckpointInUse, CheckpointMismatch
from streaming.spark.folder import LocalFolder


def test_the_first_claim_writes_what_the_next_one_finds(tmp_path: Path) -> None:
    """The id stays: it tells this checkpoint's batch 7 from another's."""
    folder = LocalFolder(tmp_path)
    assert find(folder, "here", shards=4, sources=["kafka"]) is None
    made = claim(folder, "here", shards=4, sources=["kafka"])
    assert claim(folder, "here", shards=4, sources=["kafka"]) == made
    assert find(folder, "here", shards=4, sources=["kafka"]) == made
    assert claim(LocalFolder(tmp_path / "other"), "there", shards=4, sources=["kafka"]).id != made.id


@pytest.mark.parametrize(
    ("shards", "sources", "says"),
    [
        (3, ["kafka"], "Set spark.shards back to 2"),
        (2, ["kafka", "spool"], "Configure the same sources again"),
        (2, ["spool"], "made with the sources kafka, not spool"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_with_the_remedy(
    tmp_path: Path, shards: int, sources: list[str], says: str
) -> None:
    """Both ways out: as it was, or a new folder."""
    folder = LocalFolder(tmp_path)
    claim(folder, "here", shards=2, sources=["kafka"])
    with pytest.raises(CheckpointMismatch, match=says) as caught:
        claim(folder, "here", shards=shards, sources=sources)
    assert "spark.checkpoint_dir" in caught.value.fix


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"layout": 1, "id": "x", "shards": "two", "sources": []}'])
def test_an_identity_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    """It is not written anew: the state beside it would be misread."""
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(CheckpointMismatch, match=f"here/{NAME} cannot be read"):
        claim(LocalFolder(tmp_path), "here", shards=2, sources=["kafka"])
    assert (tmp_path / NAME).read_bytes() == content


def test_another_releases_layout_is_refused(tmp_path: Path) -> None:
    """Both numbers are said."""
    (tmp_path / NAME).write_text(json.dumps({"layout": 9, "id": "x", "shards": 2, "sources": ["kafka"]}))
    with pytest.raises(CheckpointMismatch, match=r"has layout 9, this release of queuewatch writes 1"):
        claim(LocalFolder(tmp_path), "here", shards=2, sources=["kafka"])


def test_two_jobs_cannot_work_on_one_checkpoint(tmp_path: Path) -> None:
    """Until the first one ends, however it ends."""
    hold = (
        "import sys; from pathlib import Path\n"
        "from streaming.spark.checkpoint import locked; from streaming.spark.folder import LocalFolder\n"
        "with locked(LocalFolder(Path(sys.argv[1]))): print('held', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", hold, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(CheckpointInUse, match="another queuewatch works on"), locked(LocalFolder(tmp_path)):
            pass
        other.kill()
        other.wait()
    with locked(LocalFolder(tmp_path)):
        pass
