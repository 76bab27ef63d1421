"""The message lifecycles that a pull consumer reports agree with the queue."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from queuewatch.cloudflare import Message, PullConsumer, PullError
from queuewatch.sender import _senders
from queuewatch.sharing import _shared
from sources.wire import decode_records
from tests.client.pull_broker import START_MS, Broker, Held, serving
from tests.client.transports import Kept
from tests.spooled import spooled

LEASE_S = 30


@dataclass(frozen=True)
class Row:
    """A consumer's steps, and the state of its messages afterwards.

    A step is `pull N`, `wait SECONDS`, `ack I…`, `retry I… [after S]`; I are deliveries in the order of the pulls.
    """

    steps: str
    states: str
    why: str
    broker: Broker = field(default_factory=Broker)
    knows: bool = True
    """Whether the consumer knows the maximum number of retries and the dead-letter queue."""


NO_DLQ = Broker(dead_letters=False, max_retries=0)
ONE_TRY = Broker(max_retries=0)
TWO_TRIES = Broker(max_retries=1)
OLD_API = Broker(names_leases=False)

TABLE = (
    Row("pull 3", "leased leased leased", "delivered, and nothing said"),
    Row("pull 1", "leased available available", "one of three"),
    Row("pull 3; ack 0 1 2", "gone gone gone", "the usual consumer"),
    Row("pull 3; ack 0", "gone leased leased", "one acknowledged, the others still worked on"),
    Row("pull 3; ack 0; ack 1; ack 2", "gone gone gone", "one by one"),
    Row("pull 3; retry 0 1 2", "available available available", "given back at once"),
    Row("pull 3; retry 1", "leased available leased", "one given back"),
    Row("pull 3; retry 0 after 60", "delayed leased leased", "given back for later"),
    Row("pull 3; retry 0 after 60; wait 59", "delayed available available", "leases end before the delay does"),
    Row("pull 3; retry 0 after 60; wait 60", "available available available", "the delay is over"),
    Row("pull 3; ack 0; retry 1 after 10", "gone delayed leased", "both in a batch"),
    Row("pull 3; wait 29", "leased leased leased", "a lease lasts"),
    Row("pull 3; wait 30", "available available available", "a lease ends with no word from anybody"),
    Row("pull 3; wait 31; ack 0", "available available available", "an acknowledgement after the lease counts for nothing"),
    Row("pull 3; wait 31; retry 0 after 60", "available available available", "neither does a retry"),
    Row("pull 3; wait 31; pull 3; ack 0", "leased leased leased", "the old lease of a message delivered again"),
    Row("pull 3; wait 31; pull 3; ack 3", "gone leased leased", "the new lease"),
    Row("pull 3; retry 0; pull 1; ack 3", "gone leased leased", "received twice, acknowledged once"),
    Row("pull 3; ack 0; ack 0", "gone leased leased", "acknowledged twice"),
    Row("pull 3; retry 0; ack 0", "available leased leased", "an acknowledgement after a retry"),
    Row("pull 3; ack 0; retry 0", "gone leased leased", "a retry after an acknowledgement"),
    Row("pull 3; retry 0", "dead leased leased", "the last delivery given back", ONE_TRY),
    Row("pull 3; retry 0 after 60", "dead leased leased", "its delay is not waited for", ONE_TRY),
    Row("pull 3; ack 0", "gone leased leased", "the last delivery acknowledged", ONE_TRY),
    Row("pull 3; retry 0; pull 1; retry 3", "dead leased leased", "two deliveries used up", TWO_TRIES),
    Row("pull 3; wait 31; pull 3; retry 3", "dead leased leased", "a lease that ended counts as a delivery", TWO_TRIES),
    Row("pull 3; retry 0", "gone leased leased", "no dead-letter queue: dropped", NO_DLQ),
    Row("pull 3; retry 0", "delayed leased leased", "the queue's own delay", Broker(retry_delay_s=45)),
    Row("pull 3; retry 0 after 0", "available leased leased", "zero overrides it", Broker(retry_delay_s=45)),
    Row("pull 3; wait 31; ack 0 1 2", "available available available", "an API that names no leases: all had ended", OLD_API),
    Row("pull 3; ack 0 1", "gone gone leased", "an API that names no leases: all were good", OLD_API),
)


def test_at_least_twenty_lifecycles_are_tried() -> None:
    """The comparison proves only as much as the table covers."""
    assert len(TABLE) >= 20


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.steps} ({row.why})")
def test_what_is_reported_agrees_with_the_queue(row: Row) -> None:
    """Only the events are used, by the rules of the wire format: a window ends by time, and a settlement is final."""
    with _consumer(row.broker, knows=row.knows) as (broker, consumer, kept):
        _play(row.steps, broker, consumer)
        assert consumer.flush()
        truth = [broker.state(f"m{i}") for i in range(3)]
        assert [state for state, _ in truth] == row.states.split()
        assert [_concluded(kept.events(), f"m{i}", broker.now) for i in range(3)] == truth
        assert decode_records(kept.payloads).invalid == []


def test_a_receive_carries_what_the_api_returns() -> None:
    """The event has attempts, send time, and the end of the lease."""
    with _consumer(Broker()) as (broker, consumer, kept):
        _play("pull 1; retry 0; pull 1", broker, consumer)
        consumer.flush()
    received = [e for e in kept.events() if e["type"] == "received"]
    assert [e["receive_count"] for e in received] == [1, 2]
    assert received[0] == {
        "v": 1,
        "type": "received",
        "at": START_MS,
        "system": "cloudflare_queues",
        "scope": "account",
        "queue": "orders",
        "message_id": "m0",
        "consumer": "billing-1",
        "receive_count": 1,
        "sent_at": START_MS - 5_000,
        "invisible_until": START_MS + LEASE_S * 1000,
    }


@pytest.mark.parametrize("given", [Broker(), OLD_API], ids=["names leases", "names no leases"])
def test_an_acknowledgement_after_its_lease_is_reported_as_outlived(given: Broker) -> None:
    """The work was done, too late: this shows that the lease is too short. A retry after the lease says nothing of the kind."""
    with _consumer(given) as (broker, consumer, kept):
        _play("pull 2; wait 31; ack 0; retry 1", broker, consumer)
        consumer.flush()
    outlived = {"v": 1, "type": "outlived", "at": START_MS + 31_000, "system": "cloudflare_queues", "scope": "account"}
    outlived |= {"queue": "orders", "message_id": "m0", "consumer": "billing-1"}
    assert kept.events()[2:] == [outlived]


def test_a_second_acknowledgement_within_the_lease_is_not_outlived() -> None:
    """The API refuses it because the message is gone."""
    with _consumer(Broker()) as (broker, consumer, kept):
        _play("pull 1; ack 0; ack 0", broker, consumer)
        consumer.flush()
    assert [e["type"] for e in kept.events()] == ["received", "deleted"]


def test_the_calls_match_the_published_api() -> None:
    """Requests have the documented paths, bodies and bearer token."""
    with _consumer(Broker()) as (broker, consumer, _):
        _play("pull 2; ack 0; retry 1 after 7", broker, consumer)
    folder = "/client/v4/accounts/account/queues/0123/messages"
    assert broker.requests == [
        (f"{folder}/pull", {"batch_size": 2, "visibility_timeout_ms": LEASE_S * 1000}, "Bearer hush"),
        (f"{folder}/ack", {"acks": [{"lease_id": "lease-1"}], "retries": []}, "Bearer hush"),
        (f"{folder}/ack", {"acks": [], "retries": [{"lease_id": "lease-2", "delay_seconds": 7}]}, "Bearer hush"),
    ]


def test_an_ambiguous_settlement_is_not_reported() -> None:
    """If one of two leases is gone and the API gives only a number, neither message is reported as deleted."""
    with _consumer(OLD_API) as (_, consumer, kept):
        one, other = consumer.pull(2)
        assert consumer.settle([one]).acked == 1
        assert consumer.settle([one, other]).acked == 1
        consumer.flush()
        assert [e["message_id"] for e in kept.events() if e["type"] == "deleted"] == ["m0"]
        assert consumer.unknown == 2


def test_without_knowing_max_retries_the_last_retry_is_reported_as_released() -> None:
    """The service draws the conclusion; a consumer that does not know must not guess."""
    with _consumer(ONE_TRY, knows=False) as (broker, consumer, kept):
        _play("pull 1; retry 0", broker, consumer)
        consumer.flush()
        assert [e["type"] for e in kept.events()] == ["received", "released"]


@pytest.mark.parametrize("status", [401, 429, 500])
def test_a_refused_call_is_an_error_and_no_event(status: int) -> None:
    """The caller gets the error with the API's text, without the token."""
    with _consumer(Broker(status=status)) as (_, consumer, kept):
        with pytest.raises(PullError, match="Authentication error") as caught:
            consumer.pull()
        assert caught.value.status == status
        assert "hush" not in str(caught.value)
        consumer.flush()
        assert kept.events() == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_error_and_takes_the_token_nowhere(status: int) -> None:
    """urllib would follow most of them with the bearer token, to any server."""
    with serving(Broker()) as other:
        elsewhere = f"{other.url}/pull"
        redirect = f"HTTP/1.1 {status} Moved\r\nLocation: {elsewhere}?key=k\r\nContent-Length: 0\r\n\r\n".encode()
        with _answering(redirect) as url, pytest.raises(PullError) as caught:
            PullConsumer("a", "0123", queue="orders", to=Kept(), token="hush", base_url=url).pull()
    assert str(caught.value) == f"pull: the API answered {status}: a redirect to {elsewhere}, which is not followed"
    assert caught.value.status == status
    assert other.requests == []
    assert other.strays == []


