"""Private parts of Spark and PySpark are where this release expects them; if one has moved, the failing test names it."""

from __future__ import annotations

import inspect
from functools import reduce
from pathlib import Path

import pytest
from pyspark import SparkContext, __version__, daemon
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.listener import JStreamingQueryListener, StreamingQueryListener

from streaming.checkpoint.shards import spark_hash
from streaming.spark import internals

LISTENER_WRAPPER = "org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper"


def require(found: bool, part: str, used_for: str) -> None:
    """Fail with a message for whoever upgrades pyspark."""
    assert found, f"pyspark {__version__} has no {part}; streaming/spark/internals.py needs it: {used_for}"


@pytest.mark.parametrize(
    ("found", "part", "used_for"),
    [
        (hasattr(SparkContext, "_gateway"), "SparkContext._gateway", "whether Java was started, and its process"),
        (hasattr(SparkContext, "_active_spark_context"), "SparkContext._active_spark_context", "the listener's Java side"),
        ("popen_kwargs" in inspect.signature(launch_gateway).parameters, "launch_gateway(popen_kwargs=)", "Java's process group"),
        ("gateway" in inspect.signature(SparkContext).parameters, "SparkContext(gateway=)", "a context on that Java"),
        (hasattr(StreamingQueryListener, "_jlistener"), "StreamingQueryListener._jlistener", "progress reports as one text each"),
        (
            internals.LISTENER_INTERFACE in JStreamingQueryListener.Java.implements,
            f"listener interface {internals.LISTENER_INTERFACE}",
            "progress reports as one text each",
        ),
        ("print_exc" in daemon.manager.__code__.co_names, "daemon that calls traceback.print_exc", "a worker's quiet end"),
        ("collect" in daemon.manager.__code__.co_names, "daemon that calls gc.collect", "modules frozen in a worker"),
    ],
)
def test_the_python_side_has_the_used_parts(found: bool, part: str, used_for: str) -> None:
    """This check does not start Java."""
    require(found, part, used_for)


def test_the_java_side_has_the_used_parts(spark: SparkSession) -> None:
    """Py4J treats a class that does not exist as a package, and only a call on it fails."""
    for name, used_for in {
        "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager": "a checkpoint behind a URI",
        internals.LOCAL_FILES: "a checkpoint on a local disk",
        internals.RENAMING_MANAGER: "a checkpoint on a local disk, without a process for each name",
        "org.apache.hadoop.fs.Path": "a checkpoint behind a URI",
        "org.apache.commons.io.IOUtils": "a checkpoint behind a URI",
        LISTENER_WRAPPER: "progress reports as one text each",
    }.items():
        found = reduce(getattr, name.split("."), internals.jvm(spark))
        require(type(found).__name__ == "JavaClass", f"Java class {name}", used_for)
    configuration = internals.hadoop_configuration(spark)
    retained = configuration.get("spark.sql.streaming.minBatchesToRetain")
    require(retained is not None, "sessionState().newHadoopConf() with Spark's SQL settings", "a checkpoint behind a URI")


def test_files_of_a_local_checkpoint_are_replaced_or_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A batch that runs again replaces what its first attempt wrote; an offset or commit is written only once."""
    java, configuration = internals.jvm(spark), internals.hadoop_configuration(spark)
    root = java.org.apache.hadoop.fs.Path(tmp_path.as_uri())
    manager = internals.checkpoint_files(java, root, configuration)
    name, used_for = manager.getClass().getName(), "a checkpoint on a local disk"
    require(name == internals.RENAMING_MANAGER, "spark.sql.streaming.checkpointFileManagerClass", used_for)
    file = java.org.apache.hadoop.fs.Path(root, "0")
    for content in (b"first", b"second"):
        stream = manager.createAtomic(file, True)
        stream.write(content)
        stream.close()
    refused = manager.createAtomic(file, False)
    with pytest.raises(Exception, match="FileAlreadyExists"):
        refused.close()
    assert internals.read_java_stream(java, manager.open(file)) == b"second"
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".tmp"] == ["0"]


def test_a_snapshot_of_the_state_can_be_copied_to_a_local_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """The state store copies its files like this. Where that fails, it keeps every changelog, and later each commit fails."""
    java, configuration = internals.jvm(spark), internals.hadoop_configuration(spark)
    (tmp_path / "local.sst").write_bytes(b"state")
    source, target = (java.org.apache.hadoop.fs.Path((tmp_path / name).as_uri()) for name in ("local.sst", "checkpoint/1.sst"))
    target.getFileSystem(configuration).copyFromLocalFile(source, target)
    assert (tmp_path / "checkpoint" / "1.sst").read_bytes() == b"state"


def test_the_java_process_is_known(spark: SparkSession) -> None:
    """The watchdog ends it by its id, and the job can tell its death from a failed query."""
    del spark
    pid = internals.java_pid()
    require(pid is not None, "SparkContext._gateway.proc", "the id of Java's process")
    assert Path(f"/proc/{pid}/exe").resolve().name == "java"
    assert internals.java_lives()
    assert internals.has_java()


def test_the_hash_is_spark_s(spark: SparkSession) -> None:
    """It agrees for small, large and negative integers."""
    values = [*range(200), 2**31 - 1, -1, -(2**31), 123_456_789]
    frame = spark.createDataFrame([(value,) for value in values], "value int").select("value", fn.hash("value").alias("hash"))
    same = {row["value"]: row["hash"] for row in frame.collect()} == {value: spark_hash(value) for value in values}
    assert same, f"pyspark {__version__} has another hash(): the keys of streaming/checkpoint/shards.py miss their partitions"


def test_a_manager_that_the_user_chose_stays(spark: SparkSession) -> None:
    """A new session has settings of its own."""
    session, name = spark.newSession(), "spark.sql.streaming.checkpointFileManagerClass"
    session.conf.set(name, "org.example.Manager")
    internals.rename_checkpoint_files(session)
    assert session.conf.get(name) == "org.example.Manager"
