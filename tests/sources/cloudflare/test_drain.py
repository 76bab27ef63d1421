"""Telemetry is acknowledged only after it is emitted, and unreadable messages are not redelivered forever."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from sources.cloudflare.answers import PulledMessage
from sources.cloudflare.api import CloudflareApi
from sources.cloudflare.config import DrainConfig
from sources.cloudflare.drain import TelemetryDrain, events_of
from sources.cloudflare.errors import ApiError
from sources.collect import CollectorRefused
from sources.events import Event
from sources.wire import decode_records
from tests.sources.cloudflare.api_stub import ACCOUNT, TOKEN, Stub, StubQueue, answering, serving
from tests.waiting import until

EVENT = {"v": 1, "type": "deleted", "at": 1_750_000_000_000, "system": "cloudflare_queues", "queue": "q", "message_id": "m"}


@pytest.fixture
def stub() -> Iterator[Stub]:
    """An account with one queue."""
    with serving() as stub:
        stub.add("telemetry")
        yield stub


@pytest.fixture
def queue(stub: Stub) -> StubQueue:
    """The queue that carries telemetry."""
    return stub.queues[0]


@pytest.fixture
def drain(stub: Stub, queue: StubQueue) -> Iterator[TelemetryDrain]:
    """The drain under test."""
    with CloudflareApi(stub.url, ACCOUNT, lambda: TOKEN, timeout_s=5) as api:
        yield TelemetryDrain(DrainConfig(queue="telemetry", batch_size=10, idle_s=0.02), api, lambda: queue.id, "cloudflare:a")


def test_events_are_emitted_before_they_are_acknowledged(stub: Stub, queue: StubQueue, drain: TelemetryDrain) -> None:
    """No acknowledgement has been sent when `emit` is called."""
    queue.send(json.dumps([EVENT, EVENT]))
    queue.send(json.dumps(EVENT), "text")
    handed: list[Event] = []

    def emit(events: Sequence[Event]) -> None:
        assert stub.calls("/ack") == []
        handed.extend(events)

    assert drain.drain_once(queue.id, emit) == 2
    assert handed == [EVENT] * 3
    assert queue.messages == []
    assert len(stub.calls("/ack")) == 1
    assert drain.drain_once(queue.id, emit) == 0
    assert len(stub.calls("/ack")) == 1, "an empty pull acknowledges nothing"


def test_undelivered_events_are_not_acknowledged(stub: Stub, queue: StubQueue, drain: TelemetryDrain) -> None:
    """The message is redelivered when its lease ends."""
    queue.send(json.dumps(EVENT))

    def full(_: Sequence[Event]) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        drain.drain_once(queue.id, full)
    assert stub.calls("/ack") == []
    queue.messages[0].lease = None
    handed: list[Event] = []
    assert drain.drain_once(queue.id, handed.extend) == 1
    assert handed == [EVENT]


def test_a_queue_of_an_application_is_refused_before_anything_is_acknowledged(
    stub: Stub, queue: StubQueue, drain: TelemetryDrain
) -> None:
    """With the wrong name in `drain.queue`, the messages of an application would be lost."""
    queue.send(json.dumps({"order": 17, "type": "express"}))
    queue.send("pay invoice 4", "text")
    stop = threading.Event()
    with pytest.raises(CollectorRefused, match=r"'telemetry' are not telemetry.*drain\.queue"):
        drain.run(lambda _: stop.set(), stop)
    assert (stop.is_set(), len(queue.messages), stub.calls("/ack")) == (False, 2, [])


def test_a_queue_that_has_had_telemetry_may_have_other_messages(queue: StubQueue, drain: TelemetryDrain) -> None:
    """They are passed on as unreadable: refused, each of them would end the collector."""
    handed: list[Event] = []
    for body in (json.dumps(EVENT), "no telemetry"):
        queue.send(body, "text")
        assert drain.drain_once(queue.id, handed.extend) == 1
    assert handed == [EVENT, {"unreadable": "no telemetry"}]
    assert queue.messages == []


def test_a_failed_acknowledgement_means_duplicates_not_loss(stub: Stub, queue: StubQueue, drain: TelemetryDrain) -> None:
    """The message stays leased and is redelivered."""
    queue.send(json.dumps(EVENT))
    stub.faults["/ack"].append(answering(500, ""))
    handed: list[Event] = []
    with pytest.raises(ApiError):
        drain.drain_once(queue.id, handed.extend)
    queue.messages[0].lease = None
    drain.drain_once(queue.id, handed.extend)
    assert handed == [EVENT, EVENT]
    assert queue.messages == []


def test_heartbeats_of_its_own_say_that_the_queue_is_read(stub: Stub, drain: TelemetryDrain) -> None:
    """The collector's come while the list and the metrics can be read: a drain that may not pull was noticed by nobody."""
    stub.faults["/pull"].extend(answering(403, "{}") for _ in range(100))
    with draining(drain) as handed:
        until(lambda: len(stub.calls("/pull")) > 3, "three pulls are refused")
        assert handed == []
        stub.faults["/pull"].clear()
        until(lambda: handed, "the queue can be read")
        read = len(stub.calls("/pull"))
        until(lambda: len(stub.calls("/pull")) > read + 3, "it is read several times")
    [heartbeat] = handed
    assert (heartbeat["type"], heartbeat["system"], heartbeat["consumer"]) == (
        "heartbeat",
        "cloudflare_queues",
        "cloudflare:a/telemetry",
    )


