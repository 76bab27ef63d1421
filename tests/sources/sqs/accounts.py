"""Queues in a stand-in, and a record of every call made to it."""

from __future__ import annotations

import uuid
from typing import Any

from tests.services import sqs

READ_ONLY = {
    "GetQueueAttributes",
    "ListQueues",
    "ListDeadLetterSourceQueues",
    "ListQueueTags",
    "ListMessageMoveTasks",
}


class Account:
    """Queues whose names begin with a prefix no other test has."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.client: Any = sqs.client(endpoint)
        self.prefix = f"t{uuid.uuid4().hex[:8]}-"

    def queue(self, name: str, *, tags: dict[str, str] | None = None, **attributes: str) -> str:
        """A queue's URL."""
        made = self.client.create_queue(QueueName=self.prefix + name, Attributes=attributes, tags=tags or {})
        return str(made["QueueUrl"])

    def arn(self, url: str) -> str:
        """A queue's ARN."""
        answer = self.client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return str(answer["Attributes"]["QueueArn"])

    def redrive_to(self, url: str, receives: int = 3) -> str:
        """A RedrivePolicy to a queue."""
        return f'{{"deadLetterTargetArn":"{self.arn(url)}","maxReceiveCount":{receives}}}'


class Recorded:
    """A client that keeps the name of every operation asked of it."""

    def __init__(self, endpoint: str) -> None:
        self.client = sqs.client(endpoint)
        self.operations: list[str] = []
        self.client.meta.events.register("before-parameter-build.sqs", self._note)

    def _note(self, model: Any, **_: Any) -> None:
        self.operations.append(model.name)


class Fake:
    """A client of the five read-only calls over a dictionary of queues; anything else fails the test.

    `fail` maps (operation, queue name) or operation to the error code it answers with.
    """

    class Meta:
        """As botocore's."""

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
        """Its URL."""
        return f"https://sqs.eu-west-1.amazonaws.com/1/{name}"

    def list_queues(self, **params: Any) -> dict[str, Any]:
        """A page of URLs."""
        self._called("ListQueues", "")
        names = [n for n in sorted(self.queues) if n.startswith(params.get("QueueNamePrefix", ""))]
        start = int(params.get("NextToken", "0"))
        size = min(self.page, params["MaxResults"])
        page: dict[str, Any] = {"QueueUrls": [self.url(name) for name in names[start : start + size]]}
        if start + size < len(names):
            page["NextToken"] = str(start + size)
        return page

    def get_queue_attributes(self, **params: Any) -> dict[str, Any]:
        """Its attributes, with its ARN."""
        name = self._called("GetQueueAttributes", params["QueueUrl"])
        assert params["AttributeNames"] == ["All"]
        return {"Attributes": {"QueueArn": f"arn:aws:sqs:eu-west-1:1:{name}", **self.queues[name]}}

    def list_queue_tags(self, **params: Any) -> dict[str, Any]:
        """Its tags."""
        return {"Tags": self.tags.get(self._called("ListQueueTags", params["QueueUrl"]), {})}

    def list_dead_letter_source_queues(self, **params: Any) -> dict[str, Any]:
        """Who sends it dead letters."""
        name = self._called("ListDeadLetterSourceQueues", params["QueueUrl"])
        sources = [n for n, a in self.queues.items() if f':{name}"' in a.get("RedrivePolicy", "")]
        return {"queueUrls": [self.url(source) for source in sources]}

    def list_message_move_tasks(self, **params: Any) -> dict[str, Any]:
        """Its redrive tasks."""
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
            raise ClientError({"Error": {"Code": code, "Message": f"{code} of {name}"}}, operation)
        return name
