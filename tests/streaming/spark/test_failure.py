"""One line out of the many with which Spark reports a failure."""

from __future__ import annotations

import pytest

from streaming.spark.failure import reason_of

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


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PYTHON, "UnreadableBlob: the state is of format 9, this release reads up to 1"),
        (JAVA, "UnknownTopicOrPartitionException: This server does not host this topic-partition."),
        (
            "[STREAM_FAILED] Query terminated:  no  \n reason\n=== Streaming Query ===\nplan",
            "[STREAM_FAILED] Query terminated: no reason",
        ),
    ],
)
def test_the_innermost_cause_is_told(text: str, reason: str) -> None:
    """Without stack, plan and Spark's own wrapping."""
    assert reason_of(RuntimeError(text)) == reason


def test_a_query_that_stopped_in_silence() -> None:
    """There is no exception then."""
    assert "without saying why" in reason_of(None)


def test_a_long_reason_is_cut() -> None:
    """It goes into one line of a log."""
    assert len(reason_of(RuntimeError("x" * 10_000))) == 500
