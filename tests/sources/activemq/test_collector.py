"""The collector's loop over a connection that a test plays."""

import threading
from typing import Any

import pytest

from sources.activemq import collector as module
from sources.activemq.collector import ActiveMQCollector
from sources.activemq.config import ActiveMQCollectorConfig, Address
from sources.activemq.errors import BrokerUnavailable
from sources.activemq.findings import Finding
from sources.activemq.inbox import Inbox, Incoming
from sources.events import Event
from tests.sources.activemq.record import load

ADDRESS = Address("broker", 61613, tls=False)
DISCONNECTED = Incoming("disconnected", 0, "", {}, "")


class PlayedSession:
    """A connection whose frames are all read before the collector takes any."""

    server = "ActiveMQ/6.3.1"
    version = (6, 3, 1)
    address = ADDRESS
    client_id = "queuewatch-1"

    def __init__(self, inbox: Inbox, frames: list[Incoming], *, is_broken: bool = False) -> None:
        self._is_broken = is_broken
        inbox.put(*frames)

    def silent_s(self) -> float:
        return 0.0

    def subscribe(self, *_: Any) -> None:
        """Take any subscription."""

    def send(self, *_: Any) -> None:
        if self._is_broken:
            raise BrokerUnavailable(str(ADDRESS), "connection lost")

    def close(self) -> None:
        """Nothing is open."""


def collected(monkeypatch: pytest.MonkeyPatch, frames: list[Incoming], *, is_broken: bool = False) -> list[str]:
    """Run a collector over one connection with these frames; return the types of the message events before the next."""
    stop = threading.Event()
    sessions = iter([is_broken])
    before_the_next: list[Event] = []

    def open_session(_: Any, address: Address, inbox: Inbox) -> PlayedSession:
        for broken in sessions:
            return PlayedSession(inbox, frames, is_broken=broken)
        before_the_next.extend(events)
        stop.set()
        raise BrokerUnavailable(str(address), "it is gone")

    monkeypatch.setattr(module, "open_session", open_session)
    events: list[Event] = []
    config = ActiveMQCollectorConfig(probe_queue=None, settle_grace_s=0.01, reconnect_first_s=0.1)
    ActiveMQCollector(config).run(events.extend, stop)
    return [event["type"] for event in before_the_next if "message_id" in event]


def test_what_was_read_before_the_broker_closed_the_connection_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that restarts does not repeat its advisories. An acknowledgement does not wait for the broker to be back."""
    assert collected(monkeypatch, [*load("normal"), DISCONNECTED]) == ["sent", "received", "deleted"]


def test_what_was_read_before_a_request_failed_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may find the connection broken before the frames that were read have been processed."""
    assert collected(monkeypatch, load("normal"), is_broken=True) == ["sent", "received", "deleted"]


def test_a_finding_that_contains_a_count_is_logged_every_five_minutes(caplog: pytest.LogCaptureFixture) -> None:
    """It changes at every look, twice a second; the latest count is logged also where it changes no more."""
    collector = ActiveMQCollector(ActiveMQCollectorConfig(probe_queue=None))
    for look in range(1_200):
        collector._log_findings([Finding("bodies", "warning", f"{look} empty bodies")], look / 2)
    for look in range(1_200, 3_600):
        collector._log_findings(None, look / 2)
    assert caplog.messages == ["ActiveMQ: 0 empty bodies", "ActiveMQ: 600 empty bodies", "ActiveMQ: 1199 empty bodies"]


def test_a_finding_that_comes_back_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    """A worse level of the same check is logged at once, and a finding that was away for a while is a new one."""
    collector = ActiveMQCollector(ActiveMQCollectorConfig(probe_queue=None))
    missing = Finding("statistics", "error", "no plugin", "add it")
    for at_s, findings in enumerate([[missing], [missing], [], [missing], [Finding("statistics", "warning", "slow plugin")], []]):
        collector._log_findings(findings, at_s)
    collector._log_findings(None, 350)
    collector._log_findings([missing], 400)
    assert [message.split(": ")[1] for message in caplog.messages] == ["no plugin\nadd it", "slow plugin", "no plugin\nadd it"]
