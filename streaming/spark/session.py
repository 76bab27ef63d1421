"""The Spark session: every setting the pipeline relies on, in one place."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from streaming.config.service import SparkSection
from streaming.folder import local_folder
from streaming.spark.class_archive import options_for
from streaming.spark.internals import (
    LOCAL_CHECKPOINT,
    has_java,
    is_submitted,
    launch_java,
    make_context,
    rename_checkpoint_files,
    sigint_kept,
)
from streaming.spark.runtime import RuntimeUnavailable, connector_jars, ensure_java

_LOG_SETUP = Path(__file__).with_name("log4j2.xml")
_STATE = "spark.sql.streaming.stateStore"

SECRETS: Final = "(?i)secret|password|token|access[.]?key|jaas"
"""Settings whose names have this in them are neither logged by Spark nor written on Java's command line."""

REQUIRED: Final[Mapping[str, str]] = {
    # State: one blob per shard, changed in every batch, so upload only what changed, and count nothing.
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE}.rocksdb.trackTotalNumberOfRows": "false",
    # A shard's packets must reach Python in one piece: its state is shipped once per piece.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
    "spark.sql.session.timeZone": "UTC",
}
"""Without these settings the job would be wrong, or too slow to use."""

DEFAULTS: Final[Mapping[str, str]] = {
    # Each retained version is a rewrite of the whole state: keep enough to go back a few batches, not a hundred.
    "spark.sql.streaming.minBatchesToRetain": "15",
    "spark.sql.streaming.stopTimeout": "30000",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # A checksum of every packet would detect a task whose output changes when it runs again: that of decoding never does.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    # End a worker that hangs or is stopped; its task fails and the batch runs again.
    "spark.python.worker.killOnIdleTimeout": "true",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
    "spark.locality.wait": "0s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What Spark keeps of finished batches for a page that is disabled: by default a thousand of each, for hours.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.ui.explainMode": "simple",
    "spark.redaction.regex": SECRETS,
}
"""Good defaults for this job, which `spark.conf` may override."""
_LOCAL_DEFAULTS: Final[Mapping[str, str]] = {
    # What Spark keeps of a batch is small where the states are in files of their own, and a copy of the checkpoint needs it.
    "spark.sql.streaming.minBatchesToRetain": "20",
}
"""Others for a checkpoint on a local or mounted disk."""

MEMORY_TUNABLES: Final = (
    "glibc.malloc.arena_max=4:"
    f"glibc.malloc.mmap_threshold={32 << 20}:glibc.malloc.trim_threshold={256 << 20}:glibc.malloc.top_pad={16 << 20}"
)
"""For Java and its Python workers, which allocate megabytes of buffers and arrays in every batch. Returning that memory to the
system in between, and getting it back page by page, took a tenth of all processor time. Java's threads share four arenas: what
they free stays there, and sixteen arenas kept 430 MB with 100,000 queues."""

ARROW_MEMORY: Final = "system"
"""pyarrow's memory pool in the workers: glibc, which follows the settings above. pyarrow's own allocator returns memory."""


_java_ahead: Future[Any] | None = None
"""The gateway to the Java that `start_java_ahead` starts, until a session uses it."""


def start_java_ahead(config: SparkSection, *, with_kafka: bool, log_level: str) -> None:
    """Start Java in a thread: it takes seconds, in which this process can import its modules. `open_session` waits for it.

    An error is raised there, too.
    """
    global _java_ahead  # noqa: PLW0603 -- a process has one Java
    if is_submitted() or has_java():
        return
    ahead: Future[Any] = Future()
    _java_ahead = ahead

    def start() -> None:
        try:
            ahead.set_result(_start_java(_java_conf(config, with_kafka=with_kafka, log_level=log_level)))
        except BaseException as error:
            ahead.set_exception(error)

    threading.Thread(target=start, name="java-start").start()


def open_session(
    config: SparkSection, *, app_name: str, with_kafka: bool, log_level: str = "ERROR", scratch: Path | None = None
) -> SparkSession:
    """Open the session that `config` describes, with the Kafka connector's jars on its class path if `with_kafka`.

    `scratch` is the session's own folder for Spark's temporary files; by default Spark creates one in the system's.

    If `spark-submit` started this process, master, memory and jars are those it was given.

    Raises `RuntimeUnavailable` when this machine lacks a Java, or the jars.
    """
    global _java_ahead
    if is_submitted():
        conf = SparkConf().setAll(list(submitted_conf_of(config).items()))
    else:
        ahead, _java_ahead = _java_ahead, None
        gateway = ahead.result() if ahead is not None else None
        conf = _java_conf(config, with_kafka=with_kafka, log_level=log_level, scratch=scratch)
        if not has_java():
            make_context(conf.setAppName(app_name), gateway if gateway is not None else _start_java(conf))
    with sigint_kept():
        spark = SparkSession.builder.config(conf=conf.setAppName(app_name)).getOrCreate()
    # For a JVM that was already running, whose own logging configuration remains.
    spark.sparkContext.setLogLevel(log_level)
    if _is_local(config.master) and local_folder(config.checkpoint_dir) is not None:
        rename_checkpoint_files(spark)
    return spark


