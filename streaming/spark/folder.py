"""Small files written whole or not at all: on a local disk, or on any file system Spark knows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession


class Folder(Protocol):
    """A flat folder of small files. Names are plain: no slash."""

    def read(self, name: str) -> bytes | None:
        """The file's content, or None when there is none of that name."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Create or replace the file. A reader, or a crash, sees the old content or the new one, never a part."""
        ...

    def names(self) -> list[str]:
        """The files there are, in no particular order; a folder that does not exist has none."""
        ...

    def delete(self, name: str) -> None:
        """Remove the file if it is there."""
        ...


def open_folder(spark: SparkSession, uri: str) -> Folder:
    """The folder at a path or URI, created by the first write."""
    return local_folder(uri) or HadoopFolder(spark, uri)


def local_folder(uri: str) -> LocalFolder | None:
    """The folder at a path or `file:` URI, None for one on another file system."""
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file"):
        return None
    return LocalFolder(Path(unquote(parts.path) if parts.scheme else uri).absolute())


class LocalFolder:
    """On a disk of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_durably(self.path / name, content)

    def names(self) -> list[str]:
        if not self.path.is_dir():
            return []
        return [entry.name for entry in self.path.iterdir() if not entry.name.startswith(".")]

    def delete(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)


def write_durably(path: Path, content: bytes | memoryview) -> None:
    """Create or replace a file so that not even a power cut leaves a part of it under its name."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with scratch.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError:
        # On a full disk a part of it would keep the room others need.
        scratch.unlink(missing_ok=True)
        raise
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class HadoopFolder:
    """On a file system reached through Spark's Hadoop libraries: HDFS, S3, a network share by URI."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        self._root = self._jvm.org.apache.hadoop.fs.Path(uri)
        self._conf = context._jsc.hadoopConfiguration()
        self._files = self._root.getFileSystem(self._conf)

    def read(self, name: str) -> bytes | None:
        path = self._path(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, content: bytes) -> None:
        # The same manager that writes Spark's own checkpoint: rename where that is atomic, a plain put on object
        # stores, where the put is.
        manager = self._jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.create(
            self._root, self._conf
        )
        manager.mkdirs(self._root)
        stream = manager.createAtomic(self._path(name), True)
        try:
            stream.write(bytearray(content))
        except BaseException:
            stream.cancel()
            raise
        stream.close()

    def names(self) -> list[str]:
        if not self._files.exists(self._root):
            return []
        listed = [status.getPath().getName() for status in self._files.listStatus(self._root)]
        return [name for name in listed if not name.startswith(".")]

    def delete(self, name: str) -> None:
        self._files.delete(self._path(name), False)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)
