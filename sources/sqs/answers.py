"""Read a queue's attributes, and recognise answers that are not SQS's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


class BadAnswer(Exception):
    """An answer that cannot be SQS's, although botocore accepts it."""


def read_attributes(client: SQSClient, url: str) -> dict[str, str]:
    """Return all attributes of a queue. Raises botocore's errors, and `BadAnswer` when there are none.

    botocore turns a page of HTML, or half of an answer, into an answer without attributes. Taken for a queue's settings, it
    would say that the queue has no dead-letter queue.
    """
    answer = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    attributes = answer.get("Attributes")
    if not attributes:
        raise BadAnswer("it has no attributes, so it is not from SQS: check the proxy or endpoint_url")
    return {str(name): str(value) for name, value in attributes.items()}
