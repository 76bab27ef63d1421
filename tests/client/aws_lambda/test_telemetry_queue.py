"""Telemetry sent through a queue, and messages that are redelivered or dead-lettered, against ElasticMQ."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

import pytest

from sources.sqs.telemetry import events_of
from tests.client.aws_lambda.conftest import Runtime
from tests.client.aws_lambda.mapping import poll_once
from tests.client.aws_lambda.receiver import Receiver
from tests.client.aws_lambda.test_carrying import ended
from tests.services import sqs as sqs_service
from tests.services.elasticmq import ElasticMQ
from tests.services.moto_sqs import MotoSqs

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


@pytest.fixture
def sqs(elasticmq: ElasticMQ) -> SQSClient:
    """An SQS client for ElasticMQ."""
    return sqs_service.client(elasticmq.endpoint)


@pytest.mark.parametrize("by_url", [False, True], ids=["name", "URL"])
def test_a_telemetry_queue_gets_what_the_collector_reads(
    runtime: Runtime, elasticmq: ElasticMQ, sqs: SQSClient, by_url: bool
) -> None:
    """Messages are signed with the function's credentials; the queue may be given by name or by URL."""
    name = f"telemetry-{runtime.name}-{by_url}"
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    to = f"sqs:{url if by_url else name}"
    with runtime.start(to, AWS_ENDPOINT_URL_SQS=elasticmq.endpoint, QUEUEWATCH_LAMBDA_SEND_MS="3000") as function:
        ended(function, "m0", "é-m1")
        bodies = [m["Body"] for m in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])]
    events = [event for body in bodies for event in events_of(body)]
    assert [(e["type"], e.get("message_id")) for e in events] == [
        ("received", "m0"),
        ("received", "é-m1"),
        ("deleted", "m0"),
        ("deleted", "é-m1"),
        ("batch", None),
    ]


def test_a_telemetry_queue_of_another_region_is_given_by_its_url(runtime: Runtime, moto_sqs: MotoSqs) -> None:
    """A call must be signed for the region of its endpoint, not for that of the function."""
    elsewhere = sqs_service.session().client("sqs", endpoint_url=moto_sqs.endpoint, region_name="eu-west-1")
    name = f"telemetry-{runtime.name}-elsewhere"
    url = elsewhere.create_queue(QueueName=name)["QueueUrl"]
    to = f"sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/{name}"
    with runtime.start(
        to, AWS_ENDPOINT_URL_SQS=moto_sqs.endpoint, AWS_REGION="us-east-1", QUEUEWATCH_LAMBDA_SEND_MS="3000"
    ) as function:
        ended(function, "m0")
        assert elsewhere.receive_message(QueueUrl=url)["Messages"]


def test_a_large_batch_is_split_into_messages_that_sqs_accepts(runtime: Runtime, elasticmq: ElasticMQ, sqs: SQSClient) -> None:
    """No message exceeds 256 KiB."""
    url = sqs.create_queue(QueueName=f"telemetry-large-{runtime.name}")["QueueUrl"]
    to = f"sqs:telemetry-large-{runtime.name}"
    ids = [f"{i:04}" for i in range(2_000)]
    with runtime.start(to, AWS_ENDPOINT_URL_SQS=elasticmq.endpoint, QUEUEWATCH_LAMBDA_SEND_MS="5000") as function:
        ended(function, *ids)
        found = set()
        while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            found |= {e["message_id"] for m in messages for e in events_of(m["Body"]) if e["type"] == "deleted"}
    assert found == set(ids)


def test_a_message_is_split_where_the_queue_allows_less_than_256_kib(runtime: Runtime) -> None:
    """`MaximumMessageSize` may be as small as 1 KiB. The stand-ins name the error as SQS' query protocol does, SQS itself not."""
    ids = [f"{i:04}" for i in range(100)]
    with SmallQueue() as queue:
        with runtime.start(f"sqs:{queue.url}", QUEUEWATCH_LAMBDA_SEND_MS="5000") as function:
            ended(function, *ids)
        events = [event for body in queue.bodies for event in events_of(body)]
    assert {event["message_id"] for event in events if event["type"] == "deleted"} == set(ids)


