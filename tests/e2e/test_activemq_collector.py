"""The collector against brokers that restart, require a login, use TLS, or lack the required configuration."""

import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sources.activemq.collector import ActiveMQCollector
from sources.activemq.config import ActiveMQCollectorConfig
from sources.activemq.doctor import check_broker, examine
from sources.activemq.findings import PERMISSIONS_XML, POLICY_XML, Finding
from sources.doctor import as_text
from sources.events import Event
from tests.services.activemq import ActiveMQ, Policy
from tests.services.process import free_port
from tests.sources.activemq import broker, certificates
from tests.sources.activemq.lab import Client
from tests.sources.activemq.needs import services
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def configured(*brokers: ActiveMQ, scheme: str = "stomp", **changes: Any) -> ActiveMQCollectorConfig:
    """Return a configuration with short intervals for tests."""
    addresses = tuple(f"{scheme}://{b.host}:{b.stomp_port}" for b in brokers)
    quick: dict[str, Any] = {
        "settle_grace_s": 0.2,
        "statistics_interval_s": 0.5,
        "heartbeat_interval_s": 0.5,
        "reconnect_first_s": 0.2,
        "reconnect_most_s": 0.5,
    }
    return ActiveMQCollectorConfig(**{"addresses": addresses, **quick, **changes})


class Collected:
    """A running collector and what it has emitted so far."""

    def __init__(self, config: ActiveMQCollectorConfig) -> None:
        self.collector = ActiveMQCollector(config)
        self.events: list[Event] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.collector.run, args=(self.events.extend, self._stop))
        self._thread.start()

    def of(self, kind: str, queue: str | None = None) -> list[Event]:
        """Return the events of a type, for one queue if given."""
        found = [event for event in self.events if event["type"] == kind]
        return [event for event in found if queue is None or event.get("queue") == queue]

    def is_connected(self) -> bool:
        """Return whether a heartbeat was sent within the last second."""
        beats = self.of("heartbeat")
        return bool(beats) and time.time() * 1000 - beats[-1]["at"] < 1_000

    def stop(self) -> None:
        """Stop the collector, which must end at once."""
        self._stop.set()
        self._thread.join(5)
        assert not self._thread.is_alive()


@contextmanager
def collecting(config: ActiveMQCollectorConfig) -> Iterator[Collected]:
    """Run a collector inside the with block."""
    collected = Collected(config)
    try:
        yield collected
    finally:
        collected.stop()


def settle_one(running: ActiveMQ, queue: str) -> None:
    """Send, receive and acknowledge one message."""
    client = Client(running)
    client.subscribe(queue)
    client.send(queue)
    client.ack(client.receive())
    client.close()


def levels(findings: list[Finding]) -> dict[str, str]:
    """Return check -> level."""
    return {finding.check: finding.level for finding in findings}


def test_a_broker_that_restarts_is_watched_again(tmp_path: Path) -> None:
    """What its consumers held is reported as released, and later deliveries are reported."""
    port = free_port()
    with services(), broker.start(broker.Setup(name="east"), tmp_path, port) as running:
        collected = Collected(configured(running))
        try:
            until(collected.is_connected, "it is connected")
            client = Client(running)
            client.subscribe("orders")
            client.send("orders")
            client.receive()
            until(lambda: collected.of("received", "orders"), "the message is received")
        except BaseException:
            collected.stop()
            raise
    try:
        until(lambda: not collected.is_connected(), "the lost connection is noticed")
        with broker.start(broker.Setup(name="east"), tmp_path, port) as running:
            until(collected.is_connected, "it is connected")
            until(lambda: collected.of("released", "orders"), "what consumers held is released")
            client = Client(running)
            client.subscribe("orders")
            client.ack(client.receive())
            until(lambda: collected.of("deleted", "orders"), "the message is deleted")
            client.close()
    finally:
        collected.stop()
    [first, *_, last] = collected.of("received", "orders")
    assert first["message_id"] == last["message_id"]
    assert first["consumer"] != last["consumer"]
    assert last["receive_count"] >= first["receive_count"]
    assert {event["scope"] for event in collected.events} == {"east"}


