"""HDFS: a NameNode and a DataNode in one process."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tests.services.process import free_port, jar_folder, java, running, scratch_folder

_MAIN = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"


@contextmanager
def start() -> Iterator[str]:
    """Run an empty HDFS while the block runs, and return its URI. Raises `ServiceUnavailable`."""
    jars = jar_folder("cluster/hdfs")
    with scratch_folder("hdfs") as folder:
        command = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
        command += [f"-Dtest.build.data={folder / 'data'}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command += [f"-Dorg.slf4j.simpleLogger.log.{_MAIN}=info"]
        command += [_MAIN, "-nomr", "-format", "-datanodes", "1", "-nnport", str(free_port())]
        with running(command, folder / "hdfs.log", _uri, within_s=120) as uri:
            yield uri


def _uri(log: str) -> str | None:
    started = re.search(r"Started MiniDFSCluster -- namenode on port (\d+)", log)
    return f"hdfs://127.0.0.1:{started[1]}" if started else None
