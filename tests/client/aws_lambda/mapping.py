"""Does what Lambda's event source mapping does: receives, invokes, and deletes the messages that the function finished.

It is written from the developer guide, independently of the wrapper's rules, which it checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.client.aws_lambda.runtime_api import Environment, Result

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


@dataclass(frozen=True)
class Batch:
    """One delivered batch: the records, how the invocation ended, and which messages were deleted."""

    records: list[dict[str, Any]]
    result: Result
    deleted: list[str]

    @property
    def ids(self) -> list[str]:
        """Message ids in the order of the event."""
        return [record["messageId"] for record in self.records]


def poll_once(
    sqs: SQSClient,
    url: str,
    function: Environment,
    *,
    reports_failures: bool = True,
    timeout_s: float = 5.0,
) -> Batch | None:
    """Receive one batch and invoke the function with it; return None if the queue is empty."""
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1, MessageSystemAttributeNames=["All"])
    messages = answer.get("Messages", [])
    if not messages:
        return None
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    records: list[dict[str, Any]] = [
        {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": message["Attributes"],
            "messageAttributes": {},
            "md5OfBody": message["MD5OfBody"],
            "eventSource": "aws:sqs",
            "eventSourceARN": arn,
            "awsRegion": "us-east-1",
        }
        for message in messages
    ]
    result = function.invoke({"Records": records}, timeout_s=timeout_s)
    done = _done_with(result, {record["messageId"] for record in records}, reports_failures)
    entries = [
        {"Id": str(i), "ReceiptHandle": str(record["receiptHandle"])}
        for i, record in enumerate(records)
        if record["messageId"] in done
    ]
    if entries:
        deleted = sqs.delete_message_batch(QueueUrl=url, Entries=entries)  # type: ignore[arg-type]
        assert not deleted.get("Failed"), deleted
    return Batch(records, result, sorted(done))


def _done_with(result: Result, ids: set[str], reports_failures: bool) -> set[str]:
    """Return the ids of the messages that the mapping deletes."""
    if result.kind != "returned":
        return set()
    if not reports_failures:
        return ids
    try:
        answer = result.payload if result.body else None
    except ValueError:
        return set()
    failures = answer.get("batchItemFailures") if isinstance(answer, dict) else None
    if failures in (None, []):
        return ids
    try:
        named = {failure["itemIdentifier"] for failure in failures}
    except (TypeError, KeyError):
        return set()
    return ids - named if named <= ids else set()
