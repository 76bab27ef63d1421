"""An application on a real SQS engine, watched, over a real Kafka, through Spark, to `/metrics` and the signal log, by id."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sources.client import unwatch, watch
from sources.collect.runner import run_collector
from tests.e2e.service import running
from tests.services.elasticmq import ElasticMQ
from tests.services.kafka import Kafka
from tests.services.sqs import client

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.usefixtures("spark_jars")]

RECEIVES, VISIBILITY_S = 3, 2


class Application:
    """A poison message beside good ones, a dead-letter reader, and a FIFO group whose head is held while another flows."""

    def __init__(self, endpoint: str, telemetry: str) -> None:
        self.sqs = client(endpoint)
        watch(self.sqs, to=telemetry, consumer="worker-1")
        self.urls = self._create()
        self.poison_id = self._send("orders", "poison")
        self.head_id = self._send("payments.fifo", "held", MessageGroupId="stuck", MessageDeduplicationId="held")
        for n in range(3):
            self._send("payments.fifo", f"behind-{n}", MessageGroupId="stuck", MessageDeduplicationId=f"behind-{n}")
        self.good = 0

    def _create(self) -> dict[str, str]:
        urls = {"orders-dlq": self.sqs.create_queue(QueueName="orders-dlq")["QueueUrl"]}
        arn = self.sqs.get_queue_attributes(QueueUrl=urls["orders-dlq"], AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": RECEIVES})
        attributes = {"VisibilityTimeout": str(VISIBILITY_S), "RedrivePolicy": redrive}
        urls["orders"] = self.sqs.create_queue(QueueName="orders", Attributes=attributes)["QueueUrl"]
        fifo = {"FifoQueue": "true", "VisibilityTimeout": "600"}
        urls["payments.fifo"] = self.sqs.create_queue(QueueName="payments.fifo", Attributes=fifo)["QueueUrl"]
        return urls

    def _send(self, queue: str, body: str, **more: str) -> str:
        return str(self.sqs.send_message(QueueUrl=self.urls[queue], MessageBody=body, **more)["MessageId"])

    def step(self, stop: threading.Event) -> None:
        """One round of everybody's work."""
        self.good += 1
        self._send("orders", f"good-{self.good}")
        self._send("payments.fifo", f"flows-{self.good}", MessageGroupId="flows", MessageDeduplicationId=f"flows-{self.good}")
        for queue in ("orders", "payments.fifo", "orders-dlq"):
            # One at a time: a batch would hold the head together with those behind it.
            answer = self.sqs.receive_message(QueueUrl=self.urls[queue], MaxNumberOfMessages=1)
            for message in answer.get("Messages", []):
                if message["Body"] not in ("poison", "held"):
                    self.sqs.delete_message(QueueUrl=self.urls[queue], ReceiptHandle=message["ReceiptHandle"])
        stop.wait(0.5)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Open until the end of the block."""
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                self.step(stop)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            unwatch(self.sqs)


@contextmanager
def collecting(endpoint: str, telemetry: str) -> Iterator[None]:
    """The attribute collector beside it."""
    stop = threading.Event()
    config = {"endpoint_url": endpoint, "interval_s": 1, "discovery_interval_s": 5}
    thread = threading.Thread(target=run_collector, args=("sqs", config, telemetry, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)


def config_for(kafka: Kafka, topic: str) -> dict[str, Any]:
    """The service, with limits of seconds for a test of seconds."""
    return {
        "spark": {"master": "local[2]", "trigger_interval_s": 0.5, "checkpoint_dir": "checkpoint", "driver_memory": "1g"},
        "source": {"kafka": {"bootstrap_servers": [kafka.bootstrap], "topics": [topic]}},
        "signal_log": {"path": "signals.ndjson"},
        "queues": [{"pattern": "*", "thresholds": {"group_stuck_min_s": 8, "group_stuck_visibility_factor": 0}}],
        "log": {"level": "info", "format": "json"},
    }


def test_poison_dead_letter_and_stuck_group_are_named(
    tmp_path: Path, kafka: Kafka, elasticmq: ElasticMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way, with nothing in between replaced."""
    for name, value in (("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "x"), ("AWS_DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(name, value)
    topic = kafka.create_topic(partitions=2)
    telemetry = f"kafka://{kafka.bootstrap}/{topic}"
    with running(tmp_path, config_for(kafka, topic)) as service:
        application = Application(elasticmq.endpoint, telemetry)
        with application.working(), collecting(elasticmq.endpoint, telemetry):
            metrics = service.wait(
                lambda found: (
                    any("stuck_groups" in name and 'queue="payments.fifo"' in name and n == 1 for name, n in found.items())
                    and any("dead_lettered_total" in name and 'queue="orders"' in name and n == 1 for name, n in found.items())
                )
            )
            suspects = json.loads(service.get("/api/v1/queues/payments.fifo/messages"))
        assert service.stop() == 0
    assert application.head_id in json.dumps(suspects)
    assert not any(application.poison_id in name or application.head_id in name for name in metrics)
    log = [json.loads(line) for line in (tmp_path / "signals.ndjson").read_text().splitlines()]
    fired = {line["signal"]: line for line in reversed(log) if line["status"] == "firing"}
    assert fired["PoisonMessage"]["message_id"] == application.poison_id
    assert fired["PoisonMessage"]["evidence"]["max_receive_count"] == RECEIVES
    assert fired["DeadLetterArrived"]["message_id"] == application.poison_id
    assert fired["DeadLetterArrived"]["queue"] == "orders-dlq"
    assert fired["DeadLetterArrived"]["evidence"]["known_by"] == "first_receive"
    assert fired["GroupStuck"]["group"] == "stuck"
    assert fired["GroupStuck"]["evidence"]["head_message_id"] == application.head_id
    assert fired["GroupStuck"]["evidence"]["reason"] == "held_head"
