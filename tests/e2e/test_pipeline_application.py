"""From boto3 calls to signals by message id: ElasticMQ, the watched client, the collector, Kafka, Spark."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from queuewatch import watch
from tests.e2e.service import Service, running, signals
from tests.services.elasticmq import ElasticMQ
from tests.services.kafka import Kafka
from tests.services.sqs import client
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("spark_jars")]

VISIBILITY_S = 2
MAX_RECEIVES = 6
"""The message is a suspect from its third receive on, so a slow machine has four windows to report it before it is moved."""


class Application:
    """A shop with orders, one of which cannot be processed, and payments in groups, one of which hangs."""

    def __init__(self, sqs: Any) -> None:
        self.sqs = sqs
        name = uuid.uuid4().hex[:8]
        attributes = {"VisibilityTimeout": str(VISIBILITY_S)}
        self.orders_name, self.payments_name = f"orders-{name}", f"payments-{name}.fifo"
        self.dlq = sqs.create_queue(QueueName=f"{self.orders_name}-dlq")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=self.dlq, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": MAX_RECEIVES})
        self.orders = sqs.create_queue(QueueName=self.orders_name, Attributes={**attributes, "RedrivePolicy": redrive})[
            "QueueUrl"
        ]
        self.payments = sqs.create_queue(
            QueueName=self.payments_name, Attributes={**attributes, "FifoQueue": "true", "ContentBasedDeduplication": "true"}
        )["QueueUrl"]
        self.poison_id: str = sqs.send_message(QueueUrl=self.orders, MessageBody="poison")["MessageId"]
        self.stuck_head_id: str = self._pay("stuck", "hangs")
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._produce, self._fulfil, self._charge)]

    def open(self) -> None:
        """Start producing and consuming."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop producing and consuming."""
        self._stop.set()
        for thread in self._threads:
            thread.join(10)

    def empty_dlq(self) -> list[str]:
        """Delete the dead letters, as a nightly job would, so that depth shows nothing; return their ids."""
        found = self.sqs.receive_message(QueueUrl=self.dlq, MaxNumberOfMessages=10, WaitTimeSeconds=1).get("Messages", [])
        for message in found:
            self.sqs.delete_message(QueueUrl=self.dlq, ReceiptHandle=message["ReceiptHandle"])
        return [message["MessageId"] for message in found]

    def _pay(self, customer: str, body: str) -> str:
        sent = self.sqs.send_message(QueueUrl=self.payments, MessageBody=body, MessageGroupId=customer)
        message_id: str = sent["MessageId"]
        return message_id

    def _produce(self) -> None:
        number = 0
        while not self._stop.wait(0.5):
            number += 1
            self.sqs.send_message(QueueUrl=self.orders, MessageBody=f"order {number}")
            for customer in ("stuck", "other", "third"):
                self._pay(customer, f"payment {number} of {customer}")

    def _fulfil(self) -> None:
        self._consume(self.orders, lambda body: body != "poison")

    def _charge(self) -> None:
        self._consume(self.payments, lambda body: body != "hangs")

    def _consume(self, queue: str, works: Callable[[str], bool]) -> None:
        while not self._stop.is_set():
            got = self.sqs.receive_message(
                QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=1, AttributeNames=["MessageGroupId"]
            )
            failed = set()
            for message in got.get("Messages", []):
                group = message.get("Attributes", {}).get("MessageGroupId")
                # Messages behind a failed one of the same group must wait.
                if works(message["Body"]) and (group is None or group not in failed):
                    self.sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
                else:
                    failed.add(group)


@pytest.fixture
def application(elasticmq: ElasticMQ, kafka: Kafka) -> Iterator[tuple[Application, str]]:
    """The shop with its client watched, and the topic of its telemetry."""
    topic = kafka.create_topic(partitions=2)
    sqs = client(elasticmq.endpoint)
    watched = watch(sqs, to=f"kafka://{kafka.bootstrap}/{topic}", consumer="shop-1")
    shop = Application(sqs)
    yield shop, topic
    shop.close()
    watched.flush()
    watched.unwatch()


