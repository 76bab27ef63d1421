"""Faults of the Kafka broker that telemetry comes from."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from tests.faults.load import Put
from tests.faults.scene import ACCEPTED, WITHIN_S, Fault, Place, Scene
from tests.services.kafka import local
from tests.services.process import free_port, listens

TOPIC: Final = "telemetry"
_PARTITIONS: Final = 2
_AWAY_S: Final = 20
_EVENTS_PER_RECORD: Final = 100


class Broker:
    """A broker that can be killed and restarted with its data."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        folder.mkdir(parents=True)
        self._log = folder / "log"
        self._command = local(folder, self.port, {})
        self.start()

    def start(self) -> None:
        """Start the broker and wait until it listens."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline_s = time.monotonic() + WITHIN_S
        while not listens(self.port):
            assert self._process.poll() is None, self._log.read_text()[-1_000:]
            assert time.monotonic() < deadline_s, "the broker does not listen"
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill the broker as the kernel does when memory runs out."""
        self._process.kill()
        self._process.wait()

    @contextmanager
    def admin(self) -> Iterator[Any]:
        """Return a client that creates and deletes topics."""
        client = KafkaAdminClient(bootstrap_servers=self.address)
        try:
            yield client
        finally:
            client.close()

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic and wait until it exists."""
        with self.admin() as admin:
            admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1)])


@dataclass
class OnKafka(Place):
    """The service reads a topic."""

    broker: Broker | None = None
    sending: threading.Lock = field(default_factory=threading.Lock)
    """Held while events are sent."""

    @property
    def put(self) -> Put:
        """Return a function that sends to every partition in turn; when it returns, the broker has each event exactly once."""
        assert self.broker is not None
        producer = KafkaProducer(
            bootstrap_servers=self.broker.address,
            acks="all",
            enable_idempotence=True,
            max_block_ms=WITHIN_S * 1000,
            delivery_timeout_ms=WITHIN_S * 1000,
            metadata_max_age_ms=1_000,
            request_timeout_ms=5_000,
        )
        numbers = iter(cycle(range(1 << 20)))

        def put(events: Sequence[dict[str, Any]]) -> None:
            with self.sending:
                waiting = []
                # A partition that was added is used once the producer has heard of it.
                partitions = sorted(producer.partitions_for(TOPIC))
                for first in range(0, len(events), _EVENTS_PER_RECORD):
                    record = "".join(json.dumps(event) + "\n" for event in events[first : first + _EVENTS_PER_RECORD])
                    waiting.append(producer.send(TOPIC, record.encode(), partition=partitions[next(numbers) % len(partitions)]))
                for one in waiting:
                    one.get(WITHIN_S)

        return put


def _place(scene: Scene) -> tuple[OnKafka, Broker]:
    assert isinstance(scene.place, OnKafka)
    assert scene.place.broker is not None
    return scene.place, scene.place.broker


def broker_killed(scene: Scene) -> None:
    """Kafka broker killed (SIGKILL), and started again after 20 s"""
    _, broker = _place(scene)
    scene.strike()
    broker.kill()
    time.sleep(_AWAY_S)
    broker.start()


def partition_added(scene: Scene) -> None:
    """Two partitions added to the topic"""
    _, broker = _place(scene)
    scene.strike()
    with broker.admin() as admin:
        admin.create_partitions({TOPIC: _PARTITIONS + 2})


def topic_recreated(scene: Scene) -> None:
    """Topic deleted when all of it was read, and created again"""
    place, broker = _place(scene)
    with place.sending:
        # While the sender waits for the lock, the number of sent events is known.
        time.sleep(1)
        scene.service.wait(lambda metrics: metrics[ACCEPTED] == scene.load.events, WITHIN_S)
        scene.strike()
        with broker.admin() as admin:
            admin.delete_topics([TOPIC])
            while TOPIC in admin.list_topics():
                time.sleep(0.1)
        broker.create_topic(TOPIC, _PARTITIONS)


@contextmanager
def telemetry_topic(folder: Path) -> Iterator[Place]:
    """Start a broker of one node with a topic."""
    broker = Broker(folder / "kafka")
    try:
        broker.create_topic(TOPIC, _PARTITIONS)
        source = {"kafka": {"bootstrap_servers": [broker.address], "topics": [TOPIC], "starting_offsets": "earliest"}}
        yield OnKafka(folder, source=source, broker=broker)
    finally:
        broker.kill()


KAFKA: Final = {
    "broker_killed": Fault(broker_killed, telemetry_topic),
    "partition_added": Fault(partition_added, telemetry_topic),
    # A batch may have read from the new topic before the job begins it anew.
    "topic_recreated": Fault(topic_recreated, telemetry_topic, reads_again=True),
}