def _java_conf(config: SparkSection, *, with_kafka: bool, log_level: str, scratch: Path | None = None) -> SparkConf:
    conf = SparkConf().setMaster(config.master)
    return conf.setAll(list(conf_of(config, with_kafka=with_kafka, log_level=log_level, scratch=scratch).items()))


def _start_java(conf: SparkConf) -> Any:
    ensure_java()
    os.environ.setdefault("GLIBC_TUNABLES", MEMORY_TUNABLES)
    try:
        return launch_java(conf, kept_off_the_command_line=re.compile(SECRETS))
    except PySparkRuntimeError as error:
        raise RuntimeUnavailable(
            "Spark's Java process ended during startup",
            "See Java's output above. Usual causes: spark.driver_memory exceeds the machine's memory, "
            "or spark.conf has an unknown option",
        ) from error


def submitted_conf_of(config: SparkSection) -> dict[str, str]:
    """Return the Spark settings that the session of a process started by `spark-submit` adds, the user's own included.

    Those of Java itself are not among them: it runs already.
    """
    return {
        **DEFAULTS,
        **({**LOCAL_CHECKPOINT, **_LOCAL_DEFAULTS} if local_folder(config.checkpoint_dir) is not None else {}),
        "spark.sql.execution.arrow.maxBytesPerBatch": _arrow_batch(config.checkpoint_dir),
        "spark.python.worker.idleTimeoutSeconds": str(max(5, round(config.batch_deadline_s / 2))),
        "spark.executorEnv.GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", MEMORY_TUNABLES),
        "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": os.environ.get("ARROW_DEFAULT_MEMORY_POOL", ARROW_MEMORY),
        **config.conf,
        **REQUIRED,
        "spark.sql.shuffle.partitions": str(config.shards),
    }


def conf_of(config: SparkSection, *, with_kafka: bool, log_level: str, scratch: Path | None = None) -> dict[str, str]:
    """Return every Spark setting of the session, the user's own included."""
    conf = {
        "spark.driver.memory": config.driver_memory,
        **({"spark.local.dir": str(scratch)} if scratch is not None and "SPARK_LOCAL_DIRS" not in os.environ else {}),
        **submitted_conf_of(config),
    }
    if _is_local(config.master):
        # On one machine workers use this very Python; a cluster's machines have their own.
        conf.setdefault("spark.pyspark.python", sys.executable)
        conf.setdefault("spark.driver.host", "127.0.0.1")
        conf.setdefault("spark.driver.bindAddress", "127.0.0.1")
        # Packets of some 48 bytes per event do not leave this machine: halving them is not worth the time.
        conf.setdefault("spark.shuffle.compress", "false")
    if with_kafka:
        jars = [str(jar) for jar in connector_jars()]
        conf["spark.jars"] = ",".join([*filter(None, [conf.get("spark.jars")]), *jars])
    # Stopping a query makes Spark search a long text with a recursive pattern, which overflows the usual stack of 1 MB.
    # The work is done in Python; Java moves bytes, for which the quick compiler suffices. The thorough one took a fifth of all
    # processor time for minutes after every start.
    given = conf.get("spark.driver.extraJavaOptions", "")
    # Out of memory, Java would continue in a broken state: better that it ends, and the service with it, which is then restarted.
    options = ["-Xss16m", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError"]
    if not re.search(r"-XX:\+Use\w+GC\b", given):
        # Nearly all memory is free again after each batch. Java does not start with two collectors configured.
        options.append("-XX:+UseParallelGC")
    if sys.platform == "linux":
        options.append("-XX:+UseTransparentHugePages")
    options += [f"-Dlog4j2.configurationFile={_LOG_SETUP.as_uri()}", f"-Dqueuewatch.log.level={log_level}"]
    options += [*options_for(given), given]
    conf["spark.driver.extraJavaOptions"] = " ".join(options).strip()
    return conf


def _arrow_batch(checkpoint: str) -> str:
    """Return how many bytes are passed to Python at a time.

    Few, so that what Java has just written is still cached when Python reads it. But a state that Spark itself keeps is
    shipped again for each further part of a shard's packets.
    """
    return "8m" if local_folder(checkpoint) is not None else "64m"


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")
