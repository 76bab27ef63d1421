"""One Spark session for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming.config.service import SparkSection
from streaming.spark.runtime import RuntimeUnavailable, connector_jars
from streaming.spark.session import open_session

SHARDS = 2


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two shards; with the Kafka connector where it can be had."""
    try:
        connector_jars()
        with_kafka = True
    except RuntimeUnavailable:
        with_kafka = False
    section = SparkSection(
        master="local[2]",
        shards=SHARDS,
        driver_memory="1g",
        conf={"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")), "spark.sql.streaming.pollingDelay": "10ms"},
    )
    try:
        session = open_session(section, app_name="queuewatch-tests", with_kafka=with_kafka)
    except RuntimeUnavailable as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    yield session
    session.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """The path of a checkpoint that does not exist yet."""
    return str(tmp_path / "checkpoint")