def test_heartbeats_go_on_while_the_queue_is_read(stub: Stub, drain: TelemetryDrain, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single one would be a collector that fell silent."""
    monkeypatch.setattr("sources.cloudflare.drain._HEARTBEAT_S", 0.01)
    with draining(drain) as handed:
        until(lambda: len(handed) >= 3, "three heartbeats")
        stub.faults["/pull"].extend(answering(500, "") for _ in range(100))
        pulls = len(stub.calls("/pull"))
        until(lambda: len(stub.calls("/pull")) > pulls + 1, "it cannot be read any more")
        heard = len(handed)
        until(lambda: len(stub.calls("/pull")) > pulls + 3, "it is tried again")
        assert len(handed) == heard


def test_a_queue_that_is_not_in_the_account_has_no_heartbeat(stub: Stub) -> None:
    """Nothing is drained, however often it is looked for."""
    looked: list[None] = []
    with CloudflareApi(stub.url, ACCOUNT, lambda: TOKEN, timeout_s=5) as api:
        config = DrainConfig(queue="telemtry", idle_s=0.02)
        with draining(TelemetryDrain(config, api, lambda: looked.append(None), "cloudflare:a")) as handed:
            until(lambda: len(looked) >= 3, "it is looked for")
    assert handed == []


@contextmanager
def draining(drain: TelemetryDrain) -> Iterator[list[Event]]:
    """Run the drain in a thread; gives what it emits."""
    handed: list[Event] = []
    stop = threading.Event()
    thread = threading.Thread(target=drain.run, args=(handed.extend, stop))
    thread.start()
    try:
        yield handed
    finally:
        stop.set()
        thread.join(10)
    assert not thread.is_alive()


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["emit", "pull", "ack", "rate"])
def test_the_drain_recovers_from_a_failure(stub: Stub, queue: StubQueue, drain: TelemetryDrain, trouble: str) -> None:
    """After one failure of any step, nothing is lost."""
    for _ in range(25):
        queue.send(json.dumps(EVENT))
    handed: list[Event] = []
    failures = ["no space left"] if trouble == "emit" else []
    if trouble in ("pull", "ack"):
        stub.faults[f"/{trouble}"].append(answering(502, "<html>"))
    if trouble == "rate":
        stub.faults["/pull"].append(answering(429, "{}", retry_after="1"))

    def emit(events: Sequence[Event]) -> None:
        if failures:
            raise OSError(failures.pop())
        handed.extend(events)

    def is_empty() -> bool:
        if trouble in ("emit", "ack") and len(queue.messages) <= 10:
            for message in queue.messages:
                message.lease = None  # the lease ends
        return not queue.messages

    stop = threading.Event()
    thread = threading.Thread(target=drain.run, args=(emit, stop))
    thread.start()
    try:
        until(is_empty, "the queue is drained")
    finally:
        stop.set()
        thread.join(10)
    assert not thread.is_alive()
    assert queue.messages == []
    assert len(handed) >= 25


def pulled(body: str, content_type: str = "text") -> PulledMessage:
    """Return a message as a pull returns it."""
    return PulledMessage("lease", body, content_type)


def encoded(document: Any) -> str:
    """Return JSON as Cloudflare encodes bodies that were not sent as text."""
    return base64.b64encode(json.dumps(document).encode()).decode()


@pytest.mark.parametrize(
    ("why", "message", "expected"),
    [
        ("an array", pulled(json.dumps([EVENT, EVENT])), [EVENT, EVENT]),
        ("one object", pulled(json.dumps(EVENT)), [EVENT]),
        ("sent as JSON", pulled(encoded([EVENT]), "json"), [EVENT]),
        ("sent as bytes", pulled(encoded(EVENT), "bytes"), [EVENT]),
        ("JSON that is not encoded", pulled(json.dumps([EVENT]), "json"), [EVENT]),
        ("text that is encoded all the same", pulled(encoded([EVENT]), "text"), [EVENT]),
        ("a type nobody named", pulled(encoded([EVENT]), ""), [EVENT]),
        ("an empty array", pulled("[]"), []),
        ("one bad entry among good ones", pulled(json.dumps([EVENT, 5])), [EVENT, {"unreadable": "5"}]),
        ("no JSON", pulled("{broken"), [{"unreadable": "{broken"}]),
        ("a number", pulled("5"), [{"unreadable": "5"}]),
        ("nothing", pulled(""), [{"unreadable": ""}]),
        ("far too much", pulled("x" * 9_000), [{"unreadable": "x" * 2_000}]),
        ("nested without end", pulled("[" * 9_000), [{"unreadable": "[" * 2_000}]),
    ],
)
def test_a_body_is_read_however_it_was_sent(why: str, message: PulledMessage, expected: list[Event]) -> None:
    """Every content type is decoded; an unreadable body is emitted too, so that it is counted."""
    assert events_of(message) == expected, why


def test_an_unreadable_message_is_counted_as_invalid_and_removed(queue: StubQueue, drain: TelemetryDrain) -> None:
    """The decoder counts it as invalid and reads the other messages; the queue is empty afterwards."""
    queue.send("{broken", "text")
    queue.send(json.dumps([EVENT]))
    handed: list[Event] = []
    drain.drain_once(queue.id, handed.extend)
    decoded = decode_records([json.dumps(handed).encode()])
    assert decoded.events.num_rows == 1
    assert len(decoded.invalid) == 1
    assert queue.messages == []
