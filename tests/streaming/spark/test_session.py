"""The settings of the Spark session, and who has the last word on each."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from streaming.config.service import SparkSection
from streaming.spark.session import REQUIRED, conf_of

_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"


def conf(**section: Any) -> dict[str, str]:
    """The session's settings."""
    return conf_of(SparkSection(**section), with_kafka=False, log_level="ERROR")


@pytest.mark.parametrize(
    ("checkpoint", "size"),
    [("/var/lib/queuewatch", "8m"), ("file:///var/lib/queuewatch", "8m"), ("s3a://bucket/queuewatch", "64m")],
)
def test_python_is_handed_little_at_a_time_where_the_state_does_not_travel(checkpoint: str, size: str) -> None:
    """A state that Spark keeps is shipped with every piece of a shard's packets."""
    assert conf(checkpoint_dir=checkpoint)[_BATCH] == size


def test_the_users_word_stands() -> None:
    """In `spark.conf`; what the job would be wrong without is refused there."""
    assert conf(conf={_BATCH: "1m"})[_BATCH] == "1m"
    required = next(iter(REQUIRED))
    with pytest.raises(ValidationError, match=re.escape(required)):
        conf(conf={required: "something"})


@pytest.mark.parametrize(
    ("given", "collector"),
    [("", "-XX:+UseParallelGC"), ("-Dx=y", "-XX:+UseParallelGC"), ("-Dx=y -XX:+UseG1GC", "-XX:+UseG1GC")],
)
def test_the_users_java_options_come_last_and_one_collector_is_named(given: str, collector: str) -> None:
    """Java refuses to start with two."""
    options = conf(conf={"spark.driver.extraJavaOptions": given})["spark.driver.extraJavaOptions"]
    assert options.endswith(given)
    assert [word for word in options.split() if word.endswith("GC")] == [collector]


@pytest.mark.parametrize(("master", "compress"), [("local[2]", "false"), ("spark://host:7077", None)])
def test_packets_are_compressed_only_where_they_cross_a_network(master: str, compress: str | None) -> None:
    """Spark compresses unless told otherwise."""
    assert conf(master=master).get("spark.shuffle.compress") == compress
