"""Spark's settings, as they are put together from ours and the user's."""

from __future__ import annotations

import pytest

from streaming.config.service import SparkSection
from streaming.spark.session import conf_of


@pytest.mark.parametrize(
    ("given", "collector"),
    [("", "-XX:+UseParallelGC"), ("-Dx=y", "-XX:+UseParallelGC"), ("-Dx=y -XX:+UseG1GC", "-XX:+UseG1GC")],
)
def test_the_user_s_java_options_come_last_and_one_collector_is_named(given: str, collector: str) -> None:
    """Java refuses to start with two."""
    section = SparkSection(conf={"spark.driver.extraJavaOptions": given})
    options = conf_of(section, with_kafka=False, log_level="ERROR")["spark.driver.extraJavaOptions"]
    assert options.endswith(given)
    assert [word for word in options.split() if word.endswith("GC")] == [collector]
