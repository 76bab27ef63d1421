"""Small files, written completely or not at all: one contract for a local disk and for Hadoop's file systems."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming.folder import Folder, LocalFolder, make_folder
from streaming.spark.hadoop_folder import HadoopFolder, open_folder


@pytest.fixture(params=["local", "hadoop"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """A folder that does not exist yet."""
    place = tmp_path / "a folder" / "judge"
    if request.param == "local":
        return LocalFolder(place)
    return HadoopFolder(request.getfixturevalue("spark"), place.as_uri())


def test_a_missing_folder_is_empty(folder: Folder) -> None:
    """Reading does not create it."""
    assert folder.names() == []
    assert folder.read("a") is None
    folder.delete("a")


def test_written_content_is_read_back(folder: Folder) -> None:
    """Any bytes are allowed, and a file is replaced as a whole."""
    folder.write("a", b"first")
    folder.write("b", bytes(range(256)))
    folder.write("a", b"")
    assert folder.read("a") == b""
    assert folder.read("b") == bytes(range(256))
    assert sorted(folder.names()) == ["a", "b"]


def test_a_deleted_file_is_gone(folder: Folder) -> None:
    """The others stay."""
    folder.write("a", b"1")
    folder.write("b", b"2")
    folder.delete("a")
    assert folder.names() == ["b"]


def test_a_file_in_place_of_a_folder_is_said_to_be_none(tmp_path: Path) -> None:
    """That it exists is no hint at what is wrong."""
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="Not a directory"):
        make_folder(tmp_path / "file")


def test_a_failed_write_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between writing and renaming has no effect."""
    folder = LocalFolder(tmp_path)
    folder.write("a", b"old")

    def crash(_: Path, __: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        folder.write("a", b"new")
    assert folder.read("a") == b"old"
    assert folder.names() == ["a"]


def test_new_folders_survive_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of each is flushed in the folder that it is in, before anything is written into it; existing ones cost nothing."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    folder = LocalFolder(tmp_path / "checkpoint" / "outbox" / "log")
    folder.write("1", b"")
    above = [tmp_path, tmp_path / "checkpoint", tmp_path / "checkpoint" / "outbox"]
    assert synced[:3] == [str(path) for path in above]
    folder.write("2", b"")
    assert len(synced) == 3 + 2 * 2, "the file and its folder"


def test_a_path_and_a_file_uri_are_the_same_folder(spark: SparkSession, tmp_path: Path) -> None:
    """This holds for characters that a URI has to escape."""
    place = tmp_path / "ü ber"
    open_folder(spark, str(place)).write("a", b"1")
    assert open_folder(spark, place.as_uri()).read("a") == b"1"
