"""One Spark session for all tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming.config.service import SparkSection
from streaming.spark.runtime import RuntimeUnavailable, connector_jars
from streaming.spark.session import open_session
from tests.services.provider import Services

SHARDS = 2
SECRET = "a-key-that-only-java-gets"


@pytest.fixture(scope="session")
def spark(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two shards, and with the Kafka connector where it is available."""
    try:
        connector_jars()
        with_kafka = True
    except RuntimeUnavailable:
        with_kafka = False
    section = SparkSection(
        master="local[2]",
        shards=SHARDS,
        driver_memory="1g",
        conf={
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.sql.streaming.pollingDelay": "10ms",
            "spark.hadoop.fs.s3a.secret.key": SECRET,
        },
    )
    session = services.found(lambda: open_session(section, app_name="queuewatch-tests", with_kafka=with_kafka))
    yield session
    session.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """Return the path of a checkpoint that does not exist yet."""
    return str(tmp_path / "checkpoint")
