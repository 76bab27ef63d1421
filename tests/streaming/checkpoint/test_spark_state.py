"""Damage to the files of Spark's own state is found before Spark reads them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from streaming.checkpoint.recovery import recover
from streaming.checkpoint.spark_state import changelog_is_whole, snapshot_is_whole, xxh32
from streaming.checkpoint.stored import verify
from tests.streaming.checkpoints import NAMES, unpacked


@pytest.mark.parametrize(
    ("content", "seed", "value"),
    [
        (b"", 0, 0x02CC5D05),
        (b"a", 0, 0x550D7456),
        (b"abc", 0, 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0, 0xE2293B2F),
    ],
)
def test_the_hash_is_that_of_its_specification(content: bytes, seed: int, value: int) -> None:
    """Values that other implementations give."""
    assert xxh32(content, seed) == value


@pytest.fixture
def changelog(tmp_path: Path) -> Path:
    """A changelog with a compressed block, as Spark wrote it."""
    return unpacked(NAMES[-1], tmp_path) / "state" / "0" / "0" / "3.changelog"


@pytest.mark.parametrize("name", NAMES)
def test_what_spark_wrote_is_whole(name: str, tmp_path: Path) -> None:
    """All changelogs of a stored checkpoint: some have compressed blocks, others none."""
    changelogs = list(unpacked(name, tmp_path).glob("state/*/*/*.changelog"))
    assert len(changelogs) > 3
    assert [path for path in changelogs if not changelog_is_whole(path)] == []


def test_a_changelog_that_is_cut_or_changed_is_not_whole(changelog: Path) -> None:
    """At whatever place."""
    whole = changelog.read_bytes()
    for length in range(len(whole)):
        changelog.write_bytes(whole[:length])
        assert not changelog_is_whole(changelog), length
    middle = whole.index(b".state")
    for place in (*range(8), 8, 9, 13, 17, *range(middle, middle + 6), *range(len(whole) - 21, len(whole))):
        damaged = bytearray(whole)
        damaged[place] ^= 0x80
        changelog.write_bytes(damaged)
        assert not changelog_is_whole(changelog), place
    changelog.write_bytes(whole + b"more")
    assert not changelog_is_whole(changelog)
    changelog.write_bytes(bytes(len(whole)))
    assert not changelog_is_whole(changelog)


def test_a_changelog_of_another_codec_is_taken_as_it_is(changelog: Path) -> None:
    """Spark can be configured to write zstd, for example."""
    changelog.write_bytes(b"\x28\xb5\x2f\xfdwhatever")
    assert changelog_is_whole(changelog)


def test_a_snapshot_that_is_cut_or_changed_is_not_whole(tmp_path: Path) -> None:
    """It is a zip file, with a checksum for each member."""
    path = tmp_path / "5.zip"
    assert not snapshot_is_whole(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata", "v1\n{}" * 99)
    assert snapshot_is_whole(path)
    whole = path.read_bytes()
    for damaged in (b"", whole[:-9], whole[:40] + bytes([whole[40] ^ 0x10]) + whole[41:]):
        path.write_bytes(damaged)
        assert not snapshot_is_whole(path)


def test_a_checkpoint_with_a_damaged_changelog_goes_back(changelog: Path) -> None:
    """To the batch before; Spark would fail every batch with the end of a file in its middle."""
    checkpoint = changelog.parents[3]
    assert list(verify(checkpoint)) == []
    changelog.write_bytes(changelog.read_bytes()[:130])
    assert list(verify(checkpoint)) == ["Spark's own state of partition 0 after batch 2 is missing or damaged"]
    assert recover(checkpoint) == 1
