"""Kafka records that were deleted before they were read are counted per partition, and nothing else is."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import NewPartitions

from streaming.checkpoint.offset_log import Offsets, kafka_offsets, with_offsets
from streaming.config.source import KafkaSource
from streaming.folder import LocalFolder
from streaming.health.losses import Brokers, KafkaLosses, Losses
from tests.e2e.service import running
from tests.services.kafka import Kafka
from tests.streaming.spark.packets import event, ndjson
from tests.waiting import until

OLD, NEW = {"t": {"0": 100, "1": 50}}, {"t": {"0": 180, "1": 90}}


def logged(folder: Path, batch_id: int, offsets: dict[str, dict[str, int]]) -> None:
    """Write an entry as Spark does: version, the batch's own data, then one line per source."""
    (folder / str(batch_id)).write_text("\n".join(["v1", '{"batchTimestampMs":1}', "5", json.dumps(offsets), '{"logOffset":1}']))


@pytest.mark.parametrize(
    ("start", "end", "read", "earliest", "expected"),
    [
        pytest.param(OLD, NEW, [80, 40], None, Losses(), id="all read"),
        pytest.param(OLD, NEW, [50, 40], [130, 0], Losses({("t", 0): 30}), id="the first were aged out"),
        pytest.param(OLD, NEW, [0, 40], [500, 0], Losses({("t", 0): 80}), id="all of the range was aged out"),
        pytest.param(OLD, NEW, [70, 40], [0, 0], Losses(), id="marks of transactions, or a compacted topic"),
        pytest.param(OLD, NEW, [70, 40], [104, 0], Losses({("t", 0): 4}), id="both"),
        pytest.param(OLD, NEW, [70, 30], None, Losses({("t", 0): 10, ("t", 1): 10}), id="no broker answers: never silent"),
        pytest.param(OLD, {"t": {"0": 180, "1": 90, "2": 7}}, [80, 40, 7], None, Losses(), id="a partition was added"),
        pytest.param(
            OLD, {"t": {"0": 180, "1": 90, "2": 7}}, [50, 40, 7], [130, 0, 0], Losses({("t", 0): 30}),
            id="added, and another lost: they do not cancel out",
        ),
        pytest.param(OLD, {**NEW, "u": {"0": 9_000}}, [80, 40], None, Losses(), id="a topic was added, long in use"),
        pytest.param(OLD, {"t": {"0": 20, "1": 90}}, [0, 40], [0, 0], Losses({}, {("t", 0): 20}), id="created again"),
        pytest.param(
            OLD, {"t": {"0": 20, "1": 90}}, [0, 0], [0, 70], Losses({("t", 1): 20}, {("t", 0): 20}),
            id="one created again, another aged out: they do not cancel out",
        ),
        pytest.param(OLD, {"t": {"1": 90}}, [0, 40], None, Losses(), id="a partition is gone"),
    ],
)  # fmt: skip
def test_losses_are_counted_per_partition(
    tmp_path: Path,
    start: dict[str, dict[str, int]],
    end: dict[str, dict[str, int]],
    read: list[int],
    earliest: list[int] | None,
    expected: Losses,
) -> None:
    """They follow from the range Spark planned, the records that arrived, and the brokers' earliest offsets."""
    logged(tmp_path, 6, start)
    logged(tmp_path, 7, end)

    def ask(_: object) -> Offsets | None:
        return None if earliest is None else {("t", number): at for number, at in enumerate(earliest)}

    losses = KafkaLosses(LocalFolder(tmp_path), ask)
    assert losses.of(7, {f"t/{number}": n for number, n in enumerate(read)}) == expected
    assert losses.of(6, {}) == Losses()


def test_the_mark_of_a_transaction_is_not_a_loss_and_a_deleted_record_is(kafka: Kafka, tmp_path: Path) -> None:
    """A real broker reports where a partition begins; without its answer, every mark would count as a lost record."""
    topic = kafka.create_topic()
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(3):
        producer.send(topic, b"{}")
    producer.commit_transaction()
    producer.close()
    for batch_id, at in ((0, 0), (1, 4)):
        logged(tmp_path, batch_id, {topic: {"0": at}})
    brokers = Brokers(KafkaSource.model_validate({"bootstrap_servers": [kafka.bootstrap], "topics": [topic]}))
    losses = KafkaLosses(LocalFolder(tmp_path), brokers.earliest)
    assert losses.of(1, {f"{topic}/0": 3}) == Losses()
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    admin.delete_records({TopicPartition(topic, 0): 2})
    admin.close()
    assert losses.of(1, {f"{topic}/0": 1}) == Losses({(topic, 0): 2})
    assert brokers.earliest([("no-such-topic", 0)]) is None
    brokers.close()


def test_offsets_are_replaced_in_place(tmp_path: Path) -> None:
    """Everything else in Spark's log stays."""
    logged(tmp_path, 1, NEW)
    before = (tmp_path / "1").read_bytes()
    after = with_offsets(before, {("t", 1): 0})
    assert kafka_offsets(after) == {("t", 0): 180, ("t", 1): 0}
    assert [a == b for a, b in zip(before.splitlines(), after.splitlines(), strict=True)] == [True, True, True, False, True]


def send(kafka: Kafka, topic: str, prefix: str, count: int, partition: int = 0) -> None:
    """Send one record per message."""
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    now = time.time_ns() // 1_000_000
    for number in range(count):
        producer.send(topic, ndjson(event("sent", f"{prefix}-{number}", now, sent_at=now)), partition=partition)
    producer.flush()
    producer.close()


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("spark_jars")
def test_a_recreated_topic_is_read_from_its_beginning(kafka: Kafka, tmp_path: Path) -> None:
    """On a real broker, a partition is added, then the topic is deleted and recreated with fewer records than were read."""
    topic = kafka.create_topic()
    config = {
        "spark": {"master": "local[2]", "trigger_interval_s": 0, "checkpoint_dir": "checkpoint", "driver_memory": "1g"},
        "source": {"kafka": {"bootstrap_servers": [kafka.bootstrap], "topics": [topic]}},
        "restarts": {"max_failures": 50, "longest_wait_s": 1},
        "log": {"format": "json"},
    }
    sent = 'queuewatch_messages_sent_total{system="aws_sqs",scope_id="",queue="orders"}'
    send(kafka, topic, "a", 40)
    with running(tmp_path, config) as service:
        service.wait(lambda m: m.get(sent) == 40)
        admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
        admin.create_partitions({topic: NewPartitions(2)})
        send(kafka, topic, "b", 5, partition=1)
        metrics = service.wait(lambda m: m.get(sent) == 45)
        assert metrics[f'queuewatch_pipeline_lost_records_total{{topic="{topic}",partition="0"}}'] == 0
        admin.delete_topics([topic])
        until(lambda: topic not in admin.list_topics(), "the topic is deleted")
        kafka.create_topic(topic)
        admin.close()
        send(kafka, topic, "c", 7)
        metrics = service.wait(lambda m: m.get(sent) == 52)
        assert service.said("kafka_topic_reset")
        assert service.stop() == 0
