"""The wrapper reports of each batch what the queue then does, on the real runtime interface clients."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

import pytest

from sources.wire import decode_records
from tests.client.aws_lambda.behaviours import TABLE, Behaviour
from tests.client.aws_lambda.conftest import Runtime
from tests.client.aws_lambda.mapping import Batch, poll_once
from tests.client.aws_lambda.receiver import Receiver, receiver
from tests.services import sqs as sqs_service
from tests.services.elasticmq import ElasticMQ

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

WINDOW_S = 3
TIMEOUT_S = 1.2
"""Timeout of the function: less than the visibility timeout, as Lambda requires."""


@dataclass
class Row:
    """One behaviour: what was delivered and reported, and what the queue did afterwards."""

    behaviour: Behaviour
    batch: Batch
    events: list[dict[str, Any]]
    batches: list[dict[str, Any]]
    url: str = ""
    came_back: set[str] = field(default_factory=set)


@pytest.fixture(scope="module")
def table(runtime: Runtime, elasticmq: ElasticMQ) -> Iterator[list[Row]]:
    """All behaviours, each with a queue of its own; takes about half a minute per runtime."""
    sqs = sqs_service.client(elasticmq.endpoint)
    rows = []
    with receiver() as ingest, ExitStack() as stack:
        functions = {
            reports: stack.enter_context(
                runtime.start(
                    ingest.url,
                    QUEUEWATCH_LAMBDA_VISIBILITY_TIMEOUT_S=str(WINDOW_S),
                    QUEUEWATCH_LAMBDA_REPORT_BATCH_ITEM_FAILURES=str(reports),
                    QUEUEWATCH_LAMBDA_SEND_MS="1000",  # on a busy machine, no telemetry may be left for the next row
                    QUEUEWATCH_LAMBDA_EARLY_MS="300",
                    QUEUEWATCH_LAMBDA_TIMEOUT_MARGIN_MS="450",
                )
            )
            for reports in (True, False)
        }
        for number, behaviour in enumerate(TABLE):
            url = _queue(sqs, f"{runtime.name}-behaviour-{number}", behaviour)
            before = len(ingest.events)
            batch = poll_once(sqs, url, functions[behaviour.reports], reports_failures=behaviour.reports, timeout_s=TIMEOUT_S)
            assert batch is not None
            assert len(batch.records) == behaviour.messages
            rows.append(_row(behaviour, batch, ingest, before))
            rows[-1].url = url
        time.sleep(WINDOW_S + 0.3)
        for row in rows:
            row.came_back = _drain(sqs, row.url)
        yield rows


def test_at_least_thirty_behaviours_are_tried() -> None:
    """The comparison proves only as much as the table covers."""
    assert len(TABLE) >= 30
    assert len(set(TABLE)) == len(TABLE)


def test_the_queue_does_what_the_table_says(table: list[Row]) -> None:
    """The queue agrees with the table on which messages come back and how the invocation ends."""
    wrong = {}
    for row in table:
        ids = row.batch.ids
        expected = {ids[i] for i in row.behaviour.positions_back()}
        if (row.came_back, row.batch.result.kind) != (expected, row.behaviour.ending):
            wrong[_name(row)] = (row.batch.result, len(row.came_back), len(expected))
    assert wrong == {}


def test_what_is_reported_is_what_the_queue_does(table: list[Row]) -> None:
    """Each message that is gone was reported as `deleted`, each one that came back as `released`."""
    wrong = {}
    for row in table:
        fates = {i: _fate(row, i) for i in row.batch.ids}
        truth = {i: "released" if i in row.came_back else "deleted" for i in row.batch.ids}
        if row.behaviour.blind:
            truth = dict.fromkeys(truth, "unknown")
        if fates != truth:
            wrong[_name(row)] = (fates, truth)
    assert wrong == {}


def test_each_receive_is_reported_with_the_brokers_attributes(table: list[Row]) -> None:
    """The event has receive count, send time, first receive, group, sequence and the end of the window."""
    wrong = {}
    for row in table:
        for record in [] if row.behaviour.blind else row.batch.records:
            said = record["attributes"]
            received = [e for e in row.events if e["type"] == "received" and e["message_id"] == record["messageId"]]
            expected = {
                "receive_count": int(said["ApproximateReceiveCount"]),
                "sent_at": int(said["SentTimestamp"]),
                "first_received_at": int(said["ApproximateFirstReceiveTimestamp"]),
                "at": int(said["ApproximateFirstReceiveTimestamp"]),
                "invisible_until": int(said["ApproximateFirstReceiveTimestamp"]) + WINDOW_S * 1000,
                "group": said.get("MessageGroupId"),
                "sequence": said.get("SequenceNumber"),
                "consumer": "orders-function",
                "scope": "000000000000/us-east-1",
            }
            if [{name: event.get(name) for name in expected} for event in received] != [expected]:
                wrong[_name(row)] = (received, expected)
    assert wrong == {}


def test_the_outcome_of_each_batch_is_reported_with_its_reason(table: list[Row]) -> None:
    """A batch failed as a whole, or its messages were acknowledged and retried one by one; the latest report counts."""
    wrong = {}
    for row in table:
        if row.behaviour.blind:
            continue
        named = row.behaviour.reason == "named in batchItemFailures"
        back = len(row.came_back)
        size = len(row.batch.ids)
        expected = {"size": size, "failed": 0 if named else back, "acked": size - back, "retried": back if named else 0}
        last = row.batches[-1]
        receives = {e["batch_id"] for e in row.events if e["type"] == "received"}
        if last["attributes"] != expected or not fnmatch(last["reason"], row.behaviour.reason) or receives != {last["batch_id"]}:
            wrong[_name(row)] = (last, expected)
    assert wrong == {}


def test_a_released_message_is_visible_when_its_window_ends(table: list[Row]) -> None:
    """A failed batch does not come back at once: the mapping lets the visibility timeout run."""
    for row in table:
        for event in row.events:
            if event["type"] == "released":
                assert event["visible_at"] == _received_at(row, event["message_id"]) + WINDOW_S * 1000, _name(row)


def test_every_event_can_be_read_by_the_service(table: list[Row]) -> None:
    """The service's decoder accepts all events."""
    events = [event for row in table for event in [*row.events, *row.batches]]
    decoded = decode_records(["\n".join(json.dumps(event) for event in events).encode()])
    assert len(events) > 300
    assert decoded.invalid == []


