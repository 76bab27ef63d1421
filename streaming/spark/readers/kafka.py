"""Telemetry records from Kafka topics."""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, UnsupportedCodecError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from streaming.config.source import KafkaSource
from streaming.errors import SourceUnavailable
from streaming.health.losses import ANSWER_WITHIN_MS

_SAMPLED_PER_PARTITION: Final = 50
_ASSUMED_RECORD_BYTES: Final = 8 * 1024
_SAMPLED_WITHIN_S: Final = 5.0
_FEWEST_RECORDS, _MOST_RECORDS = 100, 2_000_000

# Few large fetches instead of many small ones: records of many events are large, records of one event are many.
_CONSUMER_OPTIONS: Final = {
    "max.poll.records": "50000",
    "fetch.max.bytes": str(64 * 1024 * 1024),
    "max.partition.fetch.bytes": str(16 * 1024 * 1024),
    "receive.buffer.bytes": str(1024 * 1024),
    # Spark asks for the end of a partition after each poll, and the broker answers only once it has answered the fetch that the
    # client sent ahead. By default it waits half a second for new records: longer than all else a batch of few events takes.
    "fetch.max.wait.ms": "5",
    # What a sender took back did not happen: such events would be messages that nobody ever receives.
    "isolation.level": "read_committed",
}

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Topics:
    """The brokers' information about the topics before the job starts."""

    partitions: int
    record_bytes: float | None
    """Mean size of the latest records; None when there are none, or when this Python cannot decompress them."""
    found: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    """Every partition: topic and number."""


def survey(source: KafkaSource) -> Topics:
    """Ask the brokers whether all topics exist, and how large their records are.

    Raises `SourceUnavailable` when no broker answers, the login is refused, or a topic does not exist.
    """
    servers = ", ".join(source.bootstrap_servers)
    try:
        consumer = KafkaConsumer(
            **source.python_options(),
            client_id="queuewatch-survey",
            group_id=None,
            enable_auto_commit=False,
            bootstrap_timeout_ms=ANSWER_WITHIN_MS,
        )
    except (KafkaError, OSError, ValueError) as error:
        raise SourceUnavailable(
            f"no Kafka broker answers at {servers} ({_words(error)})",
            "Check source.kafka.bootstrap_servers, security_protocol and the login, and that a broker runs there",
        ) from error
    try:
        partitions = [_partitions(consumer, topic, servers) for topic in source.topics]
        flat = [partition for of_topic in partitions for partition in of_topic]
        found = tuple((partition.topic, partition.partition) for partition in flat)
        return Topics(len(flat), _sampled(consumer, flat, source), found)
    except (KafkaError, OSError) as error:
        raise SourceUnavailable(
            f"Kafka at {servers} does not say what is in {', '.join(source.topics)} ({_words(error)})",
            "Check that the brokers are reachable under the names they advertise, and that this user may read",
        ) from error
    finally:
        consumer.close()


def read_kafka(
    spark: SparkSession, source: KafkaSource, topics: Topics, starting: Mapping[tuple[str, int], int] | None = None
) -> DataFrame:
    """Return the stream of record values, with `topic/partition` and offset. `starting` defines where a new checkpoint begins."""
    reader = (
        spark.readStream.format("kafka")
        .option("subscribe", ",".join(source.topics))
        .option("startingOffsets", _starting(topics, starting) if starting else source.starting_offsets)
        # Stopping would not restore records that were deleted before they were read; they are counted and logged.
        .option("failOnDataLoss", "false")
        .option("maxOffsetsPerTrigger", records_per_trigger(source, topics))
    )
    cores = spark.sparkContext.defaultParallelism
    if topics.partitions < cores:
        reader = reader.option("minPartitions", cores)
    for name, value in {**_CONSUMER_OPTIONS, **source.options, **source.java_options()}.items():
        reader = reader.option(f"kafka.{name}", value)
    return reader.load().select(
        "value",
        fn.concat("topic", fn.lit("/"), fn.col("partition").cast("string")).alias("origin"),
        fn.col("offset").alias("position"),
    )


def _starting(topics: Topics, starting: Mapping[tuple[str, int], int]) -> str:
    """Return starting offsets for every partition, as Spark requires; -2 stands for the start of a new one."""
    body: dict[str, dict[str, int]] = {}
    for topic, number in topics.found:
        body.setdefault(topic, {})[str(number)] = starting.get((topic, number), -2)
    return json.dumps(body)


def records_per_trigger(source: KafkaSource, topics: Topics) -> int:
    """Return the most records per batch that keep it within `max_bytes_per_trigger`."""
    if source.max_records_per_trigger is not None:
        return source.max_records_per_trigger
    size = topics.record_bytes or _ASSUMED_RECORD_BYTES
    return max(_FEWEST_RECORDS, min(_MOST_RECORDS, round(source.max_bytes_per_trigger / size)))


def _partitions(consumer: Any, topic: str, servers: str) -> list[TopicPartition]:
    found = consumer.partitions_for_topic(topic)
    if found:
        return [TopicPartition(topic, partition) for partition in sorted(found)]
    existing = sorted(name for name in consumer.topics() if not name.startswith("__"))
    close = difflib.get_close_matches(topic, existing, n=1)
    hint = f"Did you mean {close[0]}? Otherwise create it" if close else "Create it"
    raise SourceUnavailable(
        f"the Kafka topic {topic} does not exist at {servers}, or this user may not see it",
        f"{hint}: kafka-topics.sh --bootstrap-server {servers.partition(',')[0]} --create --topic {topic}",
    )


def _sampled(consumer: Any, partitions: Sequence[TopicPartition], source: KafkaSource) -> float | None:
    try:
        return _record_bytes(consumer, partitions)
    except UnsupportedCodecError as error:
        # Python's client needs a library for each compression but gzip. Java's, which reads the records, brings its own.
        if source.max_records_per_trigger is None:
            _log.warning(
                "records_not_sampled",
                reason=_words(error),
                effect=f"a batch is limited to {records_per_trigger(source, Topics(len(partitions), None))} records",
                fix="set source.kafka.max_records_per_trigger to the number that suits their size",
            )
        return None


def _record_bytes(
    consumer: Any, partitions: Sequence[TopicPartition], clock_s: Callable[[], float] = time.monotonic
) -> float | None:
    """Return the mean value size of the last few records of each partition, or of those that arrive in time."""
    first, end = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    filled = [p for p in partitions if end[p] > first[p]]
    if not filled:
        return None
    consumer.assign(filled)
    for partition in filled:
        consumer.seek(partition, max(first[partition], end[partition] - _SAMPLED_PER_PARTITION))
    sizes: list[int] = []
    until_s = clock_s() + _SAMPLED_WITHIN_S
    for batch in (consumer.poll(timeout_ms=1_000) for _ in range(2 * len(filled))):
        sizes += [len(record.value or b"") for records in batch.values() for record in records]
        if len(sizes) >= _SAMPLED_PER_PARTITION * len(filled) or (sizes and not batch) or clock_s() >= until_s:
            break
    return max(1.0, sum(sizes) / len(sizes)) if sizes else None


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