@contextmanager
def collecting(folder: Path) -> Iterator[None]:
    """Run `queuewatch collect sqs` beside the service, with the same configuration file."""
    command = [sys.executable, "-m", "streaming.cli.main", "collect", "sqs", "--config", str(folder / "queuewatch.yaml")]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL) as collector:
        try:
            yield
        finally:
            collector.terminate()
            collector.wait(30)


def wait_for_signal(service: Service, folder: Path, **wanted: str) -> dict[str, Any]:
    """Wait for the first line of the signal log that has these values."""

    def line() -> dict[str, Any]:
        for found in signals(folder):
            if all(found.get(name) == value for name, value in wanted.items()):
                return found
        assert service.process.poll() is None, service.words()
        return {}

    return until(
        line, f"a line with {wanted}", within_s=180, every_s=0.2, shows=lambda: f"{signals(folder)}; log: {service.words()}"
    )


def test_every_fault_is_named_by_id(
    application: tuple[Application, str], elasticmq: ElasticMQ, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named are the poison message, its arrival in the dead-letter queue that is then emptied, and the hanging group."""
    for name, word in (("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "x"), ("AWS_DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(name, word)
    shop, topic = application
    config = {
        "spark": {"master": "local[2]", "trigger_interval_s": 0.5, "checkpoint_dir": "checkpoint", "driver_memory": "1g"},
        "source": {"kafka": {"bootstrap_servers": [kafka.bootstrap], "topics": [topic]}},
        "signal_log": {"path": "signals.ndjson"},
        "queues": [{"pattern": "*", "thresholds": {"group_stuck_min_s": 10, "group_stuck_visibility_factor": 1}}],
        "collect": {"sqs": {"endpoint_url": elasticmq.endpoint, "interval_s": 2}},
        "log": {"format": "json"},
    }
    with running(tmp_path, config) as service, collecting(tmp_path):
        service.wait(lambda m: m.get('queuewatch_events_total{result="accepted"}', 0) > 0, within_s=400)
        shop.open()
        poison = wait_for_signal(service, tmp_path, signal="PoisonMessage", message_id=shop.poison_id, status="firing")
        until(shop.empty_dlq, "the dead letter is taken out", within_s=180, every_s=0.2)
        arrived = wait_for_signal(service, tmp_path, signal="DeadLetterArrived", message_id=shop.poison_id, status="firing")
        stuck = wait_for_signal(service, tmp_path, signal="GroupStuck", group="stuck", status="firing")
        resolved = wait_for_signal(service, tmp_path, signal="PoisonMessage", message_id=shop.poison_id, status="resolved")
        age = "queuewatch_oldest_message_age_seconds{"
        metrics = service.wait(
            lambda m: (
                any("dead_lettered_total" in name and value == 1 for name, value in m.items())
                and any(name.startswith(age) and shop.payments_name in name and 'scope="all"' in name for name in m)
            )
        )
        heads = json.loads(service.get(f"/api/v1/queues/{shop.payments_name}/messages"))
        assert service.stop() == 0, service.words()

    assert (poison["queue"], poison["system"]) == (shop.orders_name, "aws_sqs")
    assert poison["evidence"]["summary"]
    assert arrived["queue"] == f"{shop.orders_name}-dlq"
    assert resolved["at"] >= poison["at"]
    assert stuck["queue"] == shop.payments_name
    assert shop.stuck_head_id in json.dumps(stuck)
    assert not [line for line in signals(tmp_path) if line["signal"] == "GroupStuck" and line["group"] != "stuck"]
    assert shop.stuck_head_id in json.dumps(heads)

    def value(name: str, queue: str, **labels: str) -> float:
        wanted = [f'queue="{queue}"', *(f'{label}="{text}"' for label, text in labels.items())]
        (found,) = [v for key, v in metrics.items() if key.startswith(f"{name}{{") and all(part in key for part in wanted)]
        return found

    assert value("queuewatch_stuck_groups", shop.payments_name) == 1
    assert value("queuewatch_signals", shop.payments_name, signal="GroupStuck") == 1
    assert value("queuewatch_oldest_message_age_seconds", shop.payments_name, scope="all") > 5
    assert value("queuewatch_messages_deleted_total", shop.orders_name) > 0
    assert not [key for key in metrics if shop.poison_id in key or shop.stuck_head_id in key]
