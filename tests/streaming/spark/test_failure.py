"""One line with the cause, out of the many lines in which Spark reports a failure."""

from __future__ import annotations

import time

import pytest

from streaming.spark.failure import WHY_GONE, is_full_disk, reason_of

PYTHON = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "streaming/spark/stateful_shard.py", line 40, in stage
streaming.core.columns.UnreadableBlob: the state is of format 9, this release reads up to 1

\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:500)
=== Streaming Query ===
Identifier: [id = 1]
"""
JAVA = """[STREAM_FAILED] Query terminated with exception: failed
org.apache.spark.SparkException: outer
\tat a.b.C(D.scala:1)
Caused by: java.util.concurrent.ExecutionException: middle
\tat a.b.C(D.scala:1)
Caused by: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this topic-partition.
\tat a.b.C(D.scala:1)
=== Streaming Query ===
"""

WORKER = """[STREAM_FAILED] Query terminated with exception: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "py4j/protocol.py", line 327, in get_return_value
    raise Py4JJavaError(
py4j.protocol.Py4JJavaError: An error occurred while calling o224.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 4.0 failed 1 times, most recent failure: \
Lost task 0.0 in stage 4.0 (TID 5) (10.0.0.1 executor driver): {cause}
\tat a.b.C(D.scala:1)

Driver stacktrace:
\tat a.b.C(D.scala:1)
Caused by: {cause}
\tat a.b.C(D.scala:1)
"""  # noqa: E501 - as Spark writes it
CRASHED = WORKER.format(cause="org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider ...")
RESET = WORKER.format(cause="java.net.SocketException: Connection reset")
HANGS = """An error occurred while calling o71.stop.
: java.util.concurrent.TimeoutException: Stream Execution thread for stream [id = 1] failed to stop within 30000 milliseconds.
\tat a.b.C(D.scala:1)
Caused by: org.apache.spark.SparkException: The stream thread was last executing:
\tat java.base/java.lang.Object.wait(Native Method)
\tat org.apache.kafka.common.internals.KafkaFutureImpl.get(KafkaFutureImpl.java:165)
"""
REMOTE = WORKER.format(cause=PYTHON.split("\n", 1)[1].partition("\n\n")[0])
LOAD = """[STREAM_FAILED] Query terminated with exception: failed
org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.  SQLSTATE: 58030
\tat a.b.C(D.scala:1)
Caused by: java.io.EOFException: Stream ended prematurely
\tat net.jpountz.lz4.LZ4BlockInputStream.readFully(LZ4BlockInputStream.java:282)
"""
NOEXEC = WORKER.format(
    cause="java.lang.UnsatisfiedLinkError: /tmp/librocksdbjni72.so: /tmp/librocksdbjni72.so: "
    "failed to map segment from shared object"
)
NO_REMEDY = WORKER.format(cause="java.lang.UnsatisfiedLinkError: /tmp/librocksdbjni72.so: wrong ELF class: ELFCLASS32")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(
            NOEXEC,
            "/tmp/librocksdbjni72.so cannot be loaded, because its file system is mounted noexec: mount it with exec (Docker: "
            "`--tmpfs /tmp:exec`), or set spark.conf's spark.driver.extraJavaOptions and spark.executor.extraJavaOptions to "
            "-Djava.io.tmpdir=… with a folder whose files may be executed",
            id="/tmp is mounted noexec",
        ),
        pytest.param(
            NO_REMEDY,
            "UnsatisfiedLinkError: /tmp/librocksdbjni72.so: wrong ELF class: ELFCLASS32",
            id="a library that fails for another reason",
        ),
        pytest.param(CRASHED, f"a Python worker exited unexpectedly: {WHY_GONE}", id="a worker was killed"),
        pytest.param(
            RESET, f"a Python worker is gone (SocketException: Connection reset): {WHY_GONE}", id="Spark ended a worker"
        ),
        pytest.param(
            LOAD,
            "Spark cannot load its own state (EOFException: Stream ended prematurely): `queuewatch state verify` names what is "
            "damaged",
            id="Spark's own state is damaged",
        ),
        pytest.param(
            REMOTE, "UnreadableBlob: the state is of format 9, this release reads up to 1", id="Python behind Java's line"
        ),
        (PYTHON, "UnreadableBlob: the state is of format 9, this release reads up to 1"),
        pytest.param(
            HANGS,
            "SparkException: The stream thread was last executing: at java.base/java.lang.Object.wait(Native Method) "
            "at org.apache.kafka.common.internals.KafkaFutureImpl.get(KafkaFutureImpl.java:165)",
            id="a query that does not stop",
        ),
        (JAVA, "UnknownTopicOrPartitionException: This server does not host this topic-partition."),
        (
            "[STREAM_FAILED] Query terminated:  no  \n reason\n=== Streaming Query ===\nplan",
            "[STREAM_FAILED] Query terminated: no reason",
        ),
    ],
)
def test_the_innermost_cause_is_reported(text: str, reason: str) -> None:
    """The stack trace, the plan and Spark's own wrapping are removed."""
    assert reason_of(RuntimeError(text)) == reason


def test_a_query_that_stopped_without_an_exception() -> None:
    """The text says that Spark gave no reason."""
    assert "without saying why" in reason_of(None)


def test_a_long_reason_is_truncated() -> None:
    """It has to fit into one log line."""
    assert len(reason_of(RuntimeError("x" * 10_000))) == 500


def test_a_full_disk_is_recognised() -> None:
    """Both Java's and Python's errors count; a full disk is temporary."""
    assert is_full_disk(RuntimeError("java.io.IOException: No space left on device"))
    assert is_full_disk(OSError(28, "No space left on device"))
    assert not is_full_disk(RuntimeError("Connection reset"))
    assert not is_full_disk(None)


def test_an_error_among_its_own_causes_is_no_full_disk() -> None:
    """The job would hang instead of restarting its query."""
    error, other = RuntimeError("a"), RuntimeError("b")
    error.__cause__, other.__cause__ = other, error
    assert not is_full_disk(error)
    other.__cause__ = OSError(28, "No space left on device")
    assert is_full_disk(error)


LONG = (
    ("blank lines", "Caused by: java.lang.X: boom\n" + " \n" * 50_000 + "x", "X: boom"),
    ("lost tasks", "Lost task " * 40_000, "Lost task Lost"),
    ("libraries", "UnsatisfiedLinkError: a: " * 20_000, "UnsatisfiedLinkError: a: UnsatisfiedLinkError: a:"),
    ("Py4J's own lines", "py4j.protocol.Py4JJavaError: An error\n" * 100_000 + ": java.lang.X: boom", ": java.lang.X: boom"),
)


@pytest.mark.parametrize(("text", "reason"), [row[1:] for row in LONG], ids=[row[0].strip() for row in LONG])
def test_a_long_text_is_read_at_once(text: str, reason: str) -> None:
    """An error may quote megabytes of a record or a plan, and a service that reports it must not hang over it."""
    began_s = time.process_time()
    assert reason_of(RuntimeError(text)).startswith(reason)
    assert time.process_time() - began_s < 2


def test_the_java_error_within_another_one_is_named() -> None:
    """Py4J's line is in the text twice, and only what follows the last of them says anything."""
    first = "py4j.protocol.Py4JJavaError: An error occurred while calling o1.start, which is long enough.\n: x\n"
    last = "py4j.protocol.Py4JJavaError: An error occurred while calling o2.collect.\n: org.apache.spark.SparkException: no\n"
    assert reason_of(RuntimeError(f"{first}{last}\tat a.b.C(D.scala:1)\n")).startswith(": org.apache.spark.SparkException: no")
