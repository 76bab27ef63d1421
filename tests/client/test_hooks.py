"""A watched client reports every event of the contract."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from queuewatch import Watch, watch
from queuewatch.events import built
from queuewatch.handles import HandleMap
from queuewatch.sqs_events import Call, Translator
from tests.client.hooked import new_queue, reported
from tests.client.transports import Kept
from tests.services import sqs
from tests.services.elasticmq import ElasticMQ


@pytest.fixture
def watched(service: tuple[str, str], kept: Kept) -> Iterator[tuple[Any, Watch]]:
    """A watched client."""
    client = sqs.client(service[0])
    watching = watch(client, kept, consumer="worker-1", linger_s=0.01)
    yield client, watching
    watching.unwatch()


def test_the_life_of_a_message_is_reported(watched: tuple[Any, Watch], kept: Kept, service: tuple[str, str]) -> None:
    """Reported are send, receive, extension, release, second receive and deletion, with counts, times and the consumer."""
    client, watching = watched
    url = new_queue(client)
    before = int(time.time() * 1000)
    message_id = client.send_message(QueueUrl=url, MessageBody="x")["MessageId"]
    [got] = client.receive_message(QueueUrl=url, VisibilityTimeout=30)["Messages"]
    client.change_message_visibility(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"], VisibilityTimeout=60)
    client.change_message_visibility(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"], VisibilityTimeout=0)
    [again] = client.receive_message(QueueUrl=url)["Messages"]
    client.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    kinds = reported(watching, kept, "type", "message_id", "consumer", "receive_count", "queue", "scope", "system")
    place = (url.rsplit("/", 1)[1], service[1], "aws_sqs")
    assert kinds == [
        ("sent", message_id, None, None, *place),
        ("received", message_id, "worker-1", 1, *place),
        ("extended", message_id, "worker-1", None, *place),
        ("released", message_id, "worker-1", None, *place),
        ("received", message_id, "worker-1", 2, *place),
        ("deleted", message_id, "worker-1", None, *place),
    ]
    sent, first, extended, released, second, _ = kept.events()
    assert first["invisible_until"] - first["at"] == 30_000
    assert extended["invisible_until"] - extended["at"] == 60_000
    assert "invisible_until" not in second
    assert "visible_at" not in released
    for event in (first, second):
        assert abs(event["sent_at"] - before) < 5000
        assert abs(event["first_received_at"] - before) < 5000
    assert before <= sent["at"] <= first["at"] <= extended["at"]
    assert watching.stats()["hook_errors"] == 0
    assert watching.stats()["handles"] == 1  # that of the first delivery, which was never used to delete


def test_a_fifo_deletion_refused_after_the_window_is_reported(kept: Kept, elasticmq: ElasticMQ) -> None:
    """Alone or in a batch, once per delivery; the deletion in time is reported as usual."""
    client = sqs.client(elasticmq.endpoint)
    watching = watch(client, kept, consumer="worker-1", linger_s=0.01)
    url = new_queue(client, ".fifo", FifoQueue="true")
    ids = [_send(client, url, group) for group in "ab"]
    late = {m["MessageId"]: m["ReceiptHandle"] for m in _receive(client, url, ids, VisibilityTimeout=1)}
    now = {m["MessageId"]: m["ReceiptHandle"] for m in _receive(client, url, ids, VisibilityTimeout=30)}
    for _ in range(2):
        with pytest.raises(client.exceptions.ReceiptHandleIsInvalid):
            client.delete_message(QueueUrl=url, ReceiptHandle=late[ids[0]])
    entries: list[Any] = [{"Id": "late", "ReceiptHandle": late[ids[1]]}, {"Id": "now", "ReceiptHandle": now[ids[1]]}]
    failed = client.delete_message_batch(QueueUrl=url, Entries=entries)["Failed"]
    assert [error["Id"] for error in failed] == ["late"]
    client.delete_message(QueueUrl=url, ReceiptHandle=now[ids[0]])
    ends = [
        one for one in reported(watching, kept, "type", "message_id", "group", "consumer") if one[0] not in ("sent", "received")
    ]
    assert sorted(ends) == sorted(
        (kind, message_id, group, "worker-1")
        for message_id, group in zip(ids, "ab", strict=True)
        for kind in ("deleted", "outlived")
    )
    assert watching.stats()["hook_errors"] == 0
    watching.unwatch()


def _send(client: Any, url: str, group: str) -> str:
    return str(
        client.send_message(QueueUrl=url, MessageBody="x", MessageGroupId=group, MessageDeduplicationId=group)["MessageId"]
    )


def _receive(client: Any, url: str, ids: list[str], **options: int) -> list[Any]:
    """Receive until each of these messages was delivered."""
    got: dict[str, Any] = {}
    while not got.keys() >= set(ids):
        answer = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=2, **options)
        got |= {message["MessageId"]: message for message in answer.get("Messages", [])}
    return list(got.values())


_URL = "https://sqs.eu-west-1.amazonaws.com/1/q"
_ENTRY = {"Id": "a", "ReceiptHandle": "h-1"}


@pytest.mark.parametrize(
    ("operation", "params", "answer", "kinds"),
    [
        (
            "SendMessageBatch",
            {"Entries": [{"Id": "a"}]},
            {"Successful": [{"Id": "a", "MessageId": "m"}], "Failed": None},
            ["sent"],
        ),
        ("SendMessageBatch", {"Entries": [{"Id": "a"}]}, {"Successful": None, "Failed": [{"Id": "a"}]}, []),
        ("ReceiveMessage", {}, {"Messages": None}, []),
        ("ReceiveMessage", {}, {"Messages": [{"MessageId": "m", "ReceiptHandle": "h", "Attributes": None}]}, ["received"]),
        ("DeleteMessageBatch", {"Entries": [_ENTRY]}, {"Successful": [{"Id": "a"}], "Failed": None}, ["deleted"]),
        ("DeleteMessageBatch", {"Entries": [_ENTRY]}, {"Successful": None, "Failed": [{"Id": "a", "Code": "InternalError"}]}, []),
        ("ChangeMessageVisibilityBatch", {"Entries": [_ENTRY]}, {"Successful": [{"Id": "a"}], "Failed": None}, ["released"]),
        ("ChangeMessageVisibilityBatch", {"Entries": [_ENTRY]}, {"Successful": None, "Failed": [{"Id": "a"}]}, []),
    ],
)
def test_a_list_that_is_null_is_empty(operation: str, params: dict[str, Any], answer: dict[str, Any], kinds: list[str]) -> None:
    """Some stand-ins for SQS write the lists of an answer that have no entry as null; the proxy gets these as they are."""
    handles = HandleMap()
    handles.remember("h-1", "m-1", None)
    found = Translator(handles, lambda: "worker-1").observe(Call(operation, {"QueueUrl": _URL, **params}, None, 1), answer)
    assert [built(event)["type"] for event in found] == kinds


@pytest.mark.parametrize(
    ("code", "message", "reported_types"),
    [
        (
            "InvalidParameterValue",
            "Value h for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.",
            ["outlived"],
        ),
        ("ReceiptHandleIsInvalid", "The receipt handle has expired", ["outlived"]),
        ("AccessDenied", "User is not authorized to perform: sqs:deletemessage", []),
        ("InvalidParameterValue", "Value h for parameter QueueUrl is invalid.", []),
    ],
)
def test_only_an_expired_handle_means_that_a_window_was_outlived(code: str, message: str, reported_types: list[str]) -> None:
    """In the words of SQS, which stand-ins do not use. A message received elsewhere is not known."""
    url = "https://sqs.us-east-1.amazonaws.com/123456789012/orders.fifo"
    handles = HandleMap()
    handles.remember("h", "m-1", "g")
    translator = Translator(handles, lambda: "worker-1")
    seen = []
    for handle in ("h", "h", "another's"):
        call = Call("DeleteMessage", {"QueueUrl": url, "ReceiptHandle": handle}, "us-east-1", 1_000, 2_000)
        seen += [built(one) for one in translator.observe_refusal(call, {"Code": code, "Message": message})]
    assert [event["type"] for event in seen] == reported_types
    assert all((event["message_id"], event["group"], event["at"]) == ("m-1", "g", 2_000) for event in seen)
    assert translator.unknown_handles == 0


_OTHER_URL = "https://us-east-1.queue.amazonaws.com/123456789012/orders"


@pytest.mark.parametrize(
    ("operation", "said", "reported_type"),
    [
        ("DeleteMessage", {"ReceiptHandle": "h"}, "deleted"),
        ("ChangeMessageVisibility", {"ReceiptHandle": "h", "VisibilityTimeout": 60}, "extended"),
    ],
)
def test_a_message_may_be_settled_through_another_url_of_its_queue(
    operation: str, said: dict[str, Any], reported_type: str
) -> None:
    """SQS has two host names in a region, and takes a handle at both."""
    translator = Translator(HandleMap(), lambda: "worker-1")
    received = Call("ReceiveMessage", {"QueueUrl": "https://sqs.us-east-1.amazonaws.com/123456789012/orders"}, "us-east-1", 1, 2)
    seen = translator.observe(received, {"Messages": [{"MessageId": "m-1", "ReceiptHandle": "h"}]})
    seen += translator.observe(Call(operation, {"QueueUrl": _OTHER_URL, **said}, "us-east-1", 3, 4), {})
    events = [built(one) for one in seen]
    assert [(event["type"], event["message_id"]) for event in events] == [("received", "m-1"), (reported_type, "m-1")]
    assert events[0]["queue"] == events[1]["queue"]
    assert events[0]["scope"] == events[1]["scope"]
    assert translator.unknown_handles == 0


def test_batches_map_entries_to_messages_and_leave_failures_out(watched: tuple[Any, Watch], kept: Kept) -> None:
    """Only successful entries are reported, each under its own message id."""
    client, watching = watched
    url = new_queue(client)
    entries = [{"Id": f"e{n}", "MessageBody": "x", "DelaySeconds": 0} for n in range(3)]
    sent = client.send_message_batch(QueueUrl=url, Entries=entries)
    ids = {done["Id"]: done["MessageId"] for done in sent["Successful"]}
    got: list[Any] = []
    while len(got) < 3:
        got += client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    handles = {message["MessageId"]: message["ReceiptHandle"] for message in got}
    changed = client.change_message_visibility_batch(
        QueueUrl=url,
        Entries=[
            {"Id": "a", "ReceiptHandle": handles[ids["e0"]], "VisibilityTimeout": 0},
            {"Id": "b", "ReceiptHandle": "nobody's", "VisibilityTimeout": 5},
        ],
    )
    assert [done["Id"] for done in changed["Successful"]] == ["a"]
    deleted = client.delete_message_batch(
        QueueUrl=url,
        Entries=[
            {"Id": "x", "ReceiptHandle": handles[ids["e1"]]},
            {"Id": "y", "ReceiptHandle": handles[ids["e2"]]},
        ],
    )
    assert len(deleted["Successful"]) == 2
    kinds = reported(watching, kept, "type", "message_id")
    assert kinds[:3] == [("sent", ids["e0"]), ("sent", ids["e1"]), ("sent", ids["e2"])]
    assert kinds[6:] == [("released", ids["e0"]), ("deleted", ids["e1"]), ("deleted", ids["e2"])]


def test_a_batch_entry_that_fails_is_not_reported(moto_sqs: Any, kept: Kept) -> None:
    """A partial failure, answered with status 200, leaves the failed entry out, for a send and for a delete."""
    client = sqs.client(moto_sqs.endpoint)
    url = new_queue(client)
    watching = watch(client, kept)
    message_id = client.send_message(QueueUrl=url, MessageBody="x")["MessageId"]
    [got] = client.receive_message(QueueUrl=url)["Messages"]

    def fail(parsed: dict[str, Any], **_: Any) -> None:
        parsed["Failed"] = [{"Id": done["Id"], "SenderFault": True, "Code": "X"} for done in parsed["Successful"]]
        parsed["Successful"] = []

    for operation in ("DeleteMessageBatch", "SendMessageBatch"):
        # Registered before the hooks, so that they see the changed response.
        client.meta.events.register_first(f"after-call.sqs.{operation}", fail)
    client.delete_message_batch(QueueUrl=url, Entries=[{"Id": "1", "ReceiptHandle": got["ReceiptHandle"]}])
    client.send_message_batch(QueueUrl=url, Entries=[{"Id": "1", "MessageBody": "x"}])
    assert reported(watching, kept, "type", "message_id") == [("sent", message_id), ("received", message_id)]
    watching.unwatch()


def test_fifo_events_carry_group_and_sequence(watched: tuple[Any, Watch], kept: Kept) -> None:
    """The order within a group can only be judged with both."""
    client, watching = watched
    url = new_queue(client, ".fifo", FifoQueue="true", ContentBasedDeduplication="true")
    client.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g1", MessageDeduplicationId="d1")
    [got] = client.receive_message(QueueUrl=url)["Messages"]
    client.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    assert "Attributes" not in got
    events = reported(watching, kept, "type", "group")
    assert events == [("sent", "g1"), ("received", "g1"), ("deleted", "g1")]
    assert kept.events()[1]["sequence"].isdigit()


def test_a_delayed_message_says_when_it_becomes_visible(watched: tuple[Any, Watch], kept: Kept) -> None:
    """The event of a message with its own DelaySeconds, also of zero, says when it becomes visible."""
    client, watching = watched
    url = new_queue(client, DelaySeconds="5")
    client.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=0)
    client.send_message(QueueUrl=url, MessageBody="x")
    client.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=7)
    client.send_message_batch(QueueUrl=url, Entries=[{"Id": "1", "MessageBody": "x", "DelaySeconds": 9}])
    assert watching.flush()
    assert [event["visible_at"] - event["at"] for event in kept.events() if "visible_at" in event] == [0, 7000, 9000]
    assert len(kept.events()) == 4


def test_a_dead_letter_says_where_it_came_from(elasticmq: Any, kept: Kept) -> None:
    """The receive from the dead-letter queue has DeadLetterQueueSourceArn."""
    client = sqs.client(elasticmq.endpoint)
    dlq = new_queue(client)
    arn = client.get_queue_attributes(QueueUrl=dlq, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = '{"deadLetterTargetArn":"' + arn + '","maxReceiveCount":"1"}'
    url = new_queue(client, RedrivePolicy=policy, VisibilityTimeout="0")
    watching = watch(client, kept)
    client.send_message(QueueUrl=url, MessageBody="x")
    client.receive_message(QueueUrl=url)
    client.receive_message(QueueUrl=url)
    [got] = client.receive_message(QueueUrl=dlq, WaitTimeSeconds=2)["Messages"]
    assert "Attributes" not in got
    assert reported(watching, kept, "type", "queue", "from_queue")[-1] == (
        "received",
        dlq.rsplit("/", 1)[1],
        url.rsplit("/", 1)[1],
    )
    client.start_message_move_task(SourceArn=arn, MaxNumberOfMessagesPerSecond=10)
    assert watching.flush()
    state = kept.events()[-1]
    assert (state["type"], state["queue"]) == ("queue_state", dlq.rsplit("/", 1)[1])
    task = state["attributes"]["redrive_task"]
    assert task == {"status": "RUNNING", "limit_per_s": 10}
    watching.unwatch()


def test_a_purge_concerns_the_whole_queue(watched: tuple[Any, Watch], kept: Kept) -> None:
    """The event has no message id."""
    client, watching = watched
    url = new_queue(client)
    client.purge_queue(QueueUrl=url)
    assert reported(watching, kept, "type", "queue", "message_id") == [("purged", url.rsplit("/", 1)[1], None)]


def test_a_failed_call_is_no_event_and_raises_as_before(watched: tuple[Any, Watch], kept: Kept) -> None:
    """The application gets its own error."""
    client, watching = watched
    url = new_queue(client) + "-gone"
    with pytest.raises(client.exceptions.QueueDoesNotExist):
        client.send_message(QueueUrl=url, MessageBody="x")
    with pytest.raises(Exception, match="Missing required parameter"):
        client.send_message(QueueUrl=url)
    assert reported(watching, kept, "type") == []
    assert watching.stats()["hook_errors"] == 0


def test_a_message_received_by_another_process_is_counted_not_guessed(watched: tuple[Any, Watch], kept: Kept) -> None:
    """A receipt handle from elsewhere cannot be mapped to a message here."""
    client, watching = watched
    other = boto3.Session("testing", "testing", region_name=sqs.REGION).client("sqs", endpoint_url=client.meta.endpoint_url)
    url = new_queue(client)
    client.send_message(QueueUrl=url, MessageBody="x")
    [got] = other.receive_message(QueueUrl=url)["Messages"]
    client.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    assert reported(watching, kept, "type") == [("sent",)]
    assert watching.stats()["unknown_handles"] == 1
