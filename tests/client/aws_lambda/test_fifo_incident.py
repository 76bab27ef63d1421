"""The FIFO incident with a Lambda consumer, end to end: a real queue, a real runtime, the wrapper's telemetry, a replay.

One customer's backlog fails again and again and fills the queue's look-ahead; the customers behind it wait, and the event
source mapping works on one group at a time. Neither the producer's nor the function's code is changed.
"""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from queuewatch import watch
from streaming.core.settings import Settings
from streaming.core.thresholds import Thresholds
from tests.client.aws_lambda.conftest import Runtime
from tests.client.aws_lambda.mapping import poll_once
from tests.client.aws_lambda.receiver import Receiver
from tests.client.aws_lambda.runtime_api import Environment
from tests.client.transports import Kept
from tests.contract.replaying import replayed
from tests.services import sqs as sqs_service
from tests.services.elasticmq import ElasticMQ

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_LOOK_AHEAD = 20  # instead of 120,000
_VISIBILITY_S = 2
_COLLAPSED_S = 8  # instead of 300
_CUSTOMERS_BEHIND = 6


def _signals(events: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Replay the events, in steps short enough to see the head visible between two deliveries."""
    thresholds = Thresholds(look_ahead=_LOOK_AHEAD, collapsed_s=_COLLAPSED_S)
    return replayed(events, folder, every="100ms", settings=Settings(defaults=thresholds)).signals(status="firing")


def _saturated_at(events: list[dict[str, Any]]) -> int:
    """Return when all customers' messages were sent and the group was in flight."""
    sent: int = max(event["at"] for event in events if event["type"] == "sent")
    in_flight: list[int] = [event["at"] for event in events if event["type"] == "received" and event["invisible_until"] > sent]
    return max(sent, min(in_flight))


def _fail_once(consumer: Any, url: str, function: Environment) -> None:
    """The mapping gets a batch of the greedy group, and the function fails it."""
    while (batch := poll_once(consumer, url, function)) is None:
        pass
    assert {record["attributes"]["MessageGroupId"] for record in batch.records} == {"greedy"}
    assert batch.result.kind == "error", function.said()


def _hide_what_sqs_hides(consumer: Any, url: str) -> None:
    """ElasticMQ's look-ahead is unlimited, so an unwatched consumer receives and holds the messages that SQS would not find."""
    hidden = 0
    while hidden < _CUSTOMERS_BEHIND:
        answer = consumer.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=600, WaitTimeSeconds=1, MessageSystemAttributeNames=["All"]
        )
        for message in answer.get("Messages", []):
            if message["Attributes"]["MessageGroupId"] == "greedy":
                handle = message["ReceiptHandle"]
                consumer.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
            else:
                hidden += 1


def test_one_groups_backlog_is_named_while_lambda_works_on_nothing_else(
    runtime: Runtime, elasticmq: ElasticMQ, ingest: Receiver, tmp_path: Path
) -> None:
    """`LookAheadSaturated` names the group within ten seconds of saturation; `ConcurrencyCollapsed` follows."""
    producer, consumer, kept = sqs_service.client(elasticmq.endpoint), sqs_service.client(elasticmq.endpoint), Kept()
    name = f"orders-{uuid.uuid4().hex[:8]}.fifo"
    attributes: Any = {"FifoQueue": "true", "ContentBasedDeduplication": "true", "VisibilityTimeout": str(_VISIBILITY_S)}
    url = producer.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    watching = watch(producer, kept)

    def order(customer: str, number: int) -> None:
        body = f"raises|{customer} {number}"
        producer.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=customer)

    for n in range(_LOOK_AHEAD + 5):
        order("greedy", n)
    settings = {"QUEUEWATCH_LAMBDA_SEND_MS": "2000", "QUEUEWATCH_LAMBDA_VISIBILITY_TIMEOUT_S": str(_VISIBILITY_S)}
    with runtime.start(ingest.url, **settings) as function:  # type: ignore[arg-type]
        _fail_once(consumer, url, function)
        for n in range(_CUSTOMERS_BEHIND):
            order(f"customer-{n}", 0)
        _hide_what_sqs_hides(consumer, url)
        end_s = time.monotonic() + _COLLAPSED_S + 3
        while time.monotonic() < end_s:
            time.sleep(_VISIBILITY_S + 0.2)
            _fail_once(consumer, url, function)
    assert watching.flush()
    watching.unwatch()
    events = [*kept.events(), *ingest.events]
    assert {event["type"] for event in events} == {"sent", "received", "released", "batch"}
    signals = [line for line in _signals(events, tmp_path) if line["queue"] == name]
    full_at = _saturated_at(events)
    # It may fire with the first customer behind, and lasts while the head is tried again and again.
    [saturated] = [line for line in signals if line["signal"] == "LookAheadSaturated"]
    assert saturated["at"] - full_at <= 10_000
    evidence = saturated["evidence"]
    assert (evidence["look_ahead"], evidence["blocking_group"]) == (_LOOK_AHEAD, "greedy")
    assert 1 <= evidence["hidden_groups"] == evidence["hidden_messages"] <= _CUSTOMERS_BEHIND
    [collapsed, *_] = [line for line in signals if line["signal"] == "ConcurrencyCollapsed"]
    assert collapsed["evidence"]["groups_in_flight"] <= 1
    assert collapsed["evidence"]["groups_backlog"] == 1 + _CUSTOMERS_BEHIND
