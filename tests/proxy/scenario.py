"""A series of SQS calls, recorded with their answers to compare them with and without the proxy.

It is also a program, `python scenario.py ENDPOINT DIALECT`, for environments with another boto3, so it imports only boto3.
"""

from __future__ import annotations

import json
import re
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

KIB = 1024
_VOLATILE_HEADERS = ("date", "content-length", "x-amzn-requestid", "connection")
_BINARY = bytes(range(256))


class Recorder:
    """Makes calls and records the answers, with ids and times replaced by comparable values."""

    def __init__(self, endpoint: str) -> None:
        session = boto3.Session(aws_access_key_id="app", aws_secret_access_key="app", region_name="us-east-1")
        config = Config(retries={"max_attempts": 0}, read_timeout=40)
        self.client = session.client("sqs", endpoint_url=endpoint, config=config)
        self.records: list[Any] = []
        self._names: dict[str, str] = {}

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """Make a call and record its response or error."""
        try:
            answer: dict[str, Any] = getattr(self.client, operation)(**params)
        except ClientError as error:
            answer = dict(error.response)
        self.records.append([operation, self._comparable(answer)])
        return answer

    def _comparable(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            if key == "HTTPHeaders":
                return {k: v for k, v in sorted(value.items()) if k not in _VOLATILE_HEADERS}
            return {k: self._comparable(v, k) for k, v in sorted(value.items()) if k != "RequestId"}
        if key == "Messages":  # a standard queue delivers in any order
            value = sorted(value, key=lambda message: (message["Body"], self._names.get(message["MessageId"], "")))
        if isinstance(value, (list, tuple)):
            return [self._comparable(item, key) for item in value]
        if isinstance(value, bytes):
            return value.hex()
        if key in ("MessageId", "ReceiptHandle", "SequenceNumber"):
            return self._names.setdefault(value, f"{key}-{len(self._names)}")
        if key.endswith("Timestamp") and isinstance(value, str):
            return "timestamp"
        if isinstance(value, str):
            # The host in a queue's URL is the proxy's, by design; ids are specific to this run or to the upstream's responses.
            value = re.sub(r"https?://[^/]+(?=/\w+/)", "http://endpoint", value)
            return re.sub(r"q-[0-9a-f]{12}", "q-name", re.sub(r"\b[0-9a-f-]{36}\b", "uuid", value))
        return value


def standard(r: Recorder, name: str) -> None:
    """Use a standard queue: bodies, attributes, visibility, batches with partial failures, errors."""
    url = r.call("create_queue", QueueName=name, Attributes={"VisibilityTimeout": "30"})["QueueUrl"]
    r.call("get_queue_url", QueueName=name)
    r.call("list_queues", QueueNamePrefix=name)
    r.call("get_queue_attributes", QueueUrl=url, AttributeNames=["VisibilityTimeout", "DelaySeconds"])
    r.call("set_queue_attributes", QueueUrl=url, Attributes={"VisibilityTimeout": "60"})
    r.call("tag_queue", QueueUrl=url, Tags={"team": "größe & co"})
    r.call("list_queue_tags", QueueUrl=url)
    bodies = ["plain", 'quotes " \\ & < > {}', "ümläut 漢字 🚀", "line\r\nfeed\ttab", " spaces ", "x" * 256 * KIB]
    attributes: dict[str, Any] = {
        "text": {"DataType": "String", "StringValue": "välue & <tag>\r\n"},
        "number": {"DataType": "Number", "StringValue": "12.5"},
        "binary": {"DataType": "Binary", "BinaryValue": _BINARY},
    }
    for body in bodies:
        r.call("send_message", QueueUrl=url, MessageBody=body, MessageAttributes=attributes)
        for asked in ({}, {"AttributeNames": ["SentTimestamp"]}):
            got = r.call("receive_message", QueueUrl=url, VisibilityTimeout=0, MessageAttributeNames=["number", "b*"], **asked)
        got = r.call("receive_message", QueueUrl=url, AttributeNames=["All"], MessageAttributeNames=["All"])
        for message in got.get("Messages", []):
            handle = message["ReceiptHandle"]
            r.call("change_message_visibility", QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=90)
            r.call("delete_message", QueueUrl=url, ReceiptHandle=handle)
    r.call("receive_message", QueueUrl=url)
    _batches(r, url)
    r.call("send_message", QueueUrl=url, MessageBody="late", DelaySeconds=1)
    r.call("receive_message", QueueUrl=url, WaitTimeSeconds=5)
    r.call("purge_queue", QueueUrl=url)
    r.call("receive_message", QueueUrl=url, MaxNumberOfMessages=11)
    r.call("delete_message", QueueUrl=url, ReceiptHandle="no such handle")
    r.call("change_message_visibility", QueueUrl=url, ReceiptHandle="no such handle", VisibilityTimeout=3)
    r.call("receive_message", QueueUrl=f"{url}-gone")
    r.call("get_queue_url", QueueName=f"{name}-gone")
    r.call("send_message", QueueUrl=url, MessageBody="")
    r.call("delete_queue", QueueUrl=url)
    r.call("get_queue_attributes", QueueUrl=url, AttributeNames=["All"])


def _batches(r: Recorder, url: str) -> None:
    sends: list[dict[str, Any]] = [{"Id": f"m{n}", "MessageBody": f"body {n}"} for n in range(4)]
    sends.append({"Id": "bad", "MessageBody": "y", "DelaySeconds": 901})
    r.call("send_message_batch", QueueUrl=url, Entries=sends)
    r.call("send_message_batch", QueueUrl=url, Entries=[sends[0], sends[0]])
    r.call("send_message_batch", QueueUrl=url, Entries=[{"Id": f"n{n}", "MessageBody": "z"} for n in range(11)])
    got = r.call("receive_message", QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["SenderId"])
    handles = [message["ReceiptHandle"] for message in got.get("Messages", [])]
    change = {"VisibilityTimeout": 50}
    changes: list[dict[str, Any]] = [{"Id": f"c{n}", "ReceiptHandle": handle, **change} for n, handle in enumerate(handles)]
    changes.append({"Id": "bad", "ReceiptHandle": "no such handle", "VisibilityTimeout": 50})
    r.call("change_message_visibility_batch", QueueUrl=url, Entries=changes)
    deletes = [{"Id": f"d{n}", "ReceiptHandle": handle} for n, handle in enumerate(handles)]
    r.call("delete_message_batch", QueueUrl=url, Entries=[*deletes, {"Id": "bad", "ReceiptHandle": "no such handle"}])


def fifo(r: Recorder, name: str) -> None:
    """Use a FIFO queue with groups, deduplication and a dead-letter queue."""
    dlq = r.call("create_queue", QueueName=f"{name}-dlq.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    arn = r.client.get_queue_attributes(QueueUrl=dlq, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "1"})
    given = {"FifoQueue": "true", "ContentBasedDeduplication": "true", "RedrivePolicy": redrive}
    url = r.call("create_queue", QueueName=f"{name}.fifo", Attributes=given)["QueueUrl"]
    r.call("list_dead_letter_source_queues", QueueUrl=dlq)
    for n, group in enumerate("abab"):
        r.call("send_message", QueueUrl=url, MessageBody=f"{group}{n}", MessageGroupId=group)
    r.call("send_message", QueueUrl=url, MessageBody="a0", MessageGroupId="a")
    r.call("send_message", QueueUrl=url, MessageBody="no group")
    entries = [{"Id": str(n), "MessageBody": f"batch {n}", "MessageGroupId": "c"} for n in range(3)]
    r.call("send_message_batch", QueueUrl=url, Entries=entries)
    got = r.call("receive_message", QueueUrl=url, MaxNumberOfMessages=2, AttributeNames=["MessageGroupId"])
    for message in got.get("Messages", []):
        r.call("change_message_visibility", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    r.call("receive_message", QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["MessageGroupId", "SequenceNumber"])
    r.call("receive_message", QueueUrl=dlq, MaxNumberOfMessages=10, AttributeNames=["All"])
    for gone in (url, dlq):
        r.call("delete_queue", QueueUrl=gone)


def large(r: Recorder, name: str) -> None:
    """Send up to the limit of 1 MiB, in a message and in a batch, and more than that."""
    url = r.call("create_queue", QueueName=name)["QueueUrl"]
    r.call("set_queue_attributes", QueueUrl=url, Attributes={"MaximumMessageSize": str(1024 * KIB)})
    r.call("send_message", QueueUrl=url, MessageBody="x" * 1024 * KIB)
    got = r.call("receive_message", QueueUrl=url)
    for message in got.get("Messages", []):
        r.call("delete_message", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    r.call("send_message_batch", QueueUrl=url, Entries=[{"Id": str(n), "MessageBody": "é" * 50 * KIB} for n in range(10)])
    r.call("receive_message", QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=300)
    r.call("send_message", QueueUrl=url, MessageBody="x" * (1024 * KIB + 1))
    r.call("delete_queue", QueueUrl=url)


def long_poll(r: Recorder, name: str) -> None:
    """Long-poll an empty queue for the maximum time."""
    url = r.call("create_queue", QueueName=name)["QueueUrl"]
    began_s = time.monotonic()
    r.call("receive_message", QueueUrl=url, WaitTimeSeconds=20)
    r.records.append(["seconds", round((time.monotonic() - began_s) / 5) * 5])
    r.call("delete_queue", QueueUrl=url)


SCENARIOS: dict[str, Callable[[Recorder, str], None]] = {
    "standard": standard,
    "fifo": fifo,
    "large": large,
    "long_poll": long_poll,
}


def record(endpoint: str, scenario: str) -> list[Any]:
    """Return every answer of a scenario, in order."""
    recorder = Recorder(endpoint)
    SCENARIOS[scenario](recorder, f"q-{uuid.uuid4().hex[:12]}")
    return json.loads(json.dumps(recorder.records))  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(record(sys.argv[1], sys.argv[2])))
