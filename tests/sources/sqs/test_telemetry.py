"""The service's own telemetry queue: nothing is lost, and messages of other applications are not taken."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from queuewatch.transports.sqs import SqsTransport
from sources.collect import CollectorRefused, DestinationStopped
from sources.sqs.collector import SqsCollector
from sources.sqs.config import SqsCollectorConfig
from sources.sqs.telemetry import SqsTelemetryCollector, events_of
from sources.wire import encode_ndjson
from tests.sources.sqs.accounts import Account

T = 1_760_000_000_000
SENT = {"v": 1, "type": "sent", "at": T, "system": "aws_sqs", "queue": "orders", "message_id": "m1"}


@pytest.fixture
def account(elasticmq: Any) -> Account:
    """A local SQS account."""
    return Account(elasticmq.endpoint)


def drain_of(account: Account, url: str) -> SqsTelemetryCollector:
    """Return a drain with a short wait."""
    config = SqsCollectorConfig(telemetry={"queue": url, "wait_s": 1, "lease_s": 30})  # type: ignore[arg-type]
    return SqsTelemetryCollector(config, account.client)


def left(account: Account, url: str) -> tuple[int, int]:
    """Return the numbers of visible and in-flight messages."""
    names: Any = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    reported = account.client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return int(reported[names[0]]), int(reported[names[1]])


def test_what_the_sqs_transport_sends_arrives_and_is_deleted(account: Account) -> None:
    """A message holds many events; the queue is given by name as well as by URL."""
    url = account.queue("telemetry")
    transport = SqsTransport(url, client=account.client)
    sent: list[dict[str, Any]] = [SENT | {"message_id": f"m{n}"} for n in range(1000)]
    for start in range(0, 1000, 500):
        transport.send(encode_ndjson(sent[start : start + 500]))
    found: list[dict[str, Any]] = []
    drain = drain_of(account, account.prefix + "telemetry")
    while len([event for event in found if event["type"] == "sent"]) < 1000:
        drain.drain_once(found.extend)
    assert sorted(event["message_id"] for event in found if event["type"] == "sent") == sorted(
        event["message_id"] for event in sent
    )
    assert [event["consumer"] for event in found if event["type"] == "heartbeat"] == [f"sqs-telemetry/{account.prefix}telemetry"]
    assert left(account, url) == (0, 0)


def test_nothing_is_deleted_before_it_is_delivered(account: Account) -> None:
    """Undelivered telemetry stays in the queue and is redelivered."""
    url = account.queue("telemetry")
    SqsTransport(url, client=account.client).send(encode_ndjson([SENT]))

    def undelivered(_: Any) -> None:
        assert left(account, url) == (0, 1)
        raise DestinationStopped("the spool is full")

    with pytest.raises(DestinationStopped):
        drain_of(account, url).run(undelivered, threading.Event())
    assert left(account, url) == (0, 1)


def test_an_application_s_queue_is_refused_and_keeps_its_messages(account: Account) -> None:
    """Messages of an application are not telemetry."""
    url = account.queue("orders")
    account.client.send_message(QueueUrl=url, MessageBody='{"order": 7}')
    with pytest.raises(CollectorRefused, match=r"are not telemetry\. Nothing was deleted"):
        drain_of(account, url).run(lambda _: None, threading.Event())
    assert sum(left(account, url)) == 1


def test_a_telemetry_queue_that_is_itself_watched_is_refused(account: Account) -> None:
    """Telemetry about the telemetry queue shows that someone instruments or watches it."""
    url = account.queue("telemetry")
    about_itself = SENT | {"queue": account.prefix + "telemetry", "scope": "000000000000/us-east-1"}
    SqsTransport(url, client=account.client).send(encode_ndjson([SENT, about_itself]))
    with pytest.raises(CollectorRefused, match="is itself watched"):
        drain_of(account, url).run(lambda _: None, threading.Event())
    assert sum(left(account, url)) == 1


def test_a_drain_beside_the_attributes_waits_for_the_end_of_its_long_poll(moto_sqs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll that the client gives up goes on in SQS, and takes messages that nobody receives."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    account = Account(moto_sqs.endpoint)
    telemetry: Any = {"queue": account.queue("telemetry"), "wait_s": 20}
    discovery: Any = {"prefixes": [account.prefix + "orders"]}
    config = SqsCollectorConfig(regions=("us-east-1",), endpoint_url=moto_sqs.endpoint, discovery=discovery, telemetry=telemetry)
    timeouts: list[float] = []

    def run(drain: Any, *_: Any) -> None:
        timeouts.append(drain._client.meta.config.read_timeout)
        stop.set()

    monkeypatch.setattr(SqsTelemetryCollector, "run", run)
    stop = threading.Event()
    SqsCollector.from_config(config).run(lambda _: None, stop)
    assert timeouts[0] > 20


@pytest.mark.parametrize("regions", [("eu-west-1", "us-east-1"), ("eu-west-1",)], ids=" ".join)
def test_a_queue_given_by_url_is_read_in_its_own_region(
    regions: tuple[str, ...], moto_sqs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first region of the collector may be another one: there the queue does not exist."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    account = Account(moto_sqs.endpoint)
    name = account.queue("telemetry").rsplit("/", 1)[-1]
    url = f"https://sqs.us-east-1.amazonaws.com/123456789012/{name}"
    account.client.send_message(QueueUrl=url, MessageBody=encode_ndjson([SENT]).decode())
    config = SqsCollectorConfig(regions=regions, endpoint_url=moto_sqs.endpoint, telemetry={"queue": url, "wait_s": 1})  # type: ignore[arg-type]
    assert SqsTelemetryCollector.from_config(config).drain_once(lambda _: None) == 1


def test_heartbeats_go_on_after_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's clock was an hour ahead and is corrected: an hour without heartbeats would look like a dead collector."""
    config = SqsCollectorConfig(telemetry={"queue": "https://sqs/1/telemetry"})  # type: ignore[arg-type]
    drain = SqsTelemetryCollector(config, SimpleNamespace(receive_message=lambda **_: {}))  # type: ignore[arg-type]
    found: list[dict[str, Any]] = []
    hour_ms = 3_600_000
    for now in (T, T + 10_000, T + hour_ms, T + 60_000, T + 70_000, T + 90_000):
        monkeypatch.setattr("sources.sqs.telemetry.now_ms", lambda now=now: now)
        drain.drain_once(found.extend)
    assert [event["at"] - T for event in found] == [0, hour_ms, 60_000, 90_000]


