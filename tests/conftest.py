"""One fixture per service, started once for the whole run by the first test that asks.

A service that cannot be had skips the tests that need it, with the reason; under `CI=true` it fails them.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

from sources.wire.scan import is_compiled
from streaming.spark.runtime import RuntimeUnavailable, connector_jars
from tests.services import activemq as activemq_service
from tests.services import application as application_service
from tests.services import browser, prometheus
from tests.services import elasticmq as elasticmq_service
from tests.services import kafka as kafka_service
from tests.services import moto_sqs as moto_service
from tests.services import node as node_service
from tests.services.process import ServiceUnavailable

Service = TypeVar("Service")


@pytest.fixture(scope="session")
def kafka() -> Iterator[kafka_service.Kafka]:
    """A Kafka broker without topics."""
    with _served(kafka_service.start()) as service:
        yield service


@pytest.fixture(scope="session")
def elasticmq() -> Iterator[elasticmq_service.ElasticMQ]:
    """An ElasticMQ; name queues so that no other test has them."""
    with _served(elasticmq_service.start()) as service:
        yield service


@pytest.fixture(scope="session")
def moto_sqs() -> Iterator[moto_service.MotoSqs]:
    """A moto server; name queues so that no other test has them."""
    with _served(moto_service.start()) as service:
        yield service


@pytest.fixture
def sqs_environment(moto_sqs: moto_service.MotoSqs) -> dict[str, str]:
    """The environment of a program whose boto3 finds the stand-in for SQS by itself, and no telemetry settings."""
    return application_service.variables(moto_sqs.endpoint)


@pytest.fixture(scope="session")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an application's environment: its frameworks, the library from its wheel, and no service."""
    try:
        return application_service.create(tmp_path_factory.mktemp("application"))
    except ServiceUnavailable as missing:
        _give_up(missing)


@pytest.fixture(scope="session")
def activemq() -> Iterator[activemq_service.ActiveMQ]:
    """An ActiveMQ Classic with every advisory, `DLQ.` dead letters and no slow-consumer strategy."""
    with _served(activemq_service.start()) as service:
        yield service


@pytest.fixture(scope="session")
def prometheus_binaries() -> prometheus.Binaries:
    """prometheus, promtool, alertmanager and amtool."""
    try:
        return prometheus.binaries()
    except ServiceUnavailable as missing:
        _give_up(missing)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium."""
    try:
        return browser.find_chromium()
    except ServiceUnavailable as missing:
        _give_up(missing)


@pytest.fixture(scope="session")
def node() -> node_service.Node:
    """Node with miniflare."""
    try:
        return node_service.find_node()
    except ServiceUnavailable as missing:
        _give_up(missing)


@pytest.fixture(scope="session")
def spark_jars() -> list[Path]:
    """The jars of Spark's Kafka connector."""
    try:
        return connector_jars()
    except RuntimeUnavailable as missing:
        _give_up(missing)


@pytest.fixture(scope="session")
def compiled_scan() -> None:
    """The compiled scan of JSON lines, and a compiler."""
    if not is_compiled() or shutil.which("cc") is None:
        _give_up(
            ServiceUnavailable("no compiled scan, or no C compiler: install gcc and libc6-dev, then delete .venv/installed.json")
        )


@contextmanager
def _served(starting: AbstractContextManager[Service]) -> Iterator[Service]:
    """What `starting` gives, until the run ends."""
    with ExitStack() as stack:
        try:
            service = stack.enter_context(starting)
        except ServiceUnavailable as missing:
            _give_up(missing)
        yield service


def _give_up(missing: Exception) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(str(missing), pytrace=False)
    pytest.skip(str(missing))