def test_a_broker_that_takes_over_under_another_name_has_a_scope_of_its_own(tmp_path: Path) -> None:
    """Nothing of it is reported under the first one's name, heartbeats included."""
    port = free_port()
    with services(), broker.start(broker.Setup(name="east"), tmp_path / "east", port) as running:
        collected = Collected(configured(running))
        try:
            until(collected.is_connected, "it is connected")
            settle_one(running, "orders")
            until(lambda: collected.of("deleted", "orders"), "the message is deleted")
        except BaseException:
            collected.stop()
            raise
    try:
        until(lambda: not collected.is_connected(), "the lost connection is noticed")
        before = len(collected.events)
        with broker.start(broker.Setup(name="west"), tmp_path / "west", port) as running:
            until(collected.is_connected, "it is connected")
            settle_one(running, "orders")
            until(lambda: len(collected.of("deleted", "orders")) == 2, "the message is deleted")
    finally:
        collected.stop()
    assert {event["scope"] for event in collected.events[:before]} == {"east"}
    assert {event["scope"] for event in collected.events[before:]} == {"west"}
    assert {event["consumer"] for event in collected.of("heartbeat")} == {"activemq:east", "activemq:west"}


def test_the_next_address_is_tried_when_one_does_not_answer(activemq: ActiveMQ) -> None:
    dead = ActiveMQ("127.0.0.1", free_port(), 0, "", "")
    with collecting(configured(dead, activemq)) as collected:
        until(collected.is_connected, "it is connected")


def test_two_collectors_watch_one_broker_side_by_side(activemq: ActiveMQ) -> None:
    with collecting(configured(activemq)) as one, collecting(configured(activemq)) as other:
        until(lambda: one.is_connected() and other.is_connected(), "both are connected")
        settle_one(activemq, "shared")
        until(lambda: one.of("deleted", "shared") and other.of("deleted", "shared"), "both report the deletion")
    reported = [[(e["type"], e["message_id"]) for e in c.events if "message_id" in e] for c in (one, other)]
    assert set(reported[0]) == set(reported[1])


def test_only_the_queues_asked_for_are_reported(activemq: ActiveMQ) -> None:
    config = configured(activemq, queues=("shop.>",), exclude=("shop.noise",))
    with collecting(config) as collected:
        until(collected.is_connected, "it is connected")
        for queue in ("elsewhere", "shop.noise", "shop.orders"):
            settle_one(activemq, queue)
        until(
            lambda: collected.of("deleted", "shop.orders") and collected.of("queue_state", "shop.orders"),
            "deletion and count of the queue are reported",
        )
    assert {event["queue"] for event in collected.events if "queue" in event} == {"shop.orders"}


def test_counts_of_every_queue_are_reported(activemq: ActiveMQ) -> None:
    client = Client(activemq)
    client.subscribe("counted", prefetch=2)
    for _ in range(5):
        client.send("counted")
    client.receive()
    with collecting(configured(activemq)) as collected:
        until(lambda: collected.of("queue_state", "counted"), "the queue is counted")
    client.close()
    attributes = collected.of("queue_state", "counted")[-1]["attributes"]
    assert (attributes["visible"], attributes["in_flight"], attributes["consumers"]) == (3, 2, 1)
    assert abs(attributes["oldest_sent_at"] - time.time() * 1000) < 60_000


def test_a_queue_with_the_name_of_a_dead_letter_queue_is_reported_as_one(activemq: ActiveMQ) -> None:
    """Its messages were moved there before the collector listened."""
    client = Client(activemq)
    for queue in ("DLQ.earlier", "earlier"):
        client.send(queue)
    with collecting(configured(activemq)) as collected:
        until(lambda: collected.of("queue_state", "DLQ.earlier") and collected.of("queue_state", "earlier"), "both are counted")
    client.close()
    reported = [
        collected.of("queue_state", queue)[-1]["attributes"].get("is_dead_letter_queue") for queue in ("DLQ.earlier", "earlier")
    ]
    assert reported == [True, None]