@pytest.mark.parametrize("token", ["hush\n", "hüsh"])
def test_a_token_that_no_header_may_have_is_not_shown(token: str) -> None:
    """A secret read from a file often ends with a line break, and a traceback shows every error before the last."""
    with serving(Broker()) as other, pytest.raises(PullError, match="pull: the token contains characters") as caught:
        PullConsumer("a", "0123", queue="orders", to=Kept(), token=token, base_url=other.url).pull()
    assert caught.value.__cause__ is None
    assert other.requests == []


def test_an_unreachable_api_is_an_error() -> None:
    """The error has no status."""
    with _consumer(Broker()) as (_, consumer, _kept):
        pass
    with pytest.raises(PullError) as caught:
        consumer.pull()
    assert caught.value.status is None


@pytest.mark.parametrize(
    ("response", "status"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 500\r\n\r\n<html>", 503),
        (b'HTTP/1.1 200 OK\r\n\r\n{"success": true, "result": {"messages": [{"id": "m"}]}}', None),
        (b'HTTP/1.1 200 OK\r\n\r\n{"success": true, "result": {"messages": ["m"]}}', None),
        (b'HTTP/1.1 200 OK\r\n\r\n{"success": true, "result": {"messages": 5}}', None),
        (
            b'HTTP/1.1 200 OK\r\n\r\n{"success": true, "result": {"messages": '
            b'[{"id": "m", "lease_id": "l", "timestamp_ms": 1e400}]}}',
            None,
        ),
        (b'HTTP/1.1 200 OK\r\n\r\n{"success": false, "errors": 5}', None),
        (b'HTTP/1.1 200 OK\r\n\r\n{"success": false, "errors": [1]}', None),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", None),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, None),
        (b'HTTP/1.1 500 Oops\r\n\r\n{"errors": true}', 500),
        (b"HTTP/1.1 500 Oops\r\n\r\n" + b"[" * 100_000, 500),
        (b"HTTP/1.1 300 Choose\r\nLocation: http://[::1/\r\nContent-Length: 0\r\n\r\n", 300),
    ],
    ids=[
        "breaks off",
        "a message without its lease",
        "not a message",
        "a number for messages",
        "an infinite time",
        "a number for errors",
        "a number for an error",
        "no object",
        "nested too deeply",
        "an error without a text",
        "an error that is nested too deeply",
        "a redirect to nowhere",
    ],
)
def test_a_response_that_cannot_be_read_is_a_pull_error(response: bytes, status: int | None) -> None:
    """A gateway that closes the connection within its response must not raise an exception that callers do not expect."""
    with _answering(response) as url, pytest.raises(PullError) as caught:
        PullConsumer("a", "0123", queue="orders", to=Kept(), token="hush", base_url=url).pull()
    assert caught.value.status == status


