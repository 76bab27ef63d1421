"""The application sees the same with the hooks as without, and none of their errors."""

from __future__ import annotations

import re
from typing import Any

import pytest
from botocore.exceptions import ParamValidationError

from queuewatch import watch
from tests.client.hooked import new_queue
from tests.client.transports import Kept
from tests.services import sqs

ASKED: list[dict[str, Any]] = [
    {},
    {"AttributeNames": ["All"]},
    {"AttributeNames": ["SentTimestamp"]},
    {"MessageSystemAttributeNames": ["All"]},
    {"MessageSystemAttributeNames": ["ApproximateReceiveCount", "SenderId"]},
    {"AttributeNames": ["SenderId"], "MessageSystemAttributeNames": ["SentTimestamp"]},
    {"AttributeNames": [], "MessageAttributeNames": []},
    {"MessageAttributeNames": ["All"]},
    {"MessageAttributeNames": ["own"]},
    {"MessageAttributeNames": ["other"], "MessageSystemAttributeNames": ["SentTimestamp"]},
    {"MaxNumberOfMessages": 10, "VisibilityTimeout": 7, "WaitTimeSeconds": 0},
]


def _application(client: Any, asked: dict[str, Any]) -> list[Any]:
    """Make some calls; return their responses or errors."""
    url = new_queue(client)
    attributes = {
        "own": {"DataType": "String", "StringValue": "k1"},
        "other": {"DataType": "String", "StringValue": "v"},
    }
    answers = [
        client.send_message(QueueUrl=url, MessageBody="1", MessageAttributes=attributes),
        client.send_message_batch(QueueUrl=url, Entries=[{"Id": "a", "MessageBody": "2"}, {"Id": "b", "MessageBody": "3"}]),
    ]
    for _ in range(4):
        got = client.receive_message(QueueUrl=url, **asked)
        answers.append(got)
        for message in got.get("Messages", []):
            answers.append(client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"]))
    for wrong in ({"MessageSystemAttributeNames": ["Bogus"]}, {"MaxNumberOfMessages": 11}):
        try:
            answers.append(client.receive_message(QueueUrl=url, **wrong))
        except client.exceptions.ClientError as error:
            answers.append(error.response)
    return answers


_VOLATILE = re.compile(r"Id$|Handle$|^date$|requestid$|Timestamp$|length$|^server$|^Message$|RequestId")


def _shape(value: Any, name: str = "") -> Any:
    """Replace what differs between any two runs, and sort messages by their bodies."""
    if isinstance(value, dict):
        return {k: _shape(v, k) for k, v in sorted(value.items())}
    if isinstance(value, list):
        return sorted((_shape(item, name) for item in value), key=repr)
    return type(value).__name__ if _VOLATILE.search(name) else value


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_the_application_sees_the_same_with_and_without_hooks(service: tuple[str, str], asked: dict[str, Any]) -> None:
    """Responses and errors are equal, and the caller's lists are not changed."""
    plain, hooked = sqs.client(service[0]), sqs.client(service[0])
    watching = watch(hooked, Kept(), lineage_attribute="own")
    mine = {name: list(value) if isinstance(value, list) else value for name, value in asked.items()}
    before = _shape(_application(plain, asked))
    after = _shape(_application(hooked, mine))
    watching.unwatch()
    assert sorted(map(repr, after)) == sorted(map(repr, before))
    assert mine == asked
    assert watching.stats()["hook_errors"] == 0


_LISTS = ("AttributeNames", "MessageSystemAttributeNames", "MessageAttributeNames")


@pytest.mark.parametrize(
    "given",
    ["SentTimestamp", {"SentTimestamp"}, iter(["SentTimestamp"]), "", None],
    ids=["a string", "a set", "an iterator", "empty", "None"],
)
@pytest.mark.parametrize("name", _LISTS)
def test_botocore_refuses_what_is_no_list_as_without_hooks(moto_sqs: Any, kept: Kept, name: str, given: Any) -> None:
    """A mistake that works only while the client is watched would be noticed only when it no longer is."""
    plain, hooked = sqs.client(moto_sqs.endpoint), sqs.client(moto_sqs.endpoint)
    watching = watch(hooked, kept, lineage_attribute="own")
    said = []
    for client in (plain, hooked):
        with pytest.raises(ParamValidationError) as refused:
            client.receive_message(QueueUrl="http://sqs/1/q", **{name: given})
        said.append(str(refused.value))
    assert said[0] == said[1]
    watching.unwatch()


def test_a_presigned_url_requests_nothing_more(moto_sqs: Any, kept: Kept) -> None:
    """Whoever uses the URL gets the response as it is, so the hooks could not remove attributes from it."""
    client = sqs.client(moto_sqs.endpoint)
    watching = watch(client, kept, lineage_attribute="own")
    url = client.generate_presigned_url("receive_message", Params={"QueueUrl": "http://sqs/1/q"})
    assert "Attribute" not in url
    watching.unwatch()


def test_an_error_in_a_hook_does_not_reach_the_application(moto_sqs: Any, kept: Kept) -> None:
    """The error is counted; the application's response is correct, without the extra attributes."""
    client = sqs.client(moto_sqs.endpoint)
    url = new_queue(client)
    watching = watch(client, kept)
    assert watching._hooks is not None

    def fault(*_: object) -> None:
        raise RuntimeError("fault")

    watching._hooks._deliver = fault
    client.send_message(QueueUrl=url, MessageBody="x")
    [got] = client.receive_message(QueueUrl=url)["Messages"]
    assert "Attributes" not in got
    watching._hooks._clock_ns = fault  # type: ignore[assignment]
    client.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    assert watching.stats()["hook_errors"] == 3
    watching.unwatch()
