"""A destination of signals that is away for long, and the service killed meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafka import KafkaConsumer

from tests.faults.kafka import Broker
from tests.faults.scene import WITHIN_S, Fault, Place, Scene

TOPIC: Final = "signals"
AWAY_S: Final = 600


@dataclass
class WithSignalTopic(Place):
    """The service reads a folder and also writes its signals to a topic."""

    broker: Broker | None = None

    def announcements(self) -> list[str]:
        """Return the announcements in the topic once it has all of the signal log's, or after ten minutes.

        A record that was sent again has the key of the first, by which readers tell it apart: it counts once.
        """
        assert self.broker is not None
        logged = set(super().announcements())
        found: dict[str, set[bytes]] = {}
        consumer = KafkaConsumer(TOPIC, bootstrap_servers=self.broker.address, auto_offset_reset="earliest", group_id=None)
        deadline_s = time.monotonic() + WITHIN_S
        try:
            while not logged <= found.keys() and time.monotonic() < deadline_s:
                for records in consumer.poll(timeout_ms=1_000).values():
                    for record in records:
                        found.setdefault(record.key.decode(), set()).add(record.value)
        finally:
            consumer.close()
        return [announcement for announcement, lines in found.items() for _ in lines]


def destination_away(scene: Scene) -> None:
    """Broker of the signal topic killed for 10 min, and SIGKILL of the driver meanwhile"""
    assert isinstance(scene.place, WithSignalTopic)
    assert scene.place.broker is not None
    scene.place.broker.kill()
    time.sleep(AWAY_S / 2)
    scene.strike()
    scene.service.kill()
    scene.start_again()
    recovered_s = scene.wait_for_more(scene.load.events)
    time.sleep(AWAY_S / 2)
    scene.place.broker.start()
    # Only the driver's restart counts as recovery; the broker's absence is part of the fault.
    scene.began_s = time.monotonic() - recovered_s


@contextmanager
def signal_topic(folder: Path) -> Iterator[Place]:
    """Start a broker of one node for the signals."""
    broker = Broker(folder / "kafka")
    try:
        broker.create_topic(TOPIC, 1)
        kafka = {"bootstrap_servers": [broker.address], "topic": TOPIC}
        yield WithSignalTopic(folder, more={"signal_log": {"path": "signals.ndjson", "kafka": kafka}}, broker=broker)
    finally:
        broker.kill()


DESTINATION: Final = {"destination_away": Fault(destination_away, signal_topic)}
