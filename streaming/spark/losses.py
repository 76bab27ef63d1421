"""Which Kafka records were gone before they were read: per partition, from what Spark planned and what was really read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from streaming.config.source import KafkaSource
from streaming.spark.folder import Folder
from streaming.spark.readers.kafka import ANSWER_WITHIN_MS

Partition = tuple[str, int]
"""Topic and number."""
Offsets = Mapping[Partition, int]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Losses:
    """Of one batch."""

    lost: dict[Partition, int] = field(default_factory=dict)
    """Records that were gone before they were read."""
    reset: dict[Partition, int] = field(default_factory=dict)
    """Partitions that began anew (their topic was deleted and created again), with the offset Spark went back to. What is
    before it in the new topic has not been read."""


class KafkaLosses:
    """Compares each batch's range of offsets with what was read of it.

    `earliest` asks the brokers from which offset partitions are still there: offsets without a record are otherwise those of
    a compacted topic, or the marks of transactions, and nothing is lost. It answers None when no broker does; then what is
    missing counts as lost, for that must never pass in silence.
    """

    def __init__(self, offsets: Folder, earliest: Callable[[Iterable[Partition]], Offsets | None]) -> None:
        self._offsets = offsets
        self._earliest = earliest

    def of(self, batch_id: int, read: Mapping[str, int]) -> Losses:
        """What batch `batch_id` lost. `read` counts its records by `topic/partition`."""
        start, end = self._logged(batch_id - 1), self._logged(batch_id)
        if not start or not end:
            return Losses()
        reset = {partition: at for partition, at in end.items() if at < start.get(partition, 0)}
        topics = {topic for topic, _ in start}
        missing = {}
        for (topic, number), at in end.items():
            # A partition that was added to a topic begins at zero; a topic that was added, wherever it may.
            begins = start.get((topic, number), 0 if topic in topics else at)
            without_record = at - begins - read.get(f"{topic}/{number}", 0)
            if without_record > 0:
                missing[topic, number] = (begins, without_record)
        earliest = self._earliest(missing) if missing else {}
        lost = {
            partition: n
            for partition, (begins, without_record) in missing.items()
            if (n := _lost(begins, end[partition], without_record, None if earliest is None else earliest.get(partition))) > 0
        }
        return Losses(lost, reset)

    def _logged(self, batch_id: int) -> dict[Partition, int]:
        content = self._offsets.read(str(batch_id))
        return {} if content is None else kafka_offsets(content)


def _lost(begins: int, end: int, without_record: int, earliest: int | None) -> int:
    return without_record if earliest is None else min(without_record, max(0, min(earliest, end) - begins))


def kafka_offsets(logged: bytes) -> dict[Partition, int]:
    """The offsets of the Kafka source in one of Spark's logs of a batch; none where there is no such source."""
    for line in logged.decode().splitlines()[2:]:
        found = _of_line(line)
        if found is not None:
            return found
    return {}


def with_offsets(logged: bytes, changed: Offsets) -> bytes:
    """The same log with other offsets for some partitions of its Kafka source."""
    lines = logged.decode().splitlines()
    for number, line in enumerate(lines[2:], start=2):
        found = _of_line(line)
        if found is not None:
            body: dict[str, dict[str, int]] = {}
            for (topic, partition), at in {**found, **changed}.items():
                body.setdefault(topic, {})[str(partition)] = at
            lines[number] = json.dumps(body, separators=(",", ":"))
    return "\n".join(lines).encode()


def _of_line(line: str) -> dict[Partition, int] | None:
    try:
        body = json.loads(line)
        if not isinstance(body, dict) or not body:
            return None
        return {(topic, int(partition)): int(at) for topic, of_topic in body.items() for partition, at in of_topic.items()}
    except (ValueError, AttributeError, TypeError):
        return None


class Brokers:
    """Asks where partitions begin; connected to when there is something to ask."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self._consumer: Any = None

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int] | None:
        """From which offset they are still there; None when no broker says."""
        asked = [TopicPartition(topic, number) for topic, number in partitions]
        try:
            if self._consumer is None:
                self._consumer = KafkaConsumer(
                    **self._source.python_options(),
                    client_id="queuewatch-losses",
                    group_id=None,
                    enable_auto_commit=False,
                    bootstrap_timeout_ms=ANSWER_WITHIN_MS,
                    default_api_timeout_ms=ANSWER_WITHIN_MS,
                )
            found = self._consumer.beginning_offsets(asked)
        except (KafkaError, OSError, ValueError) as error:
            _log.warning("brokers_not_asked", error=str(error) or type(error).__name__, effect="what is missing counts as lost")
            self.close()
            return None
        return {(partition.topic, partition.partition): at for partition, at in found.items()}

    def close(self) -> None:
        """Let go of the connection."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


def named(partition: Partition) -> str:
    """As an event's origin names it."""
    return f"{partition[0]}/{partition[1]}"


NOTHING: Final = Losses()
