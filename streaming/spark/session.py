"""The Spark session: every setting the pipeline relies on, in one place."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from streaming.config.service import SparkSection
from streaming.spark.folder import local_folder
from streaming.spark.runtime import RuntimeUnavailable, connector_jars, ensure_java

_LOG_SETUP = Path(__file__).with_name("log4j2.xml")
_STATE = "spark.sql.streaming.stateStore"

REQUIRED: Final[Mapping[str, str]] = {
    # State: one blob per shard, changed in every batch, so only what changed is uploaded, and nothing is counted.
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE}.rocksdb.trackTotalNumberOfRows": "false",
    # A shard's packets must reach Python in one piece: its state is shipped once per piece.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
    "spark.sql.session.timeZone": "UTC",
}
"""Without these the job would be wrong, or slow beyond use."""

DEFAULTS: Final[Mapping[str, str]] = {
    # Each version kept is a rewrite of the whole state: enough to go back a few batches, not a hundred.
    "spark.sql.streaming.minBatchesToRetain": "15",
    "spark.sql.streaming.stopTimeout": "30000",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # A checksum of every packet, to notice a task that gives something else when it runs again: decoding never does.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    # A worker that hangs, or is stopped, is ended; its task fails and the batch runs again.
    "spark.python.worker.killOnIdleTimeout": "true",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
    "spark.locality.wait": "0s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What Spark remembers of finished batches for a page that is off: by default a thousand of each, for hours.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.ui.explainMode": "simple",
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas",
}
"""Good for this job; `spark.conf` may say otherwise."""

MEMORY_TUNABLES: Final = (
    f"glibc.malloc.mmap_threshold={32 << 20}:glibc.malloc.trim_threshold={256 << 20}:glibc.malloc.top_pad={16 << 20}"
)
"""For Java and its Python workers: buffers and arrays are megabytes each and come again with every batch. Memory that was
given back in between would be had again page by page, which took a tenth of all processor time."""

ARROW_MEMORY: Final = "system"
"""Where pyarrow has the workers' memory from: glibc, to which the above is said. Its own allocator gives memory back."""


def open_session(
    config: SparkSection, *, app_name: str, with_kafka: bool, log_level: str = "ERROR", scratch: Path | None = None
) -> SparkSession:
    """A session as `config` describes it, the Kafka connector's jars on its class path when `with_kafka`.

    `scratch` is a folder of the session's own for what Spark puts aside; by default Spark makes some in the temporary one.

    Raises `RuntimeUnavailable` when this machine lacks a Java, or the jars.
    """
    ensure_java()
    conf = SparkConf().setMaster(config.master).setAppName(app_name)
    for name, value in conf_of(config, with_kafka=with_kafka, log_level=log_level, scratch=scratch).items():
        conf.set(name, value)
    if SparkContext._gateway is None:
        SparkContext(conf=conf, gateway=_launch(conf))
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    # For a JVM that was already up, whose own logging set-up stands.
    spark.sparkContext.setLogLevel(log_level)
    return spark


def _launch(conf: SparkConf) -> Any:
    """Start Spark's Java process, in a process group of its own.

    A stop is meant for the whole group where a shell or `timeout` sends it; Java must live until the batch in work
    is finished. It ends when this process does, whose end it sees at its standard input.
    """
    launch: Any = launch_gateway
    os.environ.setdefault("GLIBC_TUNABLES", MEMORY_TUNABLES)
    try:
        return launch(conf=conf, popen_kwargs={"process_group": 0})
    except PySparkRuntimeError as error:
        raise RuntimeUnavailable(
            "Spark's Java process ended at its start",
            "See its words above; spark.driver_memory may ask for more than there is, or spark.conf for something unknown",
        ) from error


def conf_of(config: SparkSection, *, with_kafka: bool, log_level: str, scratch: Path | None = None) -> dict[str, str]:
    """Every Spark setting of the session, the user's own included."""
    conf = {
        **DEFAULTS,
        "spark.sql.execution.arrow.maxBytesPerBatch": _arrow_batch(config.checkpoint_dir),
        "spark.driver.memory": config.driver_memory,
        **({"spark.local.dir": str(scratch)} if scratch is not None and "SPARK_LOCAL_DIRS" not in os.environ else {}),
        "spark.python.worker.idleTimeoutSeconds": str(max(5, round(config.batch_deadline_s / 2))),
        "spark.executorEnv.GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", MEMORY_TUNABLES),
        "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": os.environ.get("ARROW_DEFAULT_MEMORY_POOL", ARROW_MEMORY),
        **config.conf,
        **REQUIRED,
        "spark.sql.shuffle.partitions": str(config.shards),
    }
    if _is_local(config.master):
        # On one machine workers are this very Python; a cluster's machines have their own.
        conf.setdefault("spark.pyspark.python", sys.executable)
        conf.setdefault("spark.driver.host", "127.0.0.1")
        conf.setdefault("spark.driver.bindAddress", "127.0.0.1")
        # Packets of some 48 bytes an event do not leave this machine: halving them is not worth the time.
        conf.setdefault("spark.shuffle.compress", "false")
    if with_kafka:
        jars = [str(jar) for jar in connector_jars()]
        conf["spark.jars"] = ",".join([*filter(None, [conf.get("spark.jars")]), *jars])
    # Stopping a query makes Spark search a long text with a recursive pattern, which overflows the usual stack of 1 MB.
    # The work is done in Python; here bytes are moved, for which the quick compiler does. The thorough one took a fifth of all
    # processor time for minutes after every start.
    given = conf.get("spark.driver.extraJavaOptions", "")
    # With its memory full, Java would go on half dead: better it ends, and with it the service, to be started anew.
    options = ["-Xss16m", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError"]
    if not re.search(r"-XX:\+Use\w+GC\b", given):
        # Nearly all memory is free again after each batch. Java does not start with two collectors named.
        options.append("-XX:+UseParallelGC")
    if sys.platform == "linux":
        options.append("-XX:+UseTransparentHugePages")
    options += [f"-Dlog4j2.configurationFile={_LOG_SETUP.as_uri()}", f"-Dqueuewatch.log.level={log_level}", given]
    conf["spark.driver.extraJavaOptions"] = " ".join(options).strip()
    return conf


def _arrow_batch(checkpoint: str) -> str:
    """How many bytes are handed to Python at a time.

    Few, as what Java has just written is then still cached when Python reads it. But a state that Spark itself keeps is
    shipped once more for each further piece of a shard's packets.
    """
    return "8m" if local_folder(checkpoint) is not None else "64m"


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")
