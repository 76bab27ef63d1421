"""Session fixtures, one per service: the first test that asks starts the service, for the whole run.

A service runs in a container if a Docker engine answers, else as a local process; the header of the run says which. If a
service is unavailable, the tests that need it are skipped with the reason; with `CI=true` they fail.
"""

import gc
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from sources.wire.scan import is_compiled
from streaming.core.gc_pause import gc_paused
from streaming.spark.runtime import connector_jars
from tests.services import activemq as activemq_service
from tests.services import application as application_service
from tests.services import browser, place, prometheus
from tests.services import elasticmq as elasticmq_service
from tests.services import kafka as kafka_service
from tests.services import moto_sqs as moto_service
from tests.services import node as node_service
from tests.services.process import ServiceUnavailable
from tests.services.provider import Services


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--fast`, the option that `make test-fast` passes."""
    parser.addoption("--fast", action="store_true", help="only tests that need no broker, browser, Java or node, and are quick")


def pytest_configure() -> None:
    """Switch off Hypothesis' limit on the time of an example: on a busy machine any example may take longer."""
    settings.register_profile("any machine", deadline=None)
    settings.load_profile("any machine")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say in the header where this run starts its services."""
    return [] if config.getoption("--fast") else [f"services: {place.chosen()}"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage rarely, and not among modules and collected tests: it took 8 % of their processor time."""
    with gc_paused():
        collected = yield
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    return collected


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--fast`, deselect simulations, tests marked slow or e2e, and tests that use `services`, also indirectly."""
    if config.getoption("--fast"):
        config.hook.pytest_deselected(items=[item for item in items if not _is_fast(item)])
        items[:] = filter(_is_fast, items)


def _is_fast(item: pytest.Item) -> bool:
    marked = any(item.get_closest_marker(name) for name in ("slow", "e2e", "simulation"))
    return not marked and "services" not in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def services(request: pytest.FixtureRequest) -> Services:
    """Base of every fixture that starts a service, a browser, Java or node, or that downloads what those need.

    With `--fast`, a test that requests such a fixture only while it runs is skipped.
    """
    if request.config.getoption("--fast"):
        pytest.skip("--fast starts no service")
    return Services()


@pytest.fixture(scope="session")
def kafka(services: Services) -> Iterator[kafka_service.Kafka]:
    """A Kafka broker without topics."""
    with services.running(kafka_service.start()) as service:
        yield service


@pytest.fixture(scope="session")
def elasticmq(services: Services) -> Iterator[elasticmq_service.ElasticMQ]:
    """An ElasticMQ server, shared: give each queue a name that no other test uses."""
    with services.running(elasticmq_service.start()) as service:
        yield service


@pytest.fixture(scope="session")
def moto_sqs(services: Services) -> Iterator[moto_service.MotoSqs]:
    """A moto server, shared: give each queue a name that no other test uses."""
    with services.running(moto_service.start()) as service:
        yield service


@pytest.fixture
def sqs_environment(moto_sqs: moto_service.MotoSqs) -> dict[str, str]:
    """Environment variables with which a program's boto3 uses the moto server; they set no telemetry options."""
    return application_service.variables(moto_sqs.endpoint)


@pytest.fixture(scope="session")
def application(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an application's environment: frameworks and the library from its wheel, but not the service."""
    return services.found(lambda: application_service.create(tmp_path_factory.mktemp("application")))


@pytest.fixture(scope="session")
def activemq(services: Services) -> Iterator[activemq_service.ActiveMQ]:
    """An ActiveMQ Classic broker with all advisories, `DLQ.` dead-letter queues and no slow-consumer strategy."""
    with services.running(activemq_service.start()) as service:
        yield service


@pytest.fixture(scope="session")
def prometheus_binaries(services: Services) -> prometheus.Binaries:
    """The promtool and amtool binaries."""
    return services.found(prometheus.binaries)


@pytest.fixture(scope="session")
def prometheus_servers(services: Services) -> None:
    """Make sure that `start_prometheus` and `start_alertmanager` work."""
    services.found(prometheus.check_servers)


@pytest.fixture(scope="session")
def chromium(services: Services) -> str:
    """The path of a Chromium binary."""
    return services.found(browser.find_chromium)


@pytest.fixture(scope="session")
def node(services: Services) -> node_service.Node:
    """Node with miniflare."""
    return services.found(node_service.find_node)


@pytest.fixture(scope="session")
def spark_jars(services: Services) -> list[Path]:
    """The jars of Spark's Kafka connector."""
    return services.found(connector_jars)


@pytest.fixture(scope="session")
def compiled_scan() -> None:
    """The compiled scanner for JSON lines, and a C compiler."""
    if not is_compiled() or shutil.which("cc") is None:
        Services.give_up(
            ServiceUnavailable("no compiled scan, or no C compiler: install gcc and libc6-dev, then delete .venv/installed.json")
        )
