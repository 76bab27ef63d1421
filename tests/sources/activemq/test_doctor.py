"""What the doctor says about the addresses of a broker; the checks of a running one are in tests/e2e."""

from __future__ import annotations

from typing import Any

import pytest

from sources.activemq import doctor
from sources.activemq.config import ActiveMQCollectorConfig, Address
from sources.activemq.connection_diagnosis import unreachable
from sources.activemq.errors import BrokerUnavailable
from sources.activemq.inbox import Inbox
from tests.services.process import free_port
from tests.sources.activemq.test_collector import PlayedSession


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> dict[str, BrokerUnavailable]:
    """Address -> why it cannot be used; any other one is a broker without a finding."""
    refused: dict[str, BrokerUnavailable] = {}

    def open_session(config: ActiveMQCollectorConfig, address: Address, inbox: Inbox) -> Any:
        if address.host == "down":
            raise unreachable(config, Address("127.0.0.1", free_port(), tls=False))
        if address.host == "misspelt":
            raise unreachable(config, Address("broker.invalid", 61613, tls=False))
        if str(address) in refused:
            raise refused[str(address)]
        return PlayedSession(inbox, [])

    monkeypatch.setattr(doctor, "open_session", open_session)
    monkeypatch.setattr(doctor, "_look", lambda *_: [])
    return refused


def severities(*addresses: str) -> list[str]:
    """Examine these addresses; return the severity of each finding."""
    return [finding.severity for finding in doctor.examine(ActiveMQCollectorConfig(addresses=addresses)).findings]


@pytest.mark.usefixtures("refusals")
def test_a_slave_that_does_not_listen_is_no_problem_while_another_address_answers() -> None:
    """It listens once it has taken over; the exit code was 1 wherever the slave came first."""
    assert severities("stomp://down", "stomp://up") == ["info"]
    [finding] = doctor.examine(ActiveMQCollectorConfig(addresses=("stomp://down", "stomp://up"))).findings
    assert "Connection refused. A slave listens once it has taken over" in finding.summary
    assert not doctor.examine(ActiveMQCollectorConfig(addresses=("stomp://down", "stomp://up"))).fails("warning")


@pytest.mark.usefixtures("refusals")
def test_addresses_of_which_none_answers_are_all_problems() -> None:
    """Nothing is watched then."""
    assert severities("stomp://down", "stomp://down") == ["critical", "critical"]


def test_an_address_that_refuses_the_login_is_a_problem_whatever_the_others_do(refusals: dict[str, BrokerUnavailable]) -> None:
    """No slave does that: after a failover, the collector could not log in."""
    refusals["stomp://guarded:61613"] = BrokerUnavailable("stomp://guarded:61613", "password is invalid")
    assert severities("stomp://guarded", "stomp://up") == ["critical"]


@pytest.mark.usefixtures("refusals")
def test_a_name_that_cannot_be_resolved_is_a_problem_whatever_the_others_do() -> None:
    """It is misspelt rather than a slave."""
    assert severities("stomp://misspelt", "stomp://up") == ["critical"]
