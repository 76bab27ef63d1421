"""The service on a real Kafka: after being killed it continues where it was, and faults are reported in one line."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka import KafkaProducer

from sinks.clock import wall_ms
from tests.e2e.service import Service, running, signals
from tests.services.kafka import Kafka
from tests.streaming.spark.packets import event, ndjson
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("spark_jars")]

QUEUE = 'scope_id="",queue="orders"'


def config_for(kafka: Kafka, topic: str) -> dict[str, Any]:
    """Return the configuration of a service that reads `topic` from its beginning."""
    return {
        "spark": {"master": "local[2]", "trigger_interval_s": 0, "checkpoint_dir": "checkpoint", "driver_memory": "1g"},
        "source": {"kafka": {"bootstrap_servers": [kafka.bootstrap], "topics": [topic]}},
        "signal_log": {"path": "signals.ndjson"},
        "quarantine": {"path": "quarantine.ndjson"},
        "log": {"level": "debug", "format": "json"},
    }


class Sender:
    """Sends events without a pause: each message is sent, received and deleted. Some records are invalid."""

    def __init__(self, producer: Any, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send_all, daemon=True)
        self.messages = 0
        self.bad = 0

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send inside the with block; at its end, wait until everything has been sent."""
        self._thread.start()
        try:
            yield
        finally:
            self.finish()

    def finish(self) -> None:
        """Stop sending and wait until the broker has everything."""
        self._stop.set()
        self._thread.join()
        self._producer.flush()

    def _send_all(self) -> None:
        while not self._stop.wait(0.02):
            now = wall_ms()
            lives = []
            for n in range(self.messages, self.messages + 25):
                lives += [
                    event("sent", f"m{n}", now, sent_at=now),
                    event("received", f"m{n}", now + 1, sent_at=now, receive_count=1, invisible_until=now + 30_000),
                    event("deleted", f"m{n}", now + 2),
                ]
            record = ndjson(*lives)
            if self.messages % 500 == 0:
                record += b'{"v": 1, "type": "unheard of"}\n'
                self.bad += 1
            self._producer.send(self._topic, record, partition=self.messages % 2)
            self.messages += 25


@pytest.fixture
def producer(kafka: Kafka) -> Iterator[Any]:
    """A kafka-python producer."""
    made = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    yield made
    made.close()


def total(metrics: dict[str, float], name: str) -> float:
    """Return a total of the queue that the sender uses."""
    return metrics.get(f'queuewatch_messages_{name}_total{{system="aws_sqs",{QUEUE}}}', 0)


def test_a_killed_service_continues_where_it_was(kafka: Kafka, producer: Any, tmp_path: Path) -> None:
    """Nothing is lost or counted twice, no firing signal is forgotten or announced again, and the final stop is clean."""
    topic = kafka.create_topic(partitions=2)
    config = config_for(kafka, topic)
    sender = Sender(producer, topic)
    now = wall_ms()
    poison = event("received", "poisoned", now, queue="bad", sent_at=now, receive_count=3, invisible_until=now + 10)
    producer.send(topic, ndjson(poison)).get(10)
    with sender.sending():
        with running(tmp_path, config) as first:
            first.wait(
                lambda m: total(m, "deleted") > 0 and 'queuewatch_signals{system="aws_sqs",scope_id="",queue="bad"' in str(m)
            )
            # This is in the middle of a batch, because batches run without a pause.
            time.sleep(0.7)
            first.kill()
        seen = signals(tmp_path)
        assert [line["signal"] for line in seen] == ["PoisonMessage"]
        with running(tmp_path, config) as second:
            second.wait(lambda m: total(m, "deleted") > 0)
            time.sleep(0.4)
            second.kill()
        with running(tmp_path, config) as third:
            third.wait(lambda m: total(m, "deleted") > 0)
            sender.finish()
            last = third.wait(lambda m: total(m, "deleted") == sender.messages)
            explained = third.get("/api/v1/explain/poisoned", "text/plain")
            assert third.stop() == 0, third.words()
    assert (total(last, "sent"), total(last, "received")) == (sender.messages, sender.messages)
    assert last['queuewatch_events_total{result="accepted"}'] == 3 * sender.messages + 1
    assert last['queuewatch_events_total{result="invalid"}'] == sender.bad
    assert 'queuewatch_events_invalid_total{reason="unknown_type"}' in last
    assert signals(tmp_path) == seen
    assert "PoisonMessage" in explained
    kept = [json.loads(line) for line in (tmp_path / "quarantine.ndjson").read_text().splitlines()]
    assert Counter(line["origin"] for line in kept).most_common(1)[0][1] == 1
    assert len(kept) == sender.bad
    assert kept[0]["origin"].startswith(f"{topic}/")
    _assert_a_clean_stop(third)


def _assert_a_clean_stop(service: Service) -> None:
    """The running batch was finished and committed, and the log has no failure."""
    assert service.said("stopping")
    assert service.said("stopped")
    assert not [line for line in service.log if "ERROR" in line or "Traceback" in line or '"level": "error"' in line], (
        service.words()
    )


def test_records_deleted_before_they_were_read_are_counted_and_stop_nothing(kafka: Kafka, producer: Any, tmp_path: Path) -> None:
    """Kafka's retention was faster than the job, which logs an error with the number of lost records."""
    from kafka import KafkaAdminClient, TopicPartition

    topic = kafka.create_topic()
    config = config_for(kafka, topic)

    def send(prefix: str, count: int) -> None:
        now = wall_ms()
        for n in range(count):
            producer.send(topic, ndjson(event("sent", f"{prefix}{n}", now, sent_at=now)))
        producer.flush()

    send("a", 3)
    with running(tmp_path, config) as service:
        service.wait(lambda m: total(m, "sent") == 3)
        service.stop()
    send("gone", 5)
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    admin.delete_records({TopicPartition(topic, 0): 8})
    admin.close()
    send("b", 2)
    with running(tmp_path, config) as service:
        service.wait(lambda m: total(m, "sent") == 5)
        (lost,) = until(lambda: service.said("kafka_records_lost"), "the loss is logged", every_s=0.1)
    assert (sum(lost["lost"].values()), lost["level"]) == (5, "error")


@pytest.mark.parametrize(
    ("topic", "hint"),
    [("queuewatch-event", "Did you mean queuewatch-events? Otherwise create it"), ("something-else", "Create it")],
)
def test_a_missing_topic_is_named(kafka: Kafka, tmp_path: Path, topic: str, hint: str) -> None:
    """The error comes before Spark starts and has the nearest topic name and the command that creates the topic."""
    _ensure(kafka, "queuewatch-events")
    path = tmp_path / "queuewatch.yaml"
    path.write_text(yaml.safe_dump({**config_for(kafka, topic), "http": {"port": 0}}))
    command = [sys.executable, "-m", "streaming.cli.main", "run", "--config", str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith(f"queuewatch: the Kafka topic {topic} does not exist at {kafka.bootstrap}")
    assert f"{hint}: kafka-topics.sh --bootstrap-server {kafka.bootstrap} --create --topic {topic}" in last


def _ensure(kafka: Kafka, topic: str) -> None:
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    try:
        if topic not in admin.list_topics():
            kafka.create_topic(topic)
    finally:
        admin.close()
