"""The proxy reports what the hooks would report, whichever protocol a call uses and whichever process makes it."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from queuewatch import watch
from tests.client.transports import Kept
from tests.proxy import scenario
from tests.services import proxy as proxy_service
from tests.services import sdks, sqs
from tests.services.elasticmq import ElasticMQ
from tests.services.proxy import Proxy
from tests.services.sdks import Sdk


def _lives(client: Any) -> None:
    """Make every kind of call that causes events."""
    name = f"q-{uuid.uuid4().hex[:10]}"
    url = client.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody="a")
    client.send_message(QueueUrl=url, MessageBody="b", DelaySeconds=2)
    [got] = client.receive_message(QueueUrl=url, VisibilityTimeout=30)["Messages"]
    client.change_message_visibility(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"], VisibilityTimeout=90)
    client.change_message_visibility(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"], VisibilityTimeout=0)
    [got] = client.receive_message(QueueUrl=url)["Messages"]
    client.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    entries = [{"Id": str(n), "MessageBody": "c"} for n in range(3)]
    client.send_message_batch(QueueUrl=url, Entries=entries)
    got = client.receive_message(QueueUrl=url, MaxNumberOfMessages=3)["Messages"]
    handles = [{"Id": m["MessageId"], "ReceiptHandle": m["ReceiptHandle"]} for m in got]
    changes = [{**entry, "VisibilityTimeout": 40} for entry in handles]
    client.change_message_visibility_batch(QueueUrl=url, Entries=changes)
    bad = {"Id": "bad", "ReceiptHandle": "no such handle"}
    client.delete_message_batch(QueueUrl=url, Entries=[*handles, bad])
    client.purge_queue(QueueUrl=url)
    fifo = client.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    client.send_message(QueueUrl=fifo, MessageBody="d", MessageGroupId="g", MessageDeduplicationId="1")
    [got] = client.receive_message(QueueUrl=fifo)["Messages"]
    client.delete_message(QueueUrl=fifo, ReceiptHandle=got["ReceiptHandle"])


_TIMES = ("at", "invisible_until", "visible_at")


def _without_times(event: dict[str, Any]) -> dict[str, Any]:
    return {name: "time" if name in _TIMES else value for name, value in event.items()}


def test_the_events_are_those_of_the_hooks(proxy: Proxy) -> None:
    """The hooks in the client and the proxy behind it see the same calls."""
    client = sqs.client(proxy.endpoint)
    kept = Kept()
    watching = watch(client, kept, consumer=proxy_service.CONSUMER, linger_s=0.01)
    _lives(client)
    assert watching.flush()
    watching.unwatch()
    hooked, proxied = kept.events(), proxy.events()
    assert [_without_times(event) for event in proxied] == [_without_times(event) for event in hooked]
    assert {event["type"] for event in proxied} == {"sent", "received", "extended", "released", "deleted", "purged"}
    for mine, theirs in zip(proxied, hooked, strict=True):
        for name in _TIMES:
            assert abs(mine.get(name, 0) - theirs.get(name, 0)) < 1000


def test_attributes_that_the_application_does_not_request_are_reported(proxy: Proxy) -> None:
    """The application gets no attributes, but the event has receive count and send time."""
    client = sqs.client(proxy.endpoint)
    url = client.create_queue(QueueName=f"q-{uuid.uuid4().hex[:10]}")["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody="a")
    [got] = client.receive_message(QueueUrl=url)["Messages"]
    assert "Attributes" not in got
    received = proxy.events()[-1]
    assert received["type"] == "received"
    assert received["receive_count"] == 1
    assert received["sent_at"] > 1_600_000_000_000


def test_a_message_received_by_one_process_and_deleted_by_another_is_known(proxy: Proxy, upstream: str) -> None:
    """The queue is identified by the URL that the proxy returns and by the one that SQS returns."""
    first, second = sqs.client(proxy.endpoint), sqs.client(proxy.endpoint)
    name = f"q-{uuid.uuid4().hex[:10]}"
    own_url = first.create_queue(QueueName=name)["QueueUrl"]
    assert own_url.startswith(proxy.endpoint)
    sqs_url = sqs.client(upstream).get_queue_url(QueueName=name)["QueueUrl"]
    for receive_url, delete_url in ((own_url, sqs_url), (sqs_url, own_url)):
        first.send_message(QueueUrl=own_url, MessageBody="a")
        [got] = first.receive_message(QueueUrl=receive_url)["Messages"]
        second.delete_message(QueueUrl=delete_url, ReceiptHandle=got["ReceiptHandle"])
    assert [event["type"] for event in proxy.events()] == ["sent", "received", "deleted"] * 2
    assert proxy.stats()["unknown_handles"] == 0


@pytest.mark.parametrize("protocol", ["json", "query"])
def test_a_fifo_deletion_refused_after_the_window_is_reported(elasticmq: ElasticMQ, protocol: str) -> None:
    """The application gets the error, and telemetry says that the window was outlived; alone and in a batch."""
    with proxy_service.start(elasticmq.endpoint) as proxy:
        client: Any = sqs.client(proxy.endpoint)
        url = client.create_queue(QueueName=f"q-{uuid.uuid4().hex[:10]}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        ids, late = [], []
        for group in "ab":
            sent = client.send_message(QueueUrl=url, MessageBody="x", MessageGroupId=group, MessageDeduplicationId=group)
            [got] = client.receive_message(QueueUrl=url, VisibilityTimeout=1)["Messages"]
            ids.append(sent["MessageId"])
            late.append(got["ReceiptHandle"])
            [_] = client.receive_message(QueueUrl=url, VisibilityTimeout=60, WaitTimeSeconds=3)["Messages"]
        if protocol == "json":
            with pytest.raises(client.exceptions.ReceiptHandleIsInvalid):
                client.delete_message(QueueUrl=url, ReceiptHandle=late[0])
            answer = client.delete_message_batch(QueueUrl=url, Entries=[{"Id": "b", "ReceiptHandle": late[1]}])
            assert [error["Id"] for error in answer["Failed"]] == ["b"]
        else:
            entry = {f"DeleteMessageBatchRequestEntry.1.{name}": text for name, text in (("Id", "b"), ("ReceiptHandle", late[1]))}
            assert _post(proxy, {"Action": "DeleteMessage", "QueueUrl": url, "ReceiptHandle": late[0]})[0] == 400
            status, answer = _post(proxy, {"Action": "DeleteMessageBatch", "QueueUrl": url, **entry})
            assert (status, b"<BatchResultErrorEntry>" in answer) == (200, True)
        events = proxy.events()
        assert proxy.stats()["telemetry_errors"] == 0
    assert [(e["message_id"], e["group"]) for e in events if e["type"] == "outlived"] == list(zip(ids, "ab", strict=True))
    assert "deleted" not in {e["type"] for e in events}


def _post(proxy: Proxy, form: dict[str, str]) -> tuple[int, bytes]:
    """Make a call of the Query protocol."""
    request = urllib.request.Request(proxy.endpoint, urllib.parse.urlencode(form).encode())
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_a_redriven_message_is_followed_by_its_lineage_attribute(upstream: str) -> None:
    """The proxy requests the attribute, reads it, and removes it from the response."""
    with proxy_service.start(upstream, "--lineage-attribute", "order") as proxy:
        client: Any = sqs.client(proxy.endpoint)
        name = f"q-{uuid.uuid4().hex[:10]}"
        dlq = client.create_queue(QueueName=f"{name}-dlq")["QueueUrl"]
        arn = client.get_queue_attributes(QueueUrl=dlq, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        policy = f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"1"}}'
        url = client.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy})["QueueUrl"]
        own = {"order": {"DataType": "String", "StringValue": "o-17"}}
        client.send_message(QueueUrl=url, MessageBody="a", MessageAttributes=own)
        [got] = client.receive_message(QueueUrl=url, VisibilityTimeout=0)["Messages"]
        assert "MessageAttributes" not in got
        assert "MD5OfMessageAttributes" not in got
        assert client.receive_message(QueueUrl=url).get("Messages", []) == []
        [dead] = client.receive_message(QueueUrl=dlq)["Messages"]
        client.send_message(QueueUrl=url, MessageBody="a", MessageAttributes=own)
        client.delete_message(QueueUrl=dlq, ReceiptHandle=dead["ReceiptHandle"])
        kinds = [event["type"] for event in proxy.events()]
    # A stand-in that does not report a dead letter's source queue allows no conclusion.
    assert kinds in (
        ["sent", "received", "received", "sent", "redriven", "deleted"],
        ["sent", "received", "received", "sent", "deleted"],
    )


@pytest.fixture(scope="session")
def old_boto3() -> Sdk:
    """A boto3 from before late 2023, which uses the Query protocol."""
    return sdks.require("boto3-query")


@pytest.mark.parametrize("name", ["standard", "fifo", "large"])
def test_a_query_application_gets_the_same_answers_and_causes_the_same_events(old_boto3: Sdk, upstream: str, name: str) -> None:
    """Direct and proxied responses are equal, and so are the events of both protocols."""
    with proxy_service.start(upstream) as proxy, proxy_service.start(upstream) as other:
        direct, proxied = (
            subprocess.run(
                [str(old_boto3.python), str(Path(scenario.__file__)), endpoint, name],
                capture_output=True,
                text=True,
                check=True,
                timeout=120,
            ).stdout
            for endpoint in (upstream, proxy.endpoint)
        )
        assert proxied == direct
        scenario.record(other.endpoint, name)
        query, json = proxy.events(), other.events()
        assert proxy.stats()["telemetry_errors"] == 0
    assert _shapes(query) == _shapes(json)
    assert query


def _shapes(events: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    fields = ("type", "group", "receive_count", "scope", "consumer")
    return Counter((*(event.get(name) for name in fields), *sorted(event)) for event in events)


@pytest.mark.slow
def test_current_boto3_uses_json_and_the_old_one_does_not(old_boto3: Sdk) -> None:
    """Otherwise the tests above would compare a protocol with itself."""
    program = "import boto3; print(boto3.client('sqs', 'us-east-1').meta.service_model.metadata['protocol'])"
    spoken = [
        subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
        for python in (sys.executable, str(old_boto3.python))
    ]
    assert spoken == ["json", "query"]
