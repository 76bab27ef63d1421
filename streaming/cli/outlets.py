"""Create the destinations of the job's results from the configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sinks.alertmanager.push import AlertmanagerPush
from sinks.append_once import AppendOnceFile
from sinks.prometheus import Family
from sinks.records import Destination
from sinks.signal_log import signal_records
from sinks.store import SnapshotStore
from sinks.topic import RecordTopic, durable_producer
from streaming.checkpoint.manifest import Checkpoint
from streaming.checkpoint.seed import read_seed
from streaming.config.kafka import KafkaTopic
from streaming.config.model import Config
from streaming.config.service import QuarantineSection, SignalLogSection
from streaming.core.events.packet import Quarantined
from streaming.delivery.outbox import Outbox
from streaming.delivery.outlets import Outlets
from streaming.delivery.quarantine import InvalidEventLog, quarantine_records
from streaming.delivery.sender import Deliveries, Delivery, delivery_families
from streaming.folder import local_folder
from streaming.judge.findings.signals import SignalChange
from streaming.judge.snapshot import Snapshot
from streaming.spark.job import FolderOf


class OutletMetrics:
    """Metrics of the outlets; empty until they are open."""

    def __init__(self) -> None:
        self.deliveries: tuple[Delivery, ...] = ()

    def __call__(self) -> Iterable[Family]:
        """Return the families for `/metrics`."""
        return delivery_families(self.deliveries)


@contextmanager
def open_outlets(
    config: Config,
    checkpoint: Checkpoint,
    folder_of: FolderOf,
    store: SnapshotStore,
    push: AlertmanagerPush | None,
    metrics: OutletMetrics,
) -> Iterator[Outlets]:
    """Open the outlets of a job on `checkpoint`; their files and connections are closed at the end of the block.

    Destinations may be unavailable: each has its own thread, which connects when there is something to send.
    """
    if push is not None:
        push.resume(folder_of("outbox/alertmanager"))
    local = local_folder(config.spark.checkpoint_dir)
    seed = read_seed(local.path) if local is not None else None
    continues = seed.continues if seed is not None else {}
    logs = _deliveries(_signal_logs(config.signal_log, checkpoint.id, continues), folder_of)
    quarantines = _deliveries(_quarantines(config.quarantine, checkpoint.id, continues), folder_of)
    metrics.deliveries = (*logs, *quarantines)
    to_logs, to_quarantines = Deliveries(logs), Deliveries(quarantines)
    invalid_events = InvalidEventLog()

    def publish(snapshot: Snapshot) -> None:
        store.publish(snapshot)
        if push is not None:
            push.publish(snapshot)

    def signals(changes: Sequence[SignalChange], batch_id: int) -> None:
        to_logs.put(signal_records(changes), batch_id)

    def quarantine(invalid: Sequence[Quarantined], batch_id: int) -> None:
        invalid_events.say(invalid, batch_id)
        to_quarantines.put(quarantine_records(invalid, batch_id, checkpoint.id), batch_id)

    try:
        yield Outlets(publish, signals, quarantine)
    finally:
        for delivery in metrics.deliveries:
            delivery.close()


def _deliveries(destinations: Mapping[str, Destination], folder_of: FolderOf) -> list[Delivery]:
    return [Delivery(name, destination, Outbox(folder_of(f"outbox/{name}"), name)) for name, destination in destinations.items()]


def _signal_logs(section: SignalLogSection, stream: str, continues: Mapping[str, int]) -> dict[str, Destination]:
    logs: dict[str, Destination] = {}
    if section.path is not None:
        logs["signal_log_file"] = AppendOnceFile(
            section.path, stream, continues=continues, max_bytes=section.max_bytes, keep_files=section.keep_files
        )
    if section.kafka is not None:
        logs["signal_log_topic"] = RecordTopic(_connecting(section.kafka), section.kafka.topic)
    return logs


def _quarantines(section: QuarantineSection, stream: str, continues: Mapping[str, int]) -> dict[str, Destination]:
    places: dict[str, Destination] = {}
    if section.path is not None:
        # The limit covers the file and its predecessor together.
        half = max(1, section.max_bytes // 2)
        places["quarantine_file"] = AppendOnceFile(
            section.path, stream, continues=continues, max_bytes=half, keep_files=1, trims=True
        )
    if section.kafka is not None:
        places["quarantine_topic"] = RecordTopic(_connecting(section.kafka), section.kafka.topic)
    return places


def _connecting(connection: KafkaTopic) -> Callable[[], Any]:
    return lambda: durable_producer(connection.python_options())