@pytest.mark.parametrize("count", [b'"one"', b"1e400"])
def test_a_settlement_whose_counts_cannot_be_read_is_a_pull_error(count: bytes) -> None:
    """It may have had an effect, as in every case of this error."""
    response = b'HTTP/1.1 200 OK\r\n\r\n{"success": true, "result": {"ackCount": %s}}' % count
    with _answering(response) as url, pytest.raises(PullError):
        PullConsumer("a", "0123", queue="orders", to=Kept(), token="hush", base_url=url).settle()


def test_a_delivery_without_the_time_of_its_send_is_reported_without_it() -> None:
    """The service would refuse the whole event for a time in 1970."""
    kept = Kept()
    with _answering(b'HTTP/1.1 200 OK\r\n\r\n{"success": true, "result": {"messages": [{"id": "m", "lease_id": "l"}]}}') as url:
        consumer = PullConsumer("a", "0123", queue="orders", to=kept, token="hush", base_url=url)
        consumer.pull()
        assert consumer.flush()
        consumer.close()
    [event] = kept.events()
    assert "sent_at" not in event
    assert decode_records(kept.payloads).invalid == []


@contextmanager
def _answering(response: bytes) -> Iterator[str]:
    """Serve one request with these bytes; yields the address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(response)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):  # closing before the whole request was read would reset the connection
                    pass

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def test_without_a_destination_it_is_a_plain_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same holds if telemetry is switched off."""
    monkeypatch.delenv("QUEUEWATCH_TO", raising=False)
    broker = replace(Broker(), messages=[Held("m0", START_MS)])
    with serving(broker), PullConsumer("a", "0123", queue="orders", token="hush", base_url=broker.url) as consumer:
        broker.now += 10
        (message,) = consumer.pull()
        assert (message.id, message.attempts, message.body) == ("m0", 1, "e30=")
        assert consumer.settle([message]).acked == 1
        assert consumer.flush()