def test_a_stopped_collector_disconnects_at_once(activemq: ActiveMQ, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with the broker's answer: on a clock that stands still, the two seconds for an answer never pass."""
    monkeypatch.setattr("sources.activemq.connection.time", SimpleNamespace(**vars(time) | {"monotonic": lambda: 0.0}))
    collected = Collected(configured(activemq))
    until(collected.is_connected, "it is connected")
    collected.stop()


def test_the_queue_of_the_probe_is_not_reported(activemq: ActiveMQ) -> None:
    with collecting(configured(activemq)) as collected:
        until(lambda: levels(collected.collector.findings).get("advisories") == "ok", "the advisories are found to work")
    assert not [event for event in collected.events if event.get("queue") == "queuewatch.probe"]


def test_a_blocked_sink_neither_stops_the_application_nor_loses_events(activemq: ActiveMQ) -> None:
    """Events that cannot be emitted wait at the broker; the inbox here holds only a fifteenth of them."""
    free, stop = threading.Event(), threading.Event()
    events: list[Event] = []

    def emit(some: Sequence[Event]) -> None:
        events.extend(some)
        if any(event.get("queue") == "stuck" for event in some):
            free.wait(120)

    collector = ActiveMQCollector(configured(activemq, max_waiting_advisories=30))
    collecting = threading.Thread(target=collector.run, args=(emit, stop))
    collecting.start()
    try:
        until(lambda: events, "anything is reported")
        client = Client(activemq)
        client.subscribe("stuck", prefetch=100)
        for _ in range(150):
            client.send("stuck", persistent="false")
            client.ack(client.receive())
        assert len(events) < 150
        free.set()
        until(lambda: sum(event["type"] == "deleted" for event in events) == 150, "all 150 deletions are reported")
        client.close()
    finally:
        free.set()
        stop.set()
        collecting.join(10)


# -- TLS --


def test_a_broker_is_watched_over_tls(tmp_path: Path) -> None:
    tls, trusted = certificates.make(tmp_path)
    with services(), broker.start(broker.Setup(tls=tls)) as running:
        config = configured(running, scheme="stomp+ssl", tls={"ca_file": trusted})
        assert not examine(config).fails("info")
        with collecting(config) as collected:
            until(collected.is_connected, "it is connected")
        [refused] = check_broker(configured(running, scheme="stomp+ssl"))
        assert refused.level == "error"
        assert "CERTIFICATE_VERIFY_FAILED" in refused.what
        assert "tls.ca_file" in (refused.fix or "")


def test_tls_against_a_plain_port_is_reported(activemq: ActiveMQ) -> None:
    [finding] = check_broker(configured(activemq, scheme="stomp+ssl", connect_timeout_s=2))
    assert "this port does not speak TLS" in finding.what
    assert "write stomp:// instead of stomp+ssl://" in (finding.fix or "")


@pytest.mark.parametrize("behind_s", [-600, 600])
def test_a_broker_whose_clock_differs_reports_the_probe(
    activemq: ActiveMQ, monkeypatch: pytest.MonkeyPatch, behind_s: int
) -> None:
    """A probe that expired at once by the broker's clock looked like a broker that sends no advisories."""
    monkeypatch.setattr("sources.activemq.doctor.now_ms", lambda: round((time.time() - behind_s) * 1000))
    [advisories] = [finding for finding in check_broker(configured(activemq)) if finding.check == "advisories"]
    assert (advisories.level, advisories.fix) == ("ok", None), advisories.what


def test_a_closed_port_is_reported() -> None:
    config = ActiveMQCollectorConfig(addresses=(f"stomp://127.0.0.1:{free_port()}",))
    [finding] = check_broker(config)
    assert "Connection refused" in finding.what
    assert "is the broker up" in (finding.fix or "")


def test_the_port_of_another_connector_is_reported(activemq: ActiveMQ) -> None:
    """OpenWire's, which JMS clients use, closes the connection: that is no refused login."""
    openwire = ActiveMQ(activemq.host, activemq.openwire_port, 0, "", "")
    [finding] = check_broker(configured(openwire, connect_timeout_s=5))
    assert "closed before the login was answered" in finding.what
    assert "is this the broker's STOMP connector" in (finding.fix or "")


# -- logins and permissions --


def security(permissions: str) -> str:
    """Return plugins for a user `watch` of the group `watchers` with exactly these permissions."""
    own, _, temporary = permissions.partition("<!-- Beside the authorizationEntries, for the replies. -->")
    return f"""
    <simpleAuthenticationPlugin anonymousAccessAllowed="false"><users>
      <authenticationUser username="watch" password="sesame" groups="watchers"/>
    </users></simpleAuthenticationPlugin>
    <authorizationPlugin><map><authorizationMap>
      <authorizationEntries>
        <authorizationEntry queue=">" read="admins" write="admins" admin="admins"/>
        <authorizationEntry topic=">" read="admins" write="admins" admin="admins"/>
        {own.replace("GROUP", "watchers")}
      </authorizationEntries>
      {temporary.replace("GROUP", "watchers")}
    </authorizationMap></map></authorizationPlugin>"""


@pytest.fixture(scope="module")
def guarded() -> Iterator[ActiveMQ]:
    """A broker that gives the collector exactly the permissions in the documentation."""
    with services(), broker.start(broker.Setup(security=security(PERMISSIONS_XML))) as running:
        yield running


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    """A file with the password."""
    path = tmp_path / "password"
    path.write_text("sesame\n")
    return path


def test_the_documented_permissions_are_enough(guarded: ActiveMQ, password_file: Path) -> None:
    config = configured(guarded, username="watch", password_file=password_file)
    findings = check_broker(config)
    assert {finding.level for finding in findings} == {"ok"}
    assert {"version", "statistics", "subscriptions", "advisories"} <= levels(findings).keys()


@pytest.mark.parametrize(
    ("login", "said", "remedy"),
    [
        ({}, "password is invalid", "the broker asks for a login: set username"),
        ({"username": "watch"}, "password is invalid", "check username and the password"),
    ],
)
def test_a_refused_login_says_what_to_set(guarded: ActiveMQ, login: dict[str, str], said: str, remedy: str) -> None:
    [finding] = check_broker(configured(guarded, **login))
    assert said in finding.what
    assert remedy in (finding.fix or "")


def test_a_user_who_may_not_read_advisories_sees_which_permissions_to_add(password_file: Path) -> None:
    with services(), broker.start(broker.Setup(security=security(""))) as running:
        findings = check_broker(configured(running, username="watch", password_file=password_file))
    assert "not authorized" in findings[-1].what
    assert "ActiveMQ.Advisory.>" in (findings[-1].fix or "")


# -- brokers that lack the required configuration --


def test_a_missing_plugin_and_missing_flags_are_both_named() -> None:
    setup = broker.Setup(policies=(Policy(advisories=False),), statistics=False)
    with services(), broker.start(setup) as running:
        examination = examine(configured(running))
    assert examination.fails("critical")
    printed = as_text(examination)
    for wanted in ("<statisticsBrokerPlugin/>", "advisoryForDelivery", "advisoryForDispatched", "advisoryForConsumed"):
        assert wanted in printed


def test_a_broker_without_jmx_still_reports_its_queues(activemq: ActiveMQ) -> None:
    settle_one(activemq, "without-jmx")
    with collecting(configured(activemq)) as collected:
        until(lambda: levels(collected.collector.findings).get("subscriptions") == "warning", "the missing JMX is noticed")
        until(lambda: collected.of("queue_state", "without-jmx"), "the queue is counted")


@pytest.fixture(scope="module")
def partly_quiet() -> Iterator[ActiveMQ]:
    """A broker, with JMX, that lacks the advisories for the queues `quiet.>` only."""
    with services(), broker.start(broker.Setup(policies=(Policy(), Policy("quiet.>", advisories=False)))) as running:
        yield running


def test_a_queue_whose_own_policy_lacks_the_advisories_is_reported(partly_quiet: ActiveMQ) -> None:
    with collecting(configured(partly_quiet)) as collected:
        until(collected.is_connected, "it is connected")
        client = Client(partly_quiet)
        client.subscribe("quiet.orders")

        def is_found() -> bool:
            client.send("quiet.orders")
            client.ack(client.receive())
            time.sleep(0.1)
            return levels(collected.collector.findings).get("queues") == "error"

        until(is_found, "the missing advisories are noticed")
        client.close()
        until(
            lambda: "missing_advisories" in collected.of("queue_state", "quiet.orders")[-1]["attributes"],
            "the queue's own report names them",
        )
    missing = collected.of("queue_state", "quiet.orders")[-1]["attributes"]["missing_advisories"]
    assert missing == ["advisoryForConsumed", "advisoryForDelivery", "advisoryForDispatched"]


# -- advisories that the broker discards --


@dataclass(frozen=True)
class WithTopicPolicy(Policy):
    """The policy entry of the stock `activemq.xml` for all topics with smaller limits, and other entries for topics."""

    others: str = ""

    def xml(self) -> str:
        """Return the elements of all entries."""
        limit = '<constantPendingMessageLimitStrategy limit="20"/>'
        stock = f"""<policyEntry topic="&gt;" topicPrefetch="20">
            <pendingMessageLimitStrategy>{limit}</pendingMessageLimitStrategy></policyEntry>"""
        return stock + self.others + super().xml()


def discarded_in_an_outage(policy: Policy) -> Finding | None:
    """Send 5,000 messages while events cannot be delivered, and wait until each is reported or counted as discarded."""
    events: list[Event] = []
    free, stop = threading.Event(), threading.Event()

    def emit(some: Sequence[Event]) -> None:
        events.extend(some)
        if any(event.get("queue") == "busy" for event in some):
            free.wait(120)

    def sent() -> int:
        return sum(event["type"] == "sent" and event["queue"] == "busy" for event in events)

    def found() -> Finding | None:
        return next((finding for finding in collector.findings if finding.check == "discarded"), None)

    def discarded() -> int:
        return int(re.findall(r"discarded (\d+) advisories", finding.what)[0]) if (finding := found()) else 0

    with services(), broker.start(broker.Setup(policies=(policy,))) as running:
        collector = ActiveMQCollector(configured(running, max_waiting_advisories=10))
        collecting = threading.Thread(target=collector.run, args=(emit, stop))
        collecting.start()
        try:
            until(lambda: "advisories" in levels(collector.findings), "the probe has ended")
            client = Client(running)
            for _ in range(5_000):
                client.send("busy", persistent="false")
            free.set()
            # Advisories of a late probe may be discarded too.
            until(lambda: sent() + discarded() >= 5_000, "each message is reported or counted as discarded", 60)
            client.close()
        finally:
            free.set()
            stop.set()
            collecting.join(10)
    return found()


def test_advisories_that_the_broker_discards_are_counted() -> None:
    """Its stock configuration keeps only some of them for a collector that waits."""
    finding = discarded_in_an_outage(WithTopicPolicy())
    assert finding is not None
    assert '<policyEntry topic="ActiveMQ.Advisory.>"/>' in (finding.fix or "")


def test_the_documented_policy_entry_keeps_advisories_for_a_collector_that_waits() -> None:
    [documented] = re.findall("<policyEntry topic=.*?/>", POLICY_XML)
    assert discarded_in_an_outage(WithTopicPolicy(others=documented)) is None


# -- transactions --


def test_an_aborted_acknowledgement_is_corrected_by_the_brokers_count(partly_quiet: ActiveMQ) -> None:
    """No advisory reports an ABORT: the message is reported as deleted, and the next polls correct that."""
    with collecting(configured(partly_quiet)) as collected:
        # Wait until the replay of existing consumers is over, so that later ones count as new.
        until(lambda: not collected.collector.lifecycle.consumers.replaying, "the replay of existing consumers is over")
        client = Client(partly_quiet)
        client.subscribe("orders")
        client.send("orders")
        frame = client.receive()
        transaction = client.connection.begin()
        client.ack(frame, transaction)
        client.connection.abort(transaction)
        until(lambda: collected.of("deleted", "orders"), "the deletion is reported")
        until(lambda: len(collected.of("received", "orders")) == 2, "the message is reported received again")
        client.ack(frame)
        until(lambda: len(collected.of("deleted", "orders")) == 2, "the second deletion is reported")
        client.close()
    assert "still reports it in flight" in collected.of("received", "orders")[-1]["reason"]
