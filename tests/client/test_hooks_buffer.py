"""What a call leaves in the buffer: the values at the time of the call, no message body, and no more than fits."""

from __future__ import annotations

import re
from typing import Any

from queuewatch import watch
from tests.client.hooked import new_queue, reported
from tests.client.transports import Broken, Kept
from tests.services import sqs


def test_what_the_application_changes_after_a_call_is_not_reported(moto_sqs: Any, kept: Kept) -> None:
    """Events are built later, in another thread, from the values at the time of the call."""
    client = sqs.client(moto_sqs.endpoint)
    url = new_queue(client, ".fifo", FifoQueue="true", ContentBasedDeduplication="true")
    watching = watch(client, kept, consumer="worker-1", linger_s=60)
    entries: list[Any] = [{"Id": "1", "MessageBody": "x", "MessageGroupId": "g1"}]
    sent = client.send_message_batch(QueueUrl=url, Entries=entries)
    [message_id] = [done["MessageId"] for done in sent["Successful"]]
    entries[0] |= {"Id": "2", "MessageGroupId": "changed"}
    entries.clear()
    sent["Successful"][0]["MessageId"] = "changed"
    answer: dict[str, Any] = client.receive_message(QueueUrl=url, MessageSystemAttributeNames=["All"])  # type: ignore[assignment]
    [got] = answer["Messages"]
    handle = got["ReceiptHandle"]
    got["MessageId"] = got["ReceiptHandle"] = "changed"
    got["Attributes"] |= dict.fromkeys(got["Attributes"], "changed")
    answer.clear()
    changes: list[Any] = [{"Id": "1", "ReceiptHandle": handle, "VisibilityTimeout": 30}]
    client.change_message_visibility_batch(QueueUrl=url, Entries=changes)
    changes[0] |= {"ReceiptHandle": "changed", "VisibilityTimeout": 0}
    assert reported(watching, kept, "type", "message_id", "group", "receive_count") == [
        ("sent", message_id, "g1", None),
        ("received", message_id, "g1", 1),
        ("extended", message_id, "g1", None),
    ]
    watching.unwatch()


def test_what_another_task_changes_during_a_call_is_not_reported(moto_sqs: Any, kept: Kept) -> None:
    """Tasks of an asynchronous application may share the list that one of them is sending."""
    client = sqs.client(moto_sqs.endpoint)
    url = new_queue(client)
    watching = watch(client, kept, consumer="worker-1", linger_s=60)
    entries: list[Any] = []

    def meanwhile(**_: object) -> None:
        entries[0] |= {"Id": "2", "ReceiptHandle": "changed", "DelaySeconds": 9}
        entries.clear()

    client.meta.events.register("before-send.sqs", meanwhile)
    entries.append({"Id": "1", "MessageBody": "x", "DelaySeconds": 0})
    [done] = client.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]
    client.meta.events.unregister("before-send.sqs", meanwhile)
    [got] = client.receive_message(QueueUrl=url)["Messages"]
    client.meta.events.register("before-send.sqs", meanwhile)
    entries.append({"Id": "1", "ReceiptHandle": got["ReceiptHandle"]})
    client.delete_message_batch(QueueUrl=url, Entries=entries)
    assert reported(watching, kept, "type", "message_id") == [
        ("sent", done["MessageId"]),
        ("received", done["MessageId"]),
        ("deleted", done["MessageId"]),
    ]
    assert watching.stats()["hook_errors"] == 0
    watching.unwatch()


def test_no_message_body_is_kept_in_the_buffer(moto_sqs: Any, kept: Kept) -> None:
    """Twenty thousand bodies of 1 MiB would fill the memory."""
    client = sqs.client(moto_sqs.endpoint)
    url = new_queue(client)
    watching = watch(client, kept, linger_s=60)
    assert watching._sender is not None
    attributes: Any = {"own": {"DataType": "String", "StringValue": "the attribute"}}
    client.send_message(QueueUrl=url, MessageBody="the body", MessageAttributes=attributes)
    client.send_message_batch(QueueUrl=url, Entries=[{"Id": "1", "MessageBody": "the body"}])
    for _ in range(2):
        [got] = client.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
        client.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    waiting = list(watching._sender.sender._box._events)
    assert len(waiting) == 6
    assert not re.search("the body|the attribute", str(waiting))
    watching.unwatch()


def test_a_message_received_while_the_buffer_is_full_is_known_when_it_is_deleted(moto_sqs: Any) -> None:
    """The receive is dropped and counted; the deletion, after the destination is back, is reported."""
    broken = Broken()
    broken.gate.clear()
    client = sqs.client(moto_sqs.endpoint)
    url = new_queue(client)
    watching = watch(client, broken, max_buffered=1, linger_s=0.01)
    message_id = client.send_message(QueueUrl=url, MessageBody="x")["MessageId"]
    [got] = client.receive_message(QueueUrl=url)["Messages"]
    assert watching.stats()["dropped_overflow"] == 1
    broken.gate.set()
    assert watching.flush()
    client.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    assert reported(watching, broken, "type", "message_id") == [("sent", message_id), ("deleted", message_id)]
    watching.unwatch()
