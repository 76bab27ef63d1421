"""The Kafka source is surveyed before the job starts, and can be read together with a spool folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from pyspark.sql import SparkSession

from sinks.clock import wall_ms
from streaming.config.source import KafkaSource, Sources, SpoolSource
from streaming.errors import SourceUnavailable
from streaming.spark.readers import kafka as reader
from streaming.spark.readers.kafka import Topics, records_per_trigger, survey
from tests.services.kafka import Kafka
from tests.streaming.spark.live import Live
from tests.streaming.spark.packets import event, ndjson
from tests.streaming.spark.test_pipeline import messages, sent_total, telemetry_of_an_outage


def source(kafka: Kafka, *topics: str, **others: object) -> KafkaSource:
    """Return a source on the test's broker."""
    return KafkaSource.model_validate({"bootstrap_servers": [kafka.bootstrap], "topics": topics, **others})


def send(kafka: Kafka, topic: str, *values: bytes) -> None:
    """Send records to a topic, cycling through its partitions."""
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    for value in values:
        producer.send(topic, value)
    producer.close()


def test_a_survey_counts_partitions_and_measures_the_latest_records(kafka: Kafka) -> None:
    """Older records may have had another size."""
    many, one = kafka.create_topic(partitions=3), kafka.create_topic()
    assert survey(source(kafka, many, one)) == Topics(4, None)
    send(kafka, one, *[b"x" * 10_000] * 100, *[b"x" * 300] * 60)
    assert survey(source(kafka, many, one)) == Topics(4, 300.0)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_a_topic_with_compressed_records_can_be_read(kafka: Kafka, codec: str) -> None:
    """Python's client reads no compression but gzip without more libraries; Spark, which reads the topic, does."""
    topic = f"compressed-{codec}"
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1, topic_configs={"compression.type": codec})])
    admin.close()
    send(kafka, topic, b"x" * 100)
    found = survey(source(kafka, topic))
    assert found.partitions == 1
    assert found.record_bytes in (100, None)


class Silent:
    """A consumer of many partitions that have records, none of which arrives; `now_s` is its clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.beginning_offsets = lambda partitions: dict.fromkeys(partitions, 0)
        self.end_offsets = lambda partitions: dict.fromkeys(partitions, 1)
        self.assign = self.seek = lambda *_: None

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[object]]:
        """Wait in vain."""
        self.now_s += timeout_ms / 1000
        return {}


def test_a_survey_does_not_wait_long_for_records_that_do_not_arrive() -> None:
    """However many partitions there are; the start of the job waits for it."""
    consumer = Silent()
    partitions = [TopicPartition("t", number) for number in range(200)]
    assert reader._record_bytes(consumer, partitions, lambda: consumer.now_s) is None
    assert consumer.now_s == 5


def test_a_topic_that_does_not_exist_is_refused(kafka: Kafka) -> None:
    """It is refused even if the other topics exist."""
    there = kafka.create_topic()
    with pytest.raises(SourceUnavailable, match=f"the Kafka topic {there}x does not exist") as caught:
        survey(source(kafka, there, f"{there}x"))
    assert f"Did you mean {there}?" in caught.value.fix


@pytest.mark.parametrize(
    ("record_bytes", "configured", "records"),
    [
        pytest.param(100.0, None, 100_000, id="small records, many"),
        pytest.param(100_000.0, None, 100, id="large records, few"),
        pytest.param(1e9, None, 100, id="never fewer than some"),
        pytest.param(0.001, None, 2_000_000, id="never more than memory would bear"),
        pytest.param(None, None, 1_221, id="nothing is known: assume kilobytes"),
        pytest.param(100.0, 7, 7, id="as configured"),
    ],
)
def test_a_batch_is_limited_in_bytes_although_spark_counts_records(
    record_bytes: float | None, configured: int | None, records: int
) -> None:
    """The limit uses the measured mean record size."""
    limits = {"max_bytes_per_trigger": 10_000_000, "max_records_per_trigger": configured}
    kafka = KafkaSource.model_validate({"bootstrap_servers": ["a:1"], "topics": ["t"], **limits})
    assert records_per_trigger(kafka, Topics(1, record_bytes)) == records


@pytest.mark.usefixtures("spark_jars")
def test_kafka_and_a_spool_folder_are_read_together(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """A message sent in one and deleted in the other counts once; tombstones are invalid, bad records give offsets."""
    topic = kafka.create_topic(partitions=2)
    live = Live(spark, tmp_path)
    live.sources = Sources(kafka=source(kafka, topic), spool=SpoolSource(folder=str(live.spool)))
    assert live.sources.kafka is not None
    send(kafka, topic, ndjson(*messages("k", 3)), b"nonsense")
    live.topics = survey(live.sources.kafka)
    with live.running() as query:
        live.wait(lambda s: sent_total(s) == 3, query)
        live.send(*messages("s", 2), event("deleted", "k-0", wall_ms()))
        last = live.wait(lambda s: sent_total(s) == 5, query)
    (orders,) = [queue for queue in last.queues if queue.queue == "orders"]
    assert orders.totals["deleted"] == 1
    assert orders.tracked == 4
    assert [bad.origin.split("@")[0] in (f"{topic}/0", f"{topic}/1") for bad in live.quarantined] == [True]


@pytest.mark.usefixtures("spark_jars")
def test_records_of_an_aborted_transaction_are_not_read(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """A sender that took them back sends them again: the first copies would be messages that nobody receives."""
    topic = kafka.create_topic()
    live = Live(spark, tmp_path)
    live.sources = Sources(kafka=source(kafka, topic))
    assert live.sources.kafka is not None
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=topic)
    producer.init_transactions()
    for prefix, end in (("a", producer.abort_transaction), ("c", producer.commit_transaction)):
        producer.begin_transaction()
        producer.send(topic, ndjson(*messages(prefix, 3)))
        end()
    producer.close()
    live.topics = survey(live.sources.kafka)
    with live.running() as query:
        last = live.wait(lambda s: sent_total(s) > 0, query)
    assert sent_total(last) == 3
    assert last.events_total["accepted"] == 3


@pytest.mark.usefixtures("spark_jars")
def test_a_backlog_in_kafka_is_judged_at_its_own_time(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """The consumers worked 20 minutes ago and work now; between the two batches no signal fires."""
    now = wall_ms()
    then = now - 1_200_000
    topic = kafka.create_topic()
    live = Live(spark, tmp_path)
    live.sources = Sources(kafka=source(kafka, topic, max_records_per_trigger=1))
    assert live.sources.kafka is not None
    send(kafka, topic, *telemetry_of_an_outage(then, now))
    live.topics = survey(live.sources.kafka)
    with live.running() as query:
        live.wait(lambda s: any(queue.totals["deleted"] == 3 for queue in s.queues), query)
        live.wait(lambda s: s.at_ms > now, query)
    assert next(s for s in live.snapshots if s.queues).at_ms == then + 1
    assert live.changes == []