def test_an_invalid_destination_in_the_environment_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A typo in a deployment must not keep the application from starting. One in its code is an error."""
    monkeypatch.setenv("QUEUEWATCH_TO", "kafak://broker:9092/events")
    with PullConsumer("a", "0123", queue="orders") as consumer:
        assert consumer.flush()
    assert "QUEUEWATCH_TO" in caplog.text
    with pytest.raises(ValueError, match="kafak"):
        PullConsumer("a", "0123", queue="orders", to="kafak://broker:9092/events")


def test_consumers_that_are_dropped_leave_one_sender(tmp_path: Path) -> None:
    """An application may make one for each batch and close none. Closing one sends its events and leaves the others theirs."""
    before, shared = len(_senders), set(_shared)
    consumers = [PullConsumer("a", "0123", queue="orders", to=f"spool:{tmp_path}") for _ in range(20)]
    assert len(_senders) == before + 1
    for consumer in consumers:
        consumer._report([{"v": 1, "type": "heartbeat", "at": START_MS, "consumer": "x"}])
        consumer.close()
        consumer.close()
    assert len(spooled(tmp_path)) == 20
    assert set(_shared) == shared


_TERMINATED = """
import os, signal, sys, time
from queuewatch.cloudflare import Message, PullConsumer
consumer = PullConsumer("a", "0123", queue="orders", to=sys.argv[1])
consumer._post = lambda *_: {"ackCount": 1, "retryCount": 0}
consumer.settle(acks=[Message("m0", None, 1, "lease", 0, 2**60, {})])
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(10)
"""


def test_sigterm_does_not_lose_the_last_settlements(tmp_path: Path) -> None:
    """Their messages would look held until the lease ends."""
    done = subprocess.run([sys.executable, "-c", _TERMINATED, f"spool:{tmp_path}"], timeout=60, check=False)
    assert done.returncode == -signal.SIGTERM
    [event] = spooled(tmp_path)
    assert event["type"] == "deleted"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_consumer_has_a_name_of_its_own() -> None:
    """Deliveries of two processes under one name look like those of one."""
    with _consumer(Broker(), name=None) as (_, consumer, _):
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.write(write, consumer._consumer().encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 1000).decode().endswith(f"/{child}")


@contextmanager
def _consumer(
    given: Broker, *, knows: bool = True, name: str | None = "billing-1"
) -> Iterator[tuple[Broker, PullConsumer, Kept]]:
    broker = replace(given, messages=[Held(f"m{i}", START_MS - 5_000) for i in range(3)], dead=[], requests=[])
    settings: dict[str, Any] = {}
    if knows:
        settings = {"max_retries": broker.max_retries, "retry_delay_s": broker.retry_delay_s}
        settings["dead_letter_queue"] = "orders-dlq" if broker.dead_letters else None
    kept = Kept()
    with serving(broker):
        consumer = PullConsumer(
            "account",
            "0123",
            queue="orders",
            to=kept,
            token="hush",
            consumer=name,
            visibility_timeout_s=LEASE_S,
            base_url=broker.url,
            clock_ms=lambda: broker.now,
            **settings,
        )
        with consumer:
            yield broker, consumer, kept


def _play(steps: str, broker: Broker, consumer: PullConsumer) -> None:
    deliveries: list[Message] = []
    for step in steps.split("; "):
        words, _, delay = step.partition(" after ")
        verb, *numbers = words.split()
        chosen = [int(number) for number in numbers]
        if verb == "pull":
            deliveries += consumer.pull(chosen[0])
        elif verb == "wait":
            broker.now += chosen[0] * 1000
        elif verb == "ack":
            consumer.settle(acks=[deliveries[i] for i in chosen])
        else:
            consumer.settle(retries=[deliveries[i] for i in chosen], delay_s=int(delay) if delay else None)


def _concluded(events: list[dict[str, Any]], message_id: str, now: int) -> tuple[str, int]:
    """Return where a message is, by its events alone."""
    state, until = "available", 0
    for event in events:
        if event["message_id"] != message_id:
            continue
        match event["type"]:
            case "deleted" | "dropped":
                return "gone", 0
            case "dead_lettered":
                return "dead", 0
            case "received":
                state, until = "leased", event["invisible_until"]
            case "released":
                state, until = "delayed", event.get("visible_at", event["at"])
    return (state, until) if until > now else ("available", 0)
