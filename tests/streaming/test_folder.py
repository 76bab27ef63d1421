"""Small files, written whole or not at all: one contract, on a local disk and through Hadoop's file systems."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming.folder import Folder, LocalFolder
from streaming.spark.hadoop_folder import HadoopFolder, open_folder


@pytest.fixture(params=["local", "hadoop"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """A folder that does not exist yet."""
    place = tmp_path / "a folder" / "judge"
    if request.param == "local":
        return LocalFolder(place)
    return HadoopFolder(request.getfixturevalue("spark"), place.as_uri())


def test_a_folder_that_is_not_there_is_empty(folder: Folder) -> None:
    """Reading makes nothing."""
    assert folder.names() == []
    assert folder.read("a") is None
    folder.delete("a")


def test_what_is_written_is_read(folder: Folder) -> None:
    """Any bytes, replaced as a whole."""
    folder.write("a", b"first")
    folder.write("b", bytes(range(256)))
    folder.write("a", b"")
    assert folder.read("a") == b""
    assert folder.read("b") == bytes(range(256))
    assert sorted(folder.names()) == ["a", "b"]


def test_what_is_deleted_is_gone(folder: Folder) -> None:
    """And only that."""
    folder.write("a", b"1")
    folder.write("b", b"2")
    folder.delete("a")
    assert folder.names() == ["b"]


def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between writing and renaming is as if nothing had been written."""
    folder = LocalFolder(tmp_path)
    folder.write("a", b"old")

    def crash(_: Path, __: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        folder.write("a", b"new")
    assert folder.read("a") == b"old"
    assert folder.names() == ["a"]


def test_a_path_and_a_file_uri_are_the_same_folder(spark: SparkSession, tmp_path: Path) -> None:
    """With characters a URI has to escape."""
    place = tmp_path / "ü ber"
    open_folder(spark, str(place)).write("a", b"1")
    assert open_folder(spark, place.as_uri()).read("a") == b"1"
