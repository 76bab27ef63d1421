"""Queues in a local SQS service, clients that record every call, and a collector that runs with one."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

from sources.sqs.collector import SqsCollector
from sources.sqs.config import SqsCollectorConfig
from tests.services import sqs

PLAIN = {"ApproximateNumberOfMessages": "1", "VisibilityTimeout": "30"}
"""The attributes of a queue."""

READ_ONLY = {
    "GetQueueAttributes",
    "ListQueues",
    "ListDeadLetterSourceQueues",
    "ListQueueTags",
    "ListMessageMoveTasks",
}


class Account:
    """Queues whose names share a prefix that no other test uses."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.client: Any = sqs.client(endpoint)
        self.prefix = f"t{uuid.uuid4().hex[:8]}-"

    def queue(self, name: str, *, tags: dict[str, str] | None = None, **attributes: str) -> str:
        """Create a queue and return its URL."""
        made = self.client.create_queue(QueueName=self.prefix + name, Attributes=attributes, tags=tags or {})
        return str(made["QueueUrl"])

    def arn(self, url: str) -> str:
        """Return a queue's ARN."""
        answer = self.client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return str(answer["Attributes"]["QueueArn"])

    def redrive_to(self, url: str, receives: int = 3) -> str:
        """Return a RedrivePolicy that targets a queue."""
        return f'{{"deadLetterTargetArn":"{self.arn(url)}","maxReceiveCount":{receives}}}'


class Recorded:
    """A client that records the name of every operation."""

    def __init__(self, endpoint: str) -> None:
        self.client = sqs.client(endpoint)
        self.operations: list[str] = []
        self.client.meta.events.register("before-parameter-build.sqs", self._note)

    def _note(self, model: Any, **_: Any) -> None:
        self.operations.append(model.name)


class Fake:
    """A client with only the five read-only calls, over a dictionary of queues; any other call fails the test.

    `fail` maps (operation, queue name) or an operation to the error code to answer with.
    """

    class Meta:
        """The part of botocore's client metadata that is used."""

        region_name = "eu-west-1"

    meta = Meta()

    def __init__(self, queues: dict[str, dict[str, str]], page: int = 1000) -> None:
        self.queues = dict(queues)
        self.page = page
        self.tags: dict[str, dict[str, str]] = {}
        self.tasks: dict[str, list[dict[str, Any]]] = {}
        self.fail: dict[Any, str] = {}
        self.calls: list[str] = []

    def url(self, name: str) -> str:
        """Return a queue's URL."""
        return f"https://sqs.eu-west-1.amazonaws.com/1/{name}"

    def list_queues(self, **params: Any) -> dict[str, Any]:
        """Return a page of URLs."""
        self._called("ListQueues", "")
        names = [n for n in sorted(self.queues) if n.startswith(params.get("QueueNamePrefix", ""))]
        start = int(params.get("NextToken", "0"))
        size = min(self.page, params["MaxResults"])
        page: dict[str, Any] = {"QueueUrls": [self.url(name) for name in names[start : start + size]]}
        if start + size < len(names):
            page["NextToken"] = str(start + size)
        return page

    def get_queue_attributes(self, **params: Any) -> dict[str, Any]:
        """Return a queue's attributes, with its ARN."""
        name = self._called("GetQueueAttributes", params["QueueUrl"])
        assert params["AttributeNames"] == ["All"]
        return {"Attributes": {"QueueArn": f"arn:aws:sqs:eu-west-1:1:{name}", **self.queues[name]}}

    def list_queue_tags(self, **params: Any) -> dict[str, Any]:
        """Return a queue's tags."""
        return {"Tags": self.tags.get(self._called("ListQueueTags", params["QueueUrl"]), {})}

    def list_dead_letter_source_queues(self, **params: Any) -> dict[str, Any]:
        """Return the URLs of the queues that send it dead letters."""
        name = self._called("ListDeadLetterSourceQueues", params["QueueUrl"])
        sources = [n for n, a in self.queues.items() if f':{name}"' in a.get("RedrivePolicy", "")]
        return {"queueUrls": [self.url(source) for source in sources]}

    def list_message_move_tasks(self, **params: Any) -> dict[str, Any]:
        """Return a queue's redrive tasks."""
        name = self._called("ListMessageMoveTasks", params["SourceArn"])
        return {"Results": self.tasks.get(name, [])}

    def _called(self, operation: str, where: str) -> str:
        from botocore.exceptions import ClientError

        name = where.rsplit("/", 1)[-1].rsplit(":", 1)[-1]
        self.calls.append(operation)
        code = self.fail.get((operation, name)) or self.fail.get(operation)
        if code is None and name and name not in self.queues:
            code = "QueueDoesNotExist"
        if code:
            answer: Any = {"Error": {"Code": code, "Message": f"{code} of {name}"}}
            if code == "InternalError":
                answer["ResponseMetadata"] = {"HTTPStatusCode": 500}
            raise ClientError(answer, operation)
        return name


class Regional(Fake):
    """A client of `region` that has one queue, and answers as SQS does when asked about a queue of another region."""

    def __init__(self, region: str, name: str) -> None:
        super().__init__({name: {"QueueArn": f"arn:aws:sqs:{region}:1:{name}"}})
        self.meta = Fake.Meta()
        self.meta.region_name = region
        self.foreign = 0

    def url(self, name: str) -> str:
        """Return a queue's URL."""
        return f"https://sqs.{self.meta.region_name}.amazonaws.com/1/{name}"

    def _called(self, operation: str, where: str) -> str:
        is_foreign = "/" in where and self.meta.region_name not in where
        self.foreign += is_foreign
        return super()._called(operation, "gone" if is_foreign else where)


def collect(
    client: Any, until: Callable[[list[dict[str, Any]]], bool], timeout_s: float = 20.0, **config: Any
) -> list[dict[str, Any]]:
    """Run a collector until `until` accepts its events."""
    stop = threading.Event()
    found: list[dict[str, Any]] = []

    def emit(events: Any) -> None:
        found.extend(events)
        if until(found):
            stop.set()

    timer = threading.Timer(timeout_s, stop.set)
    timer.start()
    try:
        SqsCollector(SqsCollectorConfig(**{"interval_s": 0.05, **config}), [client]).run(emit, stop)
    finally:
        timer.cancel()
    assert until(found), "it did not happen in time"
    return found
