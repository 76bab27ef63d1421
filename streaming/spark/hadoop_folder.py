"""A folder of small files on any file system that Spark supports."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from streaming.folder import Folder, local_folder
from streaming.spark.internals import checkpoint_files, hadoop_configuration, jvm, read_java_stream


def open_folder(spark: SparkSession, uri: str) -> Folder:
    """Open the folder at a path or URI; the first write creates it."""
    return local_folder(uri) or HadoopFolder(spark, uri)


def path_for_spark(uri: str) -> str:
    """Return a path or URI so that Spark finds the same folder as this service does.

    In `file:///data/a%20b` Hadoop takes every character literally, and in a path without a scheme its own default file system.
    """
    local = local_folder(uri)
    return uri if local is None else f"file://{local.path}"


class HadoopFolder:
    """A folder on a file system reached through Spark's Hadoop libraries: HDFS, S3, a network share by URI."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._java = jvm(spark)
        self._root = self._java.org.apache.hadoop.fs.Path(uri)
        self._conf = hadoop_configuration(spark)
        self._files = self._root.getFileSystem(self._conf)

    def read(self, name: str) -> bytes | None:
        path = self._path(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return read_java_stream(self._java, stream)
        finally:
            stream.close()

    def write(self, name: str, content: bytes) -> None:
        manager = checkpoint_files(self._java, self._root, self._conf)
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
        return self._java.org.apache.hadoop.fs.Path(self._root, name)