class RecordedStop(threading.Event):
    """Ends a drain at its third pause; without pauses, after some thousand receives."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []
        self.asked = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        return self.is_set()

    def is_set(self) -> bool:
        self.asked += 1
        return len(self.waits) >= 3 or self.asked > 3_600


def test_a_drain_whose_receives_do_not_wait_pauses_after_an_empty_one() -> None:
    """Otherwise it would call SQS as fast as it answers, and each call costs."""
    config = SqsCollectorConfig(telemetry={"queue": "http://localhost/1/telemetry", "wait_s": 0})  # type: ignore[arg-type]
    stop = RecordedStop()
    client = SimpleNamespace(receive_message=lambda **_: {})
    SqsTelemetryCollector(config, client).run(lambda _: None, stop)  # type: ignore[arg-type]
    assert stop.waits == [1.0, 1.0, 1.0]


def test_a_drain_needs_a_telemetry_queue() -> None:
    """The collector kind exists, but its configuration section is missing."""
    with pytest.raises(CollectorRefused, match=r"collect\.sqs\.telemetry\.queue is not set"):
        SqsTelemetryCollector.from_config(SqsCollectorConfig())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (json.dumps(SENT), [SENT]),
        (json.dumps(SENT, indent=1), [SENT]),
        (json.dumps([SENT, SENT]), [SENT, SENT]),
        (encode_ndjson([SENT, SENT]).decode(), [SENT, SENT]),
        (encode_ndjson([SENT | {"group": "a\u2028b\u0085c"}, SENT]).decode(), [SENT | {"group": "a\u2028b\u0085c"}, SENT]),
        (json.dumps(SENT) + "\r\n" + json.dumps(SENT) + "\r\n", [SENT, SENT]),
        (json.dumps(SENT) + "\nhalf a li", [SENT, {"unreadable": "half a li"}]),
        ("[1]", [{"unreadable": "1"}]),
        ("x" * 5000, [{"unreadable": "x" * 2000}]),
    ],
)
def test_every_form_of_message_is_read(body: str, expected: list[dict[str, Any]]) -> None:
    """What cannot be parsed is handed on, so that it is counted."""
    assert events_of(body) == expected


def test_one_unreadable_message_does_not_stop_a_working_drain(account: Account) -> None:
    """It is handed on as unreadable and deleted; otherwise it would be redelivered forever."""
    url = account.queue("telemetry")
    drain = drain_of(account, url)
    found: list[dict[str, Any]] = []
    for body in (json.dumps(SENT), "garbage"):
        account.client.send_message(QueueUrl=url, MessageBody=body)
        drain.drain_once(found.extend)
    assert {"unreadable": "garbage"} in found
    assert left(account, url) == (0, 0)
