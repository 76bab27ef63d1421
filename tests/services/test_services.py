"""Each service answers a real client, so that failures elsewhere are not the service's fault."""

import queue
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest
import stomp
from kafka import KafkaConsumer, KafkaProducer

from tests.services import activemq as activemq_service
from tests.services import prometheus, sqs
from tests.services.activemq import ActiveMQ
from tests.services.elasticmq import ElasticMQ
from tests.services.kafka import Kafka
from tests.services.moto_sqs import MotoSqs
from tests.services.node import Node
from tests.services.process import ServiceUnavailable, free_port, listens, running
from tests.waiting import until


def test_kafka_returns_what_was_sent(kafka: Kafka) -> None:
    topic = kafka.create_topic(partitions=2)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    producer.send(topic, b"hello", partition=1).get(timeout=10)
    producer.close()
    consumer = KafkaConsumer(topic, bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=10_000)
    record = next(consumer)
    consumer.close()
    assert (record.value, record.partition) == (b"hello", 1)


def test_elasticmq_counts_receives_and_keeps_fifo_groups(elasticmq: ElasticMQ) -> None:
    client = sqs.client(elasticmq.endpoint)
    name = f"{uuid.uuid4().hex}.fifo"
    url = client.create_queue(QueueName=name, Attributes={"FifoQueue": "true", "VisibilityTimeout": "30"})["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody="a", MessageGroupId="g", MessageDeduplicationId="1")
    [message] = client.receive_message(QueueUrl=url, MessageSystemAttributeNames=["All"])["Messages"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert message["Attributes"]["MessageGroupId"] == "g"


def test_moto_delivers_a_message(moto_sqs: MotoSqs) -> None:
    client = sqs.client(moto_sqs.endpoint)
    url = client.create_queue(QueueName=uuid.uuid4().hex)["QueueUrl"]
    sent = client.send_message(QueueUrl=url, MessageBody="a")
    [message] = client.receive_message(QueueUrl=url)["Messages"]
    assert message["MessageId"] == sent["MessageId"]


class _Frames(stomp.ConnectionListener):  # type: ignore[misc]  # stomp.py has no types
    def __init__(self) -> None:
        self.messages: queue.Queue[tuple[str, str]] = queue.Queue()

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self.messages.put((frame.headers["destination"], frame.body))


def _advisories(broker: ActiveMQ, kind: str, queue_name: str) -> tuple[str, str]:
    """Send one message to `queue_name` and return the first advisory of `kind` about the queue."""
    frames = _Frames()
    connection = stomp.Connection12([(broker.host, broker.stomp_port)])
    connection.set_listener("", frames)
    connection.connect(wait=True)
    topic = f"/topic/ActiveMQ.Advisory.{kind}.Queue.>"
    connection.subscribe(topic, id="1", headers={"transformation": "jms-advisory-json"})
    connection.send(f"/queue/{queue_name}", "hello")
    try:
        return frames.messages.get(timeout=10)
    finally:
        connection.disconnect()


def test_activemq_reports_an_arrival_with_its_message_id(activemq: ActiveMQ) -> None:
    destination, body = _advisories(activemq, "MessageDelivered", "orders")
    assert destination == "/topic/ActiveMQ.Advisory.MessageDelivered.Queue.orders"
    assert '"producerSequenceId":1' in body


@pytest.mark.slow
def test_activemq_starts_with_the_policies_a_test_chooses() -> None:
    policies = (
        activemq_service.Policy(advisories=False, dead_letters=None),
        activemq_service.Policy("a.>", slow_consumers=activemq_service.AbortSlowAck(ignore_idle_consumers=False)),
        activemq_service.Policy("b.>", slow_consumers=activemq_service.AbortSlow(), queue_prefetch=1),
    )
    try:
        with activemq_service.start(*policies, persistent=False) as broker:
            # Only the queues under a.> and b.> report arrivals: the first advisory is not about `quiet`.
            connection = stomp.Connection12([(broker.host, broker.stomp_port)])
            connection.connect(wait=True)
            connection.send("/queue/quiet", "nobody is reported")
            connection.disconnect()
            destination, _ = _advisories(broker, "MessageDelivered", "a.loud")
    except ServiceUnavailable as missing:
        pytest.skip(str(missing))
    assert destination.endswith(".a.loud")


def _first_alerts(url: str) -> list[dict[str, Any]]:
    def alerts() -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = httpx.get(f"{url}/api/v2/alerts").json()
        return answer

    return until(alerts, "Alertmanager has an alert", every_s=0.1)


def test_an_alert_goes_from_prometheus_to_alertmanager(prometheus_servers: None, tmp_path: Path) -> None:
    del prometheus_servers
    rules = tmp_path / "rules.yml"
    rules.write_text("groups: [{name: g, rules: [{alert: Always, expr: vector(1)}]}]")
    routes = {"route": {"receiver": "none"}, "receivers": [{"name": "none"}]}
    with (
        prometheus.start_alertmanager(routes) as alertmanager,
        prometheus.start_prometheus(rule_files=[rules], alertmanager=alertmanager),
    ):
        alerts = _first_alerts(alertmanager.url)
    assert [alert["labels"]["alertname"] for alert in alerts] == ["Always"]


def test_chromium_renders_a_page(chromium: str) -> None:
    page = "data:text/html,<p id=p></p><script>p.textContent = 6 * 7</script>"
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", page]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert '<p id="p">42</p>' in done.stdout


def test_node_finds_miniflare(node: Node) -> None:
    script = "const { Miniflare } = await import('miniflare'); console.log(typeof Miniflare)"
    command = [node.executable, "--input-type=module", "-e", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=node.modules.parent)
    assert done.stdout.strip() == "function"


def test_the_connector_is_exactly_four_jars(spark_jars: list[Path]) -> None:
    names = [path.name.rpartition("-")[0] for path in spark_jars]
    assert names == [
        "commons-pool2",
        "kafka-clients",
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
    ]


def test_a_process_that_ends_early_reports_its_last_output(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('no room at the inn'); raise SystemExit(3)"]
    with (
        pytest.raises(ServiceUnavailable, match="ended with 3: no room at the inn"),
        running(command, tmp_path / "log", lambda _: None),
    ):
        pass


def test_a_service_is_stopped_when_the_block_ends(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    with running(command, tmp_path / "log", lambda _: listens(port) or None):
        assert listens(port)
    assert not listens(port)