class SmallQueue:
    """A queue whose `MaximumMessageSize` is 8 KiB, with SQS' own answer to a larger message."""

    REFUSAL = (
        '{"__type":"com.amazon.coral.service#InvalidParameterValueException",'
        '"message":"One or more parameters are invalid. Reason: Message must be shorter than 8192 bytes."}'
    )

    def __init__(self) -> None:
        self.bodies: list[str] = []
        queue = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["MessageBody"]
                fits = len(body.encode()) < 8192
                if fits:
                    queue.bodies.append(body)
                answer = b'{"MessageId":"1"}' if fits else queue.REFUSAL.encode()
                self.send_response(200 if fits else 400)
                if not fits:
                    self.send_header("x-amzn-query-error", "InvalidParameterValue;Sender")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/123456789012/telemetry"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.mark.parametrize("back", [True, False], ids=["to its source", "to another queue"])
def test_a_redriven_message_does_not_name_the_queue_it_is_in(
    runtime: Runtime, sqs: SQSClient, ingest: Receiver, back: bool
) -> None:
    """ElasticMQ keeps its DeadLetterQueueSourceArn, and counts its receives from one again, by which the service knows it."""
    arns: dict[str, str] = {}
    names = {place: f"{place}-{runtime.name}-{back}" for place in ("dead", "source", "other")}
    for place, name in names.items():
        attributes: Any = {"VisibilityTimeout": "0"}
        if place == "source":
            attributes["RedrivePolicy"] = json.dumps({"deadLetterTargetArn": arns["dead"], "maxReceiveCount": 1})
        url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        arns[place] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    source = sqs.get_queue_url(QueueName=names["source"])["QueueUrl"]
    sqs.send_message(QueueUrl=source, MessageBody="returns null")
    for _ in range(2):
        sqs.receive_message(QueueUrl=source)
    there = "source" if back else "other"
    sqs.start_message_move_task(SourceArn=arns["dead"], DestinationArn=arns[there])
    url = sqs.get_queue_url(QueueName=names[there])["QueueUrl"]
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_SEND_MS="10000") as function:
        batch = next(filter(None, (poll_once(sqs, url, function) for _ in range(10))))
    assert batch.records[0]["attributes"].get("DeadLetterQueueSourceArn") == arns["source"]
    received = [(e["queue"], e["receive_count"], e.get("from_queue")) for e in ingest.events if e["type"] == "received"]
    assert received == [(names[there], 1, None if back else names["source"])]


def test_a_poison_message_is_followed_into_the_dead_letter_queue(runtime: Runtime, sqs: SQSClient, ingest: Receiver) -> None:
    """The message is received twice, moved by the broker, and received from the DLQ, with the broker's receive counts."""
    dead = sqs.create_queue(QueueName=f"dead-{runtime.name}", Attributes={"VisibilityTimeout": "1"})["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    attributes: Any = {"VisibilityTimeout": "1", "RedrivePolicy": policy}
    url = sqs.create_queue(QueueName=f"poisoned-{runtime.name}", Attributes=attributes)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="raises|0")
    settings = {"QUEUEWATCH_LAMBDA_SEND_MS": "10000", "QUEUEWATCH_LAMBDA_VISIBILITY_TIMEOUT_S": "1"}
    with runtime.start(ingest.url, **settings) as function:  # type: ignore[arg-type]
        ids = set()
        for _ in range(2):
            batch = poll_once(sqs, url, function)
            assert batch is not None
            assert batch.result.kind == "error"
            ids |= set(batch.ids)
            time.sleep(1.1)
        assert poll_once(sqs, url, function) is None  # ElasticMQ moves it now
        batch = poll_once(sqs, dead, function)
        assert batch is not None
        assert set(batch.ids) == ids
    received = [(e["queue"], e["receive_count"], e.get("from_queue")) for e in ingest.events if e["type"] == "received"]
    name = f"poisoned-{runtime.name}"
    said = batch.records[0]["attributes"].get("DeadLetterQueueSourceArn")
    assert received == [(name, 1, None), (name, 2, None), (f"dead-{runtime.name}", 3, name if said else None)]
    released = [e for e in ingest.events if e["type"] == "released"]
    assert [e["reason"] for e in released] == ["raised ChargeFailed"] * 3
