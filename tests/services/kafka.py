"""A Kafka broker: one KRaft node, in a container or from its Maven jars."""

import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from tests.services import containers
from tests.services.place import chosen
from tests.services.process import (
    ServiceUnavailable,
    free_port,
    jar_folder,
    java,
    listens,
    running,
    scratch_folder,
)

# The broker is short-lived and small: fast compilation instead of good code halves its start time.
_JVM = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True)
class Kafka:
    """A running broker. It does not create topics automatically; use `create_topic`."""

    bootstrap: str
    """host:port for clients."""

    def create_topic(self, name: str | None = None, *, partitions: int = 1) -> str:
        """Create a topic and return its name, which is unique unless one is given."""
        topic = name or f"t-{uuid.uuid4().hex[:12]}"
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
        finally:
            admin.close()
        return topic


@contextmanager
def start(**overrides: str) -> Iterator[Kafka]:
    """Run a broker while the block runs; `overrides` are broker properties with underscores for dots.

    Raises `ServiceUnavailable`.
    """
    port = free_port()
    if chosen().containers:
        with containers.running(definition(port, overrides), lambda _: listens(port) or None):
            yield Kafka(f"127.0.0.1:{port}")
        return
    with scratch_folder("kafka") as folder:
        serve = local(folder, port, overrides)
        with running(serve, folder / "kafka.log", lambda _: listens(port) or None):
            yield Kafka(f"127.0.0.1:{port}")


def local(folder: Path, port: int, overrides: Mapping[str, str]) -> list[str]:
    """Return the command that runs a local broker with new data in `folder`. Raises `ServiceUnavailable`."""
    jars = jar_folder("kafka-broker")
    command = [java(), *_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}/*"]
    properties = folder / "server.properties"
    properties.write_text(_properties(f"{folder}/data", port, overrides))
    _format(command, properties)
    return [*command, "kafka.Kafka", str(properties)]


def definition(port: int, overrides: Mapping[str, str]) -> containers.Definition:
    """Return the broker as a container of the deployed image, with the same two steps as the local process."""
    properties = f"{containers.FOLDER}/server.properties"
    formatting = f"/opt/kafka/bin/kafka-storage.sh format -t {uuid.uuid4()} -c {properties}"
    return containers.Definition(
        containers.deployed_image("kafka"),
        ("/bin/sh", "-c", f"{formatting} && exec /opt/kafka/bin/kafka-server-start.sh {properties}"),
        files={"server.properties": _properties("/tmp/kafka-data", port, overrides)},
        env={"KAFKA_HEAP_OPTS": "-Xms128m -Xmx512m"},
    )


def _properties(data: str, port: int, overrides: Mapping[str, str]) -> str:
    controller = free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        # A single node cannot hold the three replicas that these topics have by default.
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # The first consumer group would create fifty offset partitions; one is enough and faster.
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    settings |= {name.replace("_", "."): value for name, value in overrides.items()}
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _format(command: list[str], properties: Path) -> None:
    cluster = str(uuid.uuid4())
    formatting = [*command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
    done = subprocess.run(formatting, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServiceUnavailable(f"Kafka could not format its storage: {(done.stdout + done.stderr)[-500:]}")