def test_no_message_body_and_no_error_text_leaves_the_function(table: list[Row]) -> None:
    """Telemetry has only ids and times, no contents of messages or errors."""
    secrets = ("Lovelace", "|bad")
    assert not [e for row in table for e in [*row.events, *row.batches] if any(secret in str(e) for secret in secrets)]


def _queue(sqs: SQSClient, name: str, behaviour: Behaviour) -> str:
    attributes = {"VisibilityTimeout": str(WINDOW_S)}
    if behaviour.fifo:
        name += ".fifo"
        attributes |= {"FifoQueue": "true", "ContentBasedDeduplication": "false"}
    url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]  # type: ignore[arg-type]
    for i in range(behaviour.messages):
        body = f"{behaviour.name}|{i}" + ("|bad" if i in behaviour.bad else "")
        if behaviour.fifo:
            sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=behaviour.groups[i], MessageDeduplicationId=str(i))
        else:
            sqs.send_message(QueueUrl=url, MessageBody=body)
    return url


def _row(behaviour: Behaviour, batch: Batch, ingest: Receiver, before: int) -> Row:
    if not behaviour.blind:
        end_s = time.monotonic() + 3
        while time.monotonic() < end_s and not any(e["type"] == "batch" for e in ingest.events[before:]):
            time.sleep(0.01)
    new = ingest.events[before:]
    return Row(behaviour, batch, ingest.of(*batch.ids), [e for e in new if e["type"] == "batch"])


def _drain(sqs: SQSClient, url: str) -> set[str]:
    """Return the ids that the queue now delivers. A FIFO group delivers ten at once, so a batch's messages come together."""
    found: set[str] = set()
    while True:
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=600)
        new = {message["MessageId"] for message in answer.get("Messages", [])}
        if not new:
            return found
        found |= new


def _fate(row: Row, message_id: str) -> str:
    """Return what the service concludes: a deletion is final, otherwise a release counts."""
    kinds = [event["type"] for event in row.events if event["message_id"] == message_id]
    if "deleted" in kinds:
        return "deleted"
    return "released" if "released" in kinds else "unknown"


def _received_at(row: Row, message_id: str) -> int:
    (at,) = {e["at"] for e in row.events if e["type"] == "received" and e["message_id"] == message_id}
    return int(at)


def _name(row: Row) -> str:
    return f"{row.behaviour.name} ({row.behaviour.why})"
