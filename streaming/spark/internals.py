"""Every private part of Spark and PySpark that this service relies on, in one place.

Spark guarantees none of them. When another release of pyspark lacks one, `tests/streaming/spark/test_internals.py`
fails and names it.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import traceback
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from streaming.core.allocator import keep_freed_memory

_PARENT_PID: Final = os.getppid()
LISTENER_INTERFACE: Final = "org.apache.spark.sql.streaming.PythonStreamingQueryListener"
"""The Java interface that PySpark's own wrapper of a listener implements."""

_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
RENAMING_MANAGER: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
LOCAL_FILES: Final = "org.apache.hadoop.fs.LocalFileSystem"
LOCAL_CHECKPOINT: Final = {"spark.hadoop.fs.file.impl": LOCAL_FILES}
"""Spark finds Hive's file system for local files, whose `rename` never replaces a file. This one is Hadoop's own.

It must be this class: the state store copies its snapshots with `FileSystem.getLocal`, which takes no other. Without snapshots
it keeps every changelog, and in time Spark demands a snapshot and fails the batch.
"""


def jvm(spark: SparkSession) -> Any:
    """Return Java's packages and classes, through Py4J."""
    context: Any = spark.sparkContext
    return context._jvm


def hadoop_configuration(spark: SparkSession) -> Any:
    """Return the Hadoop configuration of the session: settings of file systems, and the class that manages checkpoints."""
    session: Any = spark
    return session._jsparkSession.sessionState().newHadoopConf()


def rename_checkpoint_files(spark: SparkSession) -> None:
    """Let Spark replace files of a checkpoint on this machine by one rename, and write none of checksums beside them.

    Its default for local files asks Hadoop whether each name is a link, and Hadoop starts a process, `readlink`, for the answer;
    each file of checksums costs a `chmod`. Changelogs and snapshots have checksums of their own, and a damaged log of offsets
    or commits is not JSON. Nothing changes where the user chose a manager, or Java had other files open before its settings came.
    """
    files = jvm(spark).org.apache.hadoop.fs.FileSystem.getLocal(hadoop_configuration(spark))
    if spark.conf.get(_MANAGER, None) is None and files.getClass().getName() == LOCAL_FILES:
        files.setWriteChecksum(False)
        spark.conf.set(_MANAGER, RENAMING_MANAGER)


def checkpoint_files(java: Any, root: Any, configuration: Any) -> Any:
    """Return the manager that writes Spark's own checkpoint: it renames where that is atomic and puts where it is not."""
    streaming = java.org.apache.spark.sql.execution.streaming
    return streaming.checkpointing.CheckpointFileManager.create(root, configuration)


def read_java_stream(java: Any, stream: Any) -> bytes:
    """Read a Java input stream to its end."""
    return bytes(java.org.apache.commons.io.IOUtils.toByteArray(stream))


def sleep_in_java(spark: SparkSession, duration_ms: int) -> None:
    """Sleep in this thread's Java counterpart, where Spark recognizes the interruption when the query stops."""
    jvm(spark).java.lang.Thread.sleep(duration_ms)


def has_java() -> bool:
    """Whether this process has started Spark's Java process, or found one."""
    return SparkContext._gateway is not None


def is_submitted() -> bool:
    """Whether `spark-submit` started this process: Spark's Java process is its parent."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def launch_java(conf: SparkConf, *, kept_off_the_command_line: re.Pattern[str]) -> Any:
    """Start Spark's Java process in its own process group, and return PySpark's gateway to it.

    A shell or `timeout` sends a stop to the whole group, but Java must live until the current batch is finished. Java ends
    when this process does, because its standard input is closed then.

    PySpark writes settings on Java's command line, which every user of the machine can read. Those whose name matches
    `kept_off_the_command_line` are passed later, when the context is made.
    """
    launch: Any = launch_gateway
    shown = SparkConf(loadDefaults=False)
    shown.setAll([(name, value) for name, value in conf.getAll() if not kept_off_the_command_line.search(name)])
    return launch(conf=shown, popen_kwargs={"process_group": 0})


def make_context(conf: SparkConf, gateway: Any) -> SparkContext:
    """Make the context of this process, which runs in the Java of `gateway`."""
    with sigint_kept():
        return SparkContext(conf=conf, gateway=gateway)


@contextmanager
def sigint_kept() -> Iterator[None]:
    """Keep this process' handler of SIGINT while a context is made in the block.

    PySpark's would replace it by one that raises KeyboardInterrupt, which Py4J logs with its traceback.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        # None is a handler that was not set in Python, and cannot be set from there.
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def java_pid() -> int | None:
    """Return the id of Spark's Java process; None where it has ended, or was not started by or for this process."""
    if is_submitted():
        # A process whose parent ended has another one.
        return _PARENT_PID if os.getppid() == _PARENT_PID else None
    process = _java_process()
    return process.pid if process is not None and process.poll() is None else None


def java_lives() -> bool:
    """Whether Spark's Java process still runs, as far as this process can tell."""
    return java_pid() is not None or not (is_submitted() or _java_process())


def _java_process() -> subprocess.Popen[bytes] | None:
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return process


class JsonListener(StreamingQueryListener):
    """A listener that receives each progress report as one JSON text.

    PySpark's own implementation converts each report with a hundred calls into Java, a tenth of the cost of a small batch.
    """

    _wrapped: Any = None

    @abstractmethod
    def on_started(self, query_id: str, run_id: str) -> None:
        """Handle the start of a query."""

    @abstractmethod
    def on_progress_json(self, text: str) -> None:
        """Handle a finished batch; `text` is Spark's report on it."""

    @property
    def _jlistener(self) -> Any:
        if self._wrapped is None:
            context: Any = SparkContext._active_spark_context
            self._wrapped = context._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(_JavaCalls(self))
        return self._wrapped

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
        """Unused: PySpark's own interface."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Unused: PySpark's own interface."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Unused: PySpark's own interface."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Unused: PySpark's own interface."""


class _JavaCalls:
    """The object that Java calls: one call back per event, for its text."""

    def __init__(self, listener: JsonListener) -> None:
        self._listener = listener

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - the Java interface's names
        self._listener.on_started(event.id().toString(), event.runId().toString())

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._listener.on_progress_json(event.progress().json())

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Do nothing: there was nothing to read, and no tick was due."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Do nothing: the job reports the reason."""

    class Java:
        implements = (LISTENER_INTERFACE,)


_FREEZES: Final = 2
"""The number of tasks after which a worker's heap is frozen: modules that tasks import lazily are loaded by then."""
_freezes_left = _FREEZES
_print_exc = traceback.print_exc


def prepare_worker() -> None:
    """Set up the current Python worker; called at the start of a task.

    PySpark's daemon collects garbage after every task, and each time spends a tenth of a second on pandas, pyarrow and other
    modules. Objects alive by the second task are frozen, so that collections skip them. Memory is kept for the next task.

    At a stop, Java and the workers end concurrently. A worker that finds its socket closed before it is asked to end would make
    the daemon print a traceback of the broken pipe after the service's own last log lines, so it exits silently.
    """
    global _freezes_left  # noqa: PLW0603 -- of the worker process
    if _freezes_left:
        _freezes_left -= 1
        gc.freeze()
        keep_freed_memory()
    traceback.print_exc = _print_unless_java_is_gone


def _print_unless_java_is_gone(*arguments: Any, **named: Any) -> None:
    if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
        _print_exc(*arguments, **named)
