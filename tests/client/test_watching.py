"""What can be watched: sessions, clients and resources, each once; one variable switches it off."""

from __future__ import annotations

import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.hooks import HierarchicalEmitter

from queuewatch import Watch, flush, stats, unwatch, watch
from queuewatch.cloudflare import PullConsumer
from queuewatch.environment import DISABLED_VARIABLE, is_disabled
from tests.client.hooked import new_queue, reported
from tests.client.tracing import before_each_line
from tests.client.transports import Kept
from tests.services import sqs


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


def test_the_counters_of_a_destination_cover_everything_that_reports_to_it(moto_sqs: Any, tmp_path: Path) -> None:
    """Two clients share a sender, a third has other limits and so its own, and a pull consumer watches no client."""
    to = f"spool:{tmp_path}"
    clients = [sqs.client(moto_sqs.endpoint) for _ in range(3)]
    made = [watch(client, to, max_handles=max_handles) for client, max_handles in zip(clients, (10, 10, 20), strict=True)]
    for client in clients:
        url = new_queue(client)
        client.send_message(QueueUrl=url, MessageBody="x")
        client.receive_message(QueueUrl=url)
    with PullConsumer("a", "0123", queue="orders", to=to) as consumer:
        consumer._report([{"v": 1, "type": "heartbeat", "at": 1_795_518_460_148, "consumer": "x"}])
        assert flush()
        found = stats()[f"spool:{tmp_path}"]
        assert (found["calls"], found["handles"], found["sent"], found["last_error"]) == (6, 3, 7, None)
        assert found.keys() == made[0].stats().keys()
        for watching in made:
            watching.unwatch()
        found = stats()[f"spool:{tmp_path}"]
        assert (found["calls"], found["sent"]) == (0, 1)
    assert f"spool:{tmp_path}" not in stats()


def test_the_counters_can_be_read_while_a_session_is_watched(kept: Kept) -> None:
    """Another thread may make a session at any moment, and so may a signal handler."""
    sessions = [_session() for _ in range(200)]
    unwatched = iter(sessions)
    for _ in range(3):
        watch(next(unwatched), kept)

    def watch_another() -> None:
        session = next(unwatched, None)
        if session is not None:
            watch(session, kept)

    with before_each_line(watch_another, "queuewatch/watching.py", "weakref"):
        assert stats()[kept.name]["calls"] == 0
    assert len(list(unwatched)) < 190
    for session in sessions:
        unwatch(session)


def _session() -> Any:
    """Return what `watch` needs of a session."""
    return SimpleNamespace(events=HierarchicalEmitter())


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


def _observed(watching: Watch) -> int:
    return int(watching.stats()["calls"] or 0)


def test_a_session_watched_again_takes_its_clients_along(moto_sqs: Any, kept: Kept) -> None:
    """Clients made under the previous watch, and calls after it has ended, are reported by the newest one only."""
    session = sqs.session()
    one = watch(session, kept)
    client = session.client("sqs", endpoint_url=moto_sqs.endpoint)
    url = new_queue(client)
    newest = Kept()
    two = watch(session, newest)
    assert (one.active, two.active) == (False, True)
    client.send_message(QueueUrl=url, MessageBody="x")
    session.client("sqs", endpoint_url=moto_sqs.endpoint).send_message(QueueUrl=url, MessageBody="x")
    assert reported(two, newest, "type") == [("sent",), ("sent",)]
    one.unwatch()
    unwatch(session)
    client.send_message(QueueUrl=url, MessageBody="unseen")
    three = watch(session, newest)
    client.send_message(QueueUrl=url, MessageBody="x")
    assert reported(three, newest, "type") == [("sent",)] * 3
    assert reported(one, kept, "type") == []
    three.unwatch()


@pytest.mark.parametrize("session_ends", ["before", "after", "never"])
def test_a_client_of_a_watched_session_can_be_watched_itself(moto_sqs: Any, kept: Kept, session_ends: str) -> None:
    """Its calls are reported by its own watch, whenever the session's ends, and each call once."""
    session = sqs.session()
    of_session = watch(session, kept)
    client = session.client("sqs", endpoint_url=moto_sqs.endpoint)
    url = new_queue(client)
    calls = _observed(of_session)
    if session_ends == "before":
        unwatch(session)
    own = Kept()
    of_client = watch(client, own)
    client.send_message(QueueUrl=url, MessageBody="x")
    if session_ends == "after":
        unwatch(session)
    client.send_message(QueueUrl=url, MessageBody="x")
    assert reported(of_client, own, "type") == [("sent",), ("sent",)]
    assert _observed(of_session) == calls
    unwatch(client)
    client.send_message(QueueUrl=url, MessageBody="unseen")
    assert len(own.events()) == 2
    of_session.unwatch()


def test_watching_again_keeps_what_was_received(moto_sqs: Any, kept: Kept) -> None:
    """The receipt handles of the previous watch with the same destination are still known."""
    client = sqs.client(moto_sqs.endpoint)
    url = new_queue(client)
    watch(client, kept)
    client.send_message(QueueUrl=url, MessageBody="x")
    [got] = client.receive_message(QueueUrl=url)["Messages"]
    watching = watch(client, kept)
    client.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    assert reported(watching, kept, "type") == [("sent",), ("received",), ("deleted",)]
    watching.unwatch()


def test_a_watch_that_ends_during_a_receive_leaves_no_attributes_in_the_response(moto_sqs: Any, kept: Kept) -> None:
    """The call was changed to request them, and the application did not request any."""
    client = sqs.client(moto_sqs.endpoint)
    url = new_queue(client)
    client.send_message(QueueUrl=url, MessageBody="x")
    watch(client, kept)
    client.meta.events.register("before-send.sqs.ReceiveMessage", lambda **_: unwatch(client))
    [got] = client.receive_message(QueueUrl=url)["Messages"]
    assert "Attributes" not in got


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


@pytest.mark.parametrize("kind", ["client", "resource"])
def test_a_client_of_another_service_is_a_warning(kind: str, kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    """It would be watched in vain; a session and a client of SQS are right."""
    session = boto3.Session(aws_access_key_id="testing", aws_secret_access_key="testing", region_name="eu-west-1")
    for right in (session, session.client("sqs"), session.resource("sqs")):
        watch(right, kept).unwatch()
    assert caplog.messages == []
    watch(getattr(session, kind)("s3"), kept).unwatch()
    assert caplog.messages == ["queuewatch: watch was given a client of s3, not of SQS: none of its calls is reported"]


def test_a_typo_in_the_environment_does_not_stop_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistyped destination is logged; the application starts without telemetry."""
    monkeypatch.setenv("QUEUEWATCH_TO", "kafak://broker/topic")
    assert not watch(sqs.session()).active


@pytest.mark.parametrize(
    ("value", "disabled"), [(None, False), ("", False), ("0", False), ("off", False), ("No", False), ("1", True), ("true", True)]
)
def test_telemetry_is_on_unless_the_variable_says_otherwise(value: str | None, disabled: bool) -> None:
    """QUEUEWATCH_DISABLED=off has the same meaning in a service, the proxy and a Lambda function: not disabled."""
    environment = {} if value is None else {DISABLED_VARIABLE: value}
    assert is_disabled(environment) is disabled


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
