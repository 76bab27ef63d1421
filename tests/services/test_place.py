"""Services run in containers if a Docker engine is usable, and behave there like local processes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testcontainers.core.config import testcontainers_config

from tests.services import activemq, containers, docker_engine, elasticmq, kafka, prometheus
from tests.services.place import NoEngine, Place, choose
from tests.services.place import docker_engine as find_engine
from tests.services.process import ServiceUnavailable


def _found() -> str:
    return "Docker 28.1.0 on Debian"


def _none() -> str:
    raise NoEngine("no Docker engine answers")


CHOICES = [
    ("an engine answers", "", _found, Place(True, "Docker 28.1.0 on Debian")),
    ("none does", "", _none, Place(False, "no Docker engine answers")),
    ("processes are asked for", "processes", _found, Place(False, "QUEUEWATCH_TEST_SERVICES=processes")),
    ("containers are asked for", "containers", _found, Place(True, "Docker 28.1.0 on Debian")),
]


@pytest.mark.parametrize(("why", "asked", "engine", "place"), CHOICES, ids=[row[0] for row in CHOICES])
def test_the_place_is_chosen(why: str, asked: str, engine: Callable[[], str], place: Place) -> None:
    del why
    assert choose(asked, engine) == place


def test_requested_containers_are_not_replaced_by_processes() -> None:
    with pytest.raises(NoEngine, match="no Docker engine answers"):
        choose("containers", _none)


def test_a_run_prints_the_choice(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.services.place.chosen", lambda: Place(False, "no Docker engine answers"))
    config = request.config
    monkeypatch.setattr(config.option, "fast", False)
    printed = config.hook.pytest_report_header(config=config, start_path=config.rootpath)
    assert ["services: local processes (no Docker engine answers)"] in printed


@pytest.fixture
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The socket of the fake engine, where testcontainers looks for it."""
    path = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    return path


@pytest.fixture
def engine(socket: Path) -> Iterator[docker_engine.DockerEngine]:
    """A fake engine whose containers log one line."""
    with docker_engine.start(socket, log="listening on 4711\n") as running:
        yield running


def test_an_engine_is_identified(engine: docker_engine.DockerEngine) -> None:
    assert find_engine() == f"Docker 28.1.0 on {engine.system}"


@pytest.mark.usefixtures("socket")
def test_no_engine_behind_the_socket() -> None:
    with pytest.raises(NoEngine, match="no Docker engine answers"):
        find_engine()


def test_an_engine_in_a_virtual_machine_is_not_used(socket: Path) -> None:
    """Its loopback interface is not the machine's."""
    with docker_engine.start(socket, system="Docker Desktop"), pytest.raises(NoEngine, match="virtual machine"):
        find_engine()


DEFINITIONS: list[tuple[str, containers.Definition, str, str, str]] = [
    # name, definition, image, command, and a line of the file it reads
    (
        "kafka",
        kafka.definition(29_092, {"message_max_bytes": "1000"}),
        "apache/kafka:4.",
        "exec /opt/kafka/bin/kafka-server-start.sh /queuewatch/server.properties",
        "advertised.listeners=PLAINTEXT://127.0.0.1:29092\n",
    ),
    (
        "elasticmq",
        elasticmq.definition(),
        "softwaremill/elasticmq-native:1.",
        "-Dconfig.file=/queuewatch/elasticmq.conf",
        'bind-port = 0, bind-hostname = "127.0.0.1"',
    ),
    (
        "activemq",
        activemq.definition(activemq.configuration("/tmp/activemq")),
        "apache/activemq-classic:6.",
        "console xbean:file:/queuewatch/activemq.xml",
        'uri="stomp://127.0.0.1:0"',
    ),
    (
        "prometheus",
        prometheus.definition("prometheus", prometheus.Server("http://127.0.0.1:29090"), {"config.yml": "rule_files: [a.yml]"}),
        "prom/prometheus:v3.",
        "--config.file=/queuewatch/config.yml --web.listen-address=127.0.0.1:29090 --storage.tsdb.path=/prometheus",
        "rule_files: [a.yml]",
    ),
    (
        "alertmanager",
        prometheus.definition("alertmanager", prometheus.Server("http://127.0.0.1:29093"), {"config.yml": "route: {}"}),
        "prom/alertmanager:v0.",
        "--web.listen-address=127.0.0.1:29093 --storage.path=/alertmanager --cluster.listen-address=",
        "route: {}",
    ),
]


@pytest.mark.parametrize(
    ("definition", "image", "runs", "line"), [row[1:] for row in DEFINITIONS], ids=[row[0] for row in DEFINITIONS]
)
def test_a_service_runs_as_a_container(
    definition: containers.Definition, image: str, runs: str, line: str, engine: docker_engine.DockerEngine
) -> None:
    """The engine gets the image, the command, the files, and host networking, so no port is mapped."""
    with containers.running(definition, lambda log: log or None) as log:
        created = engine.created
        assert log == "listening on 4711\n"
        assert created["Image"].startswith(image)
        assert runs in " ".join(created["Cmd"])
        assert created["HostConfig"]["NetworkMode"] == "host"
        assert not created["HostConfig"].get("PortBindings")
        assert {f"{name}={value}" for name, value in definition.env.items()} <= set(created.get("Env") or ())
        assert created.get("Entrypoint") == (list(definition.entrypoint) if definition.entrypoint else None)
        [(path, text)] = engine.files.items()
        assert path.startswith("/queuewatch/")
        assert line in text
        assert not engine.removed
    assert engine.removed


def test_a_container_that_ends_early_reports_its_last_lines(engine: docker_engine.DockerEngine) -> None:
    engine.status = "exited"
    with (
        pytest.raises(ServiceUnavailable, match=r"elasticmq-native:.* ended: listening on 4711"),
        containers.running(elasticmq.definition(), lambda _: None),
    ):
        pass
    assert engine.removed


def test_a_service_starts_as_a_container_if_containers_are_chosen(socket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address is read from the container's log as from the process's."""
    monkeypatch.setattr(elasticmq, "chosen", lambda: Place(True, "an engine"))
    log = "=== bind address 127.0.0.1:31234\n=== started in 900 ms\n"
    with docker_engine.start(socket, log=log), elasticmq.start() as service:
        assert service.endpoint == "http://127.0.0.1:31234"
