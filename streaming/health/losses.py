"""Count Kafka records that were deleted before they were read, by comparing what Spark planned with what was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from streaming.checkpoint.offset_log import Offsets, Partition, kafka_offsets
from streaming.config.source import KafkaSource
from streaming.folder import Folder

ANSWER_WITHIN_MS: Final = 6_000
"""How long brokers get to answer the first request."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Losses:
    """The losses of one batch."""

    lost: dict[Partition, int] = field(default_factory=dict)
    """Records deleted before they were read."""
    reset: dict[Partition, int] = field(default_factory=dict)
    """Partitions that were reset because their topic was deleted and recreated, with the offset at which Spark resumed. Earlier
    records of the new topic have not been read."""


class KafkaLosses:
    """Compares each batch's range of offsets with what was read of it.

    `earliest` asks the brokers for the first offset that still exists in each partition. Offsets without a record beyond it
    belong to a compacted topic or to transaction markers, and nothing is lost. It returns None when no broker answers; missing
    records then count as lost, because a loss must never go unnoticed.
    """

    def __init__(self, offsets: Folder, earliest: Callable[[Iterable[Partition]], Offsets | None]) -> None:
        self._offsets = offsets
        self._earliest = earliest

    def of(self, batch_id: int, read: Mapping[str, int]) -> Losses:
        """Return what batch `batch_id` lost. `read` counts its records by `topic/partition`."""
        start, end = self._logged(batch_id - 1), self._logged(batch_id)
        if not start or not end:
            return Losses()
        reset = {partition: at for partition, at in end.items() if at < start.get(partition, 0)}
        topics = {topic for topic, _ in start}
        missing = {}
        for (topic, number), at in end.items():
            # A new partition of a known topic starts at zero; the start of a new topic is unknown.
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


class Brokers:
    """Asks brokers for the start of partitions; connects on first use."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self._consumer: Any = None

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int] | None:
        """Return the first offset that still exists in each partition; None when no broker answers."""
        asked = [TopicPartition(topic, number) for topic, number in partitions]
        try:
            if self._consumer is None:
                self._consumer = KafkaConsumer(
                    **self._source.python_options(),
                    client_id="queuewatch-losses",
                    group_id=None,
                    enable_auto_commit=False,
                    bootstrap_timeout_ms=ANSWER_WITHIN_MS,
                )
            found = self._consumer.beginning_offsets(asked, timeout_ms=ANSWER_WITHIN_MS)
        except (KafkaError, OSError, ValueError) as error:
            _log.warning("brokers_not_asked", error=str(error) or type(error).__name__, effect="what is missing counts as lost")
            self.close()
            return None
        return {(partition.topic, partition.partition): at for partition, at in found.items()}

    def close(self) -> None:
        """Close the connection."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


def named(partition: Partition) -> str:
    """Name a partition as an event's origin does."""
    return f"{partition[0]}/{partition[1]}"


NOTHING: Final = Losses()
