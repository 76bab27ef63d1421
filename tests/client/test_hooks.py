"""A watched client reports every event of the contract, and the application sees the same as without the hooks."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from queuewatch import Watch, unwatch, watch
from tests.client.transports import Broken, Kept
from tests.services import sqs

SCOPES = {"moto_sqs": "123456789012/us-east-1", "elasticmq": "000000000000/us-east-1"}


@pytest.fixture(params=["moto_sqs", "elasticmq"])
def service(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Endpoint and scope of a stand-in for SQS."""
    return request.getfixturevalue(request.param).endpoint, SCOPES[request.param]


@pytest.fixture
def kept() -> Kept:
    """A transport that keeps the events."""
    return Kept()


def new_queue(client: Any, suffix: str = "", **attributes: str) -> str:
    """Create a queue with a name that no other test uses, and return its URL."""
    made = client.create_queue(QueueName=f"q-{uuid.uuid4().hex[:10]}{suffix}", Attributes=attributes)
    return str(made["QueueUrl"])


def reported(watching: Watch, kept: Kept, *fields: str) -> list[tuple[Any, ...]]:
    """Return the chosen fields of every event so far."""
    assert watching.flush()
    return [tuple(event.get(name) for name in fields) for event in kept.events()]


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
    """The event of a message with its own DelaySeconds says when it becomes visible."""
    client, watching = watched
    url = new_queue(client)
    client.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=7)
    client.send_message_batch(QueueUrl=url, Entries=[{"Id": "1", "MessageBody": "x", "DelaySeconds": 9}])
    assert watching.flush()
    assert [event["visible_at"] - event["at"] for event in kept.events()] == [7000, 9000]


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


def test_sessions_cover_clients_and_resources_made_later(moto_sqs: Any, kept: Kept) -> None:
    """Message objects of a resource have only the attributes that were asked for."""
    session = sqs.session()
    watching = watch(session, kept)
    resource = session.resource("sqs", endpoint_url=moto_sqs.endpoint)
    queue = resource.create_queue(QueueName=f"r-{uuid.uuid4().hex[:8]}")
    queue.send_message(MessageBody="x")
    [message] = queue.receive_messages(AttributeNames=["SenderId"])
    assert set(message.attributes) == {"SenderId"}
    message.delete()
    assert reported(watching, kept, "type") == [("sent",), ("received",), ("deleted",)]
    unwatch(session)
    queue.send_message(MessageBody="unseen")
    assert not watching.active
    assert len(kept.events()) == 3


@pytest.mark.parametrize("kind", ["resource", "botocore session", "default session"])
def test_resources_and_sessions_can_be_watched(moto_sqs: Any, kept: Kept, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`watch` accepts a resource, a botocore session, or boto3's default session."""
    session = sqs.session()
    if kind == "resource":
        resource = session.resource("sqs", endpoint_url=moto_sqs.endpoint)
        watching = watch(resource, kept)
        client = resource.meta.client
    elif kind == "botocore session":
        watching = watch(session._session, kept)
        client = session.client("sqs", endpoint_url=moto_sqs.endpoint)
    else:
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", session)
        watching = watch(to=kept)
        client = boto3.client("sqs", endpoint_url=moto_sqs.endpoint)
    client.send_message(QueueUrl=new_queue(client), MessageBody="x")
    assert reported(watching, kept, "type") == [("sent",)]
    watching.unwatch()


def test_nothing_is_reported_twice(moto_sqs: Any, kept: Kept) -> None:
    """A session and its client are both watched, and the client twice."""
    session = sqs.session()
    one = watch(session, kept)
    client = session.client("sqs", endpoint_url=moto_sqs.endpoint)
    two = watch(client, kept)
    three = watch(client, kept)
    client.send_message(QueueUrl=new_queue(client), MessageBody="x")
    for watching in (one, two, three):
        assert watching.flush() or not watching.active
    assert [event["type"] for event in kept.events()] == ["sent"]
    for watching in (one, three):
        watching.unwatch()


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


def test_a_watched_client_is_not_kept_alive(moto_sqs: Any, kept: Kept) -> None:
    """Watches are kept in a table with weak references."""
    import gc
    import weakref

    client = sqs.client(moto_sqs.endpoint)
    watching = watch(client, kept)
    gone = weakref.ref(client.meta.events)
    del client
    gc.collect()
    assert gone() is None
    watching.unwatch()


@pytest.mark.parametrize(
    ("what", "error"), [(object(), TypeError), (sqs.session(), ValueError)], ids=["no client", "no destination"]
)
def test_misuse_fails_at_once(what: Any, error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong arguments are the caller's error, so `watch` raises."""
    monkeypatch.delenv("QUEUEWATCH_TO", raising=False)
    with pytest.raises(error):
        watch(what, None if error is ValueError else Kept())


def test_a_typo_in_the_environment_does_not_stop_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistyped destination is logged; the application starts without telemetry."""
    monkeypatch.setenv("QUEUEWATCH_TO", "kafak://broker/topic")
    assert not watch(sqs.session()).active


def test_one_variable_switches_everything_off(moto_sqs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no hook and no thread, and the destination is not even parsed."""
    monkeypatch.setenv("QUEUEWATCH_DISABLED", "1")
    client = sqs.client(moto_sqs.endpoint)
    watching = watch(client, "nonsense")
    client.send_message(QueueUrl=new_queue(client), MessageBody="x")
    assert not watching.active
    assert watching.flush()
    assert watching.stats() == {"calls": 0}
    watching.unwatch()
