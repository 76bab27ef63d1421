"""The settings of the Spark session, and which of them the user may override."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from streaming.config.service import SparkSection
from streaming.spark import session
from streaming.spark.internals import LOCAL_CHECKPOINT, hadoop_configuration, java_pid
from streaming.spark.runtime import RuntimeUnavailable
from streaming.spark.session import ARROW_MEMORY, MEMORY_TUNABLES, REQUIRED, conf_of
from tests.streaming.conftest import SECRET

_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"


def conf(**section: Any) -> dict[str, str]:
    """Return the session's settings."""
    return conf_of(SparkSection(**section), with_kafka=False, log_level="ERROR")


@pytest.mark.parametrize(
    ("checkpoint", "size"),
    [("/var/lib/queuewatch", "8m"), ("file:///var/lib/queuewatch", "8m"), ("s3a://bucket/queuewatch", "64m")],
)
def test_python_gets_small_batches_where_the_state_is_in_files(checkpoint: str, size: str) -> None:
    """A state that Spark stores is sent again with every part of a shard's packets."""
    assert conf(checkpoint_dir=checkpoint)[_BATCH] == size


def test_only_a_local_checkpoint_is_written_by_the_local_manager() -> None:
    """Behind a URI several machines may write, and Spark chooses what is atomic there."""
    assert conf(checkpoint_dir="/var/lib/queuewatch").items() >= LOCAL_CHECKPOINT.items()
    assert not conf(checkpoint_dir="s3a://bucket/queuewatch").keys() & LOCAL_CHECKPOINT.keys()


def test_the_user_s_settings_take_precedence() -> None:
    """They are given in `spark.conf`, which refuses changes to settings that correctness depends on."""
    assert conf(conf={_BATCH: "1m"})[_BATCH] == "1m"
    required = next(iter(REQUIRED))
    with pytest.raises(ValidationError, match=re.escape(required)):
        conf(conf={required: "something"})


@pytest.mark.parametrize(
    ("given", "collector"),
    [("", "-XX:+UseParallelGC"), ("-Dx=y", "-XX:+UseParallelGC"), ("-Dx=y -XX:+UseG1GC", "-XX:+UseG1GC")],
)
def test_the_user_s_java_options_come_last_with_one_garbage_collector(given: str, collector: str) -> None:
    """Java refuses to start with two collectors."""
    options = conf(conf={"spark.driver.extraJavaOptions": given})["spark.driver.extraJavaOptions"]
    assert options.endswith(given)
    assert [word for word in options.split() if word.endswith("GC")] == [collector]


@pytest.mark.parametrize(("master", "compress"), [("local[2]", "false"), ("spark://host:7077", None)])
def test_packets_are_compressed_only_where_they_cross_a_network(master: str, compress: str | None) -> None:
    """Spark compresses them by default."""
    assert conf(master=master).get("spark.shuffle.compress") == compress


@pytest.mark.parametrize(
    ("variable", "ours", "theirs"),
    [("GLIBC_TUNABLES", MEMORY_TUNABLES, "glibc.malloc.hugetlb=0"), ("ARROW_DEFAULT_MEMORY_POOL", ARROW_MEMORY, "mimalloc")],
)
def test_workers_get_memory_settings_unless_the_user_set_their_own(
    variable: str, ours: str, theirs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One variable holds all glibc settings, so the user's value replaces ours as a whole."""
    name = f"spark.executorEnv.{variable}"
    monkeypatch.delenv(variable, raising=False)
    assert conf()[name] == ours
    monkeypatch.setenv(variable, theirs)
    assert conf()[name] == theirs
    assert conf(conf={name: ""})[name] == ""


def test_java_gets_a_secret_but_not_on_its_command_line(spark: SparkSession) -> None:
    """Every user of the machine can read command lines."""
    command = Path(f"/proc/{java_pid()}/cmdline").read_text()
    assert "spark.sql.warehouse.dir" in command
    assert SECRET not in command
    assert hadoop_configuration(spark).get("fs.s3a.secret.key") == SECRET


def test_ctrl_c_stays_with_the_handler_of_this_process(spark: SparkSession) -> None:
    """PySpark's would end a service that is still starting with a traceback instead of a clean stop."""
    assert spark.sparkContext is not None
    handler: Any = signal.getsignal(signal.SIGINT)
    assert not handler.__module__.startswith("pyspark")


def test_a_worker_runs_with_the_memory_settings(spark: SparkSession) -> None:
    """glibc reads them before Python starts, pyarrow when it is imported."""

    def says(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        said = [os.environ.get("GLIBC_TUNABLES", ""), pa.default_memory_pool().backend_name]
        yield from (pa.RecordBatch.from_pydict({"said": said}) for _ in batches)

    tunables, pool = spark.range(1, numPartitions=1).mapInArrow(says, "said string").collect()
    assert tunables[0] == os.environ.get("GLIBC_TUNABLES", MEMORY_TUNABLES)
    assert pool[0] == os.environ.get("ARROW_DEFAULT_MEMORY_POOL", ARROW_MEMORY)


def test_an_error_of_the_java_that_was_started_ahead_is_the_session_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread's error ends the start where it did without the thread."""

    def fail(_: object) -> None:
        raise RuntimeUnavailable("no Java", "install one")

    monkeypatch.setattr(session, "has_java", lambda: False)
    monkeypatch.setattr(session, "_start_java", fail)
    session.start_java_ahead(SparkSection(), with_kafka=False, log_level="ERROR")
    with pytest.raises(RuntimeUnavailable, match="no Java"):
        session.open_session(SparkSection(), app_name="test", with_kafka=False)


def test_a_java_that_ends_at_its_start_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java itself has said why, in its own words."""

    def end(*_: object, **__: object) -> None:
        raise PySparkRuntimeError("Java gateway process exited before sending its port number.")

    monkeypatch.setattr(session, "ensure_java", lambda: None)
    monkeypatch.setattr(session, "launch_java", end)
    with pytest.raises(RuntimeUnavailable, match=r"Java's output above\. .*exceeds the machine's memory.*an unknown option"):
        session._start_java(session._java_conf(SparkSection(), with_kafka=False, log_level="ERROR"))


def test_java_is_started_ahead_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has a Java uses it."""
    monkeypatch.setattr(session, "has_java", lambda: True)
    session.start_java_ahead(SparkSection(), with_kafka=False, log_level="ERROR")
    assert session._java_ahead is None
