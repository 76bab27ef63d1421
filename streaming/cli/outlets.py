"""Where the job's results go, from the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from sinks.alertmanager.push import AlertmanagerPush
from sinks.signal_log import SignalLog, SignalLogFile, SignalLogTopic, signal_log_producer
from sinks.store import SnapshotStore
from streaming.config.kafka import KafkaConnection
from streaming.config.model import Config
from streaming.config.service import QuarantineSection, SignalLogSection
from streaming.core.packet import Quarantined
from streaming.judge.signals import SignalChange
from streaming.judge.snapshot import Snapshot
from streaming.spark.checkpoint import Checkpoint
from streaming.spark.errors import SourceUnavailable
from streaming.spark.outlets import Outlets
from streaming.spark.quarantine import Quarantine, QuarantineFile, QuarantineTopic


@contextmanager
def open_outlets(
    config: Config, checkpoint: Checkpoint, store: SnapshotStore, push: AlertmanagerPush | None
) -> Iterator[Outlets]:
    """The outlets of a job on `checkpoint`; their files and connections are closed at the end of the block."""
    with ExitStack() as stack:
        logs = _signal_logs(config.signal_log, checkpoint.id, stack)
        quarantines = _quarantines(config.quarantine, checkpoint.id, stack)

        def signals(changes: Sequence[SignalChange], batch_id: int) -> None:
            for log in logs:
                log.append(changes, batch_id)

        def quarantine(invalid: Sequence[Quarantined], batch_id: int) -> None:
            for place in quarantines:
                place.keep(invalid, batch_id)

        def publish(snapshot: Snapshot) -> None:
            store.publish(snapshot)
            if push is not None:
                push.publish(snapshot)

        yield Outlets(signals, quarantine, publish)


def _signal_logs(section: SignalLogSection, stream: str, stack: ExitStack) -> list[SignalLog]:
    logs: list[SignalLog] = []
    if section.path is not None:
        logs.append(SignalLogFile(section.path, stream, max_bytes=section.max_bytes, keep_files=section.keep_files))
    if section.kafka is not None:
        logs.append(SignalLogTopic(_producer(section.kafka, section.kafka.topic), section.kafka.topic))
    for log in logs:
        stack.callback(log.close)
    return logs


def _quarantines(section: QuarantineSection, stream: str, stack: ExitStack) -> list[Quarantine]:
    places: list[Quarantine] = []
    if section.path is not None:
        places.append(QuarantineFile(section.path, stream, max_bytes=section.max_bytes))
    if section.kafka is not None:
        places.append(QuarantineTopic(_producer(section.kafka, section.kafka.topic), section.kafka.topic, stream))
    for place in places:
        stack.callback(place.close)
    return places


def _producer(connection: KafkaConnection, topic: str) -> Any:
    try:
        return signal_log_producer(connection.python_options())
    except Exception as error:  # kafka-python raises many kinds at start, and none says which servers it asked
        servers = ", ".join(connection.bootstrap_servers)
        raise SourceUnavailable(
            f"no Kafka broker answers at {servers}, where the topic {topic} is to be written ({error})",
            "Check bootstrap_servers, security_protocol and the login",
        ) from error
