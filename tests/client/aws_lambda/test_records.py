"""The events of a batch, from the function's event."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import queuewatch.aws_lambda
from queuewatch.aws_lambda.outcome import RETURNED
from queuewatch.aws_lambda.records import Delivery, delivery_of
from tests.services.node import find_node
from tests.services.provider import Services

_SAID = {"SentTimestamp": "1700000000000", "ApproximateReceiveCount": "2", "MessageGroupId": "g"}


def _event(attributes: Any) -> dict[str, Any]:
    arn = "arn:aws:sqs:us-east-1:123456789012:orders"
    return {"Records": [{"eventSource": "aws:sqs", "messageId": "m1", "eventSourceARN": arn, "attributes": attributes}]}


def _delivery(event: dict[str, Any]) -> Delivery:
    found = delivery_of(event, request_id="r", consumer="c", began_at=1_700_000_001_000, visibility_timeout_s=30)
    assert found is not None
    return found


def test_a_handler_that_changes_its_event_does_not_change_what_is_reported() -> None:
    """The attributes are copied, because the outcome is reported after the handler."""
    event = _event({**_SAID, "ApproximateReceiveCount": 2})
    delivery = _delivery(event)
    before = [*delivery.received(), *delivery.ended(RETURNED, 1)]
    event["Records"][0]["attributes"].clear()
    assert [*delivery.received(), *delivery.ended(RETURNED, 1)] == before
    assert before[0]["receive_count"] == 2


@pytest.mark.parametrize("wrong", [None, {}, "soon", "nan", "inf", "", []], ids=repr)
def test_an_attribute_that_is_no_number_is_left_out(wrong: Any) -> None:
    """The message and its other attributes are still reported."""
    [received] = _delivery(_event({**_SAID, "SentTimestamp": wrong})).received()
    assert "sent_at" not in received
    assert (received["message_id"], received["receive_count"], received["group"]) == ("m1", 2, "g")


@pytest.mark.parametrize("attributes", [None, "text", ["list"], 5], ids=repr)
def test_a_record_without_attributes_is_reported(attributes: Any) -> None:
    """A test event, written by hand, may have any."""
    [received] = _delivery(_event(attributes)).received()
    assert received["message_id"] == "m1"


SOURCE = "arn:aws:sqs:us-east-1:123456789012:"
_IN_NODE = """
import { deliveryOf } from %s;
const delivery = deliveryOf(JSON.parse(process.argv[1]), { requestId: "r", consumer: "c", beganAt: 1700000001000 });
console.log(JSON.stringify(delivery?.received() ?? null));
"""


@pytest.mark.parametrize(("source", "named"), [("billing", "billing"), ("orders", None), (None, None)])
@pytest.mark.parametrize("language", ["python", "node"])
def test_a_receive_names_the_queue_it_came_from_unless_it_is_back_there(
    services: Services, language: str, source: str | None, named: str | None
) -> None:
    """A message that was redriven to its source may still name it, as if the source were its own dead-letter queue."""
    event = _event(_SAID | ({"DeadLetterQueueSourceArn": SOURCE + source} if source else {}))
    [received] = _received(services, language, event)
    assert (received["message_id"], received.get("from_queue")) == ("m1", named)


@pytest.mark.parametrize("language", ["python", "node"])
def test_records_of_a_pipe_are_those_of_a_mapping(services: Services, language: str) -> None:
    """EventBridge Pipes passes the list of records without `Records` around it; nothing of such a function was reported."""
    event = _event(_SAID)
    assert _received(services, language, event["Records"]) == _received(services, language, event)


@pytest.mark.parametrize("event", [[], [{"eventSource": "aws:kinesis"}], [{"order": 1}], ["text"], [None]], ids=repr)
@pytest.mark.parametrize("language", ["python", "node"])
def test_another_list_is_not_a_batch(services: Services, language: str, event: list[Any]) -> None:
    """A pipe of another source passes a list too, and a direct call may pass any."""
    assert _received(services, language, event) is None


def _received(services: Services, language: str, event: Any) -> Any:
    """Return the `received` events of a function's event, None if it is not from SQS."""
    if language == "python":
        delivery = delivery_of(event, request_id="r", consumer="c", began_at=1_700_000_001_000)
        return None if delivery is None else delivery.received()
    module = Path(queuewatch.aws_lambda.__file__).parent / "node" / "records.mjs"
    command = [services.found(find_node).executable, "--input-type=module", "-e", _IN_NODE % json.dumps(module.as_uri())]
    run = subprocess.run([*command, json.dumps(event)], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)
