"""What the collector reports about a broker that does not report everything, and how it finds out."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from sources.activemq.findings import (
    PERMISSIONS_XML,
    PLUGIN_XML,
    POLICY_XML,
    Finding,
    Observed,
    diagnose,
)
from sources.activemq.probe import EXPECTED, Probe
from tests.sources.activemq.advisories import START_MS, A, consumer, seen

GOOD = Observed(
    server="ActiveMQ/6.3.1",
    version=(6, 3, 1),
    plugin=True,
    subscriptions=True,
    probed=EXPECTED,
    probe_queue="queuewatch.probe",
)


def changed(**changes: object) -> Observed:
    """Return a well-prepared broker with changes."""
    return Observed(**{**{name: getattr(GOOD, name) for name in GOOD.__slots__}, **changes})


def found(observed: Observed, check: str) -> Finding:
    """Return the finding of one check."""
    [finding] = [finding for finding in diagnose(observed) if finding.check == check]
    return finding


def test_a_well_prepared_broker_has_no_findings() -> None:
    assert {finding.level for finding in diagnose(GOOD)} == {"ok"}


@pytest.mark.parametrize(
    ("changes", "check", "level", "fix"),
    [
        ({"server": "ActiveMQ/5.16.8", "version": (5, 16, 8)}, "version", "error", "upgrade to 5.18"),
        ({"server": "ActiveMQ-Artemis/2.31.0", "version": None}, "version", "warning", "not Artemis"),
        ({"plugin": False}, "statistics", "error", "<statisticsBrokerPlugin/>"),
        ({"subscriptions": False}, "subscriptions", "warning", 'useJmx="true"'),
        ({"probed": frozenset()}, "advisories", "error", "xstream and jettison"),
        (
            {"probed": EXPECTED - {"dispatched"}},
            "advisories",
            "error",
            'switch on advisoryForDispatched="true"',
        ),
        ({"probe_refused": "not authorized"}, "advisories", "warning", "authorizationEntry"),
        ({"discarded": 24_860}, "discarded", "error", '<policyEntry topic="ActiveMQ.Advisory.>"/>'),
        ({"unreadable": {"bad_body": 3}}, "unreadable", "warning", "transformation:jms-advisory-json"),
        ({"bodiless": 3}, "bodies", "warning", "transformation:jms-advisory-json"),
        (
            {"silent_flags": {"a": frozenset({"advisoryForConsumed"})}},
            "queues",
            "error",
            "advisoryForConsumed",
        ),
    ],
)
def test_each_missing_setting_is_reported_with_its_fix(changes: Mapping[str, object], check: str, level: str, fix: str) -> None:
    finding = found(changed(**changes), check)
    assert finding.level == level
    assert finding.fix is not None
    assert fix in finding.fix


def test_the_fix_lists_only_what_is_missing() -> None:
    finding = found(changed(probed=frozenset({"consumer", "delivered"})), "advisories")
    assert finding.fix is not None
    first_line = finding.fix.splitlines()[0]
    assert "advisoryForConsumed" in first_line
    assert "advisoryForDelivery" not in first_line


def test_unknown_facts_are_not_reported() -> None:
    assert [finding.check for finding in diagnose(Observed("ActiveMQ/6.3.1", (6, 3, 1)))] == ["version"]


def test_many_silent_queues_are_summarised() -> None:
    flags = frozenset({"advisoryForConsumed"})
    finding = found(changed(silent_flags={f"q{n:02}": flags for n in range(40)}), "queues")
    assert "q00, q01, q02, q03, q04 and 35 more (advisoryForConsumed)" in finding.what


def test_the_documentation_shows_the_same_xml() -> None:
    page = (Path(__file__).parents[3] / "docs" / "activemq.md").read_text()
    for xml in (POLICY_XML, PLUGIN_XML, PERMISSIONS_XML):
        assert f"```xml\n{xml}\n```" in page


# -- the probe --


class Connection:
    """A fake connection that records what a probe sends."""

    def __init__(self) -> None:
        self.sent: Mapping[str, str] = {}
        self.acknowledged: list[str] = []
        self.unsubscribed: list[str] = []

    def send(self, destination: str, headers: Mapping[str, str], body: str = "") -> None:
        assert (destination, body) == ("/queue/p", "")
        self.sent = headers

    def subscribe(self, destination: str, subscription: str, headers: Mapping[str, str], ack: str = "auto") -> None:
        assert (destination, subscription, ack) == ("/queue/p", "probe", "client-individual")
        assert headers["activemq.prefetchSize"] == "1"

    def unsubscribe(self, subscription: str) -> None:
        self.unsubscribed.append(subscription)

    def ack(self, ack_id: str) -> None:
        self.acknowledged.append(ack_id)


def probing() -> tuple[Probe, Connection]:
    """Return a probe that has been sent."""
    connection = Connection()
    probe = Probe(connection, "p")
    probe.start(0.0, START_MS)
    return probe, connection


def test_a_probe_ends_when_every_advisory_has_arrived() -> None:
    probe, connection = probing()
    probe.advisory(consumer(A, queue="p"))
    probe.advisory(seen("delivered", queue="p", message="ID:1"))
    probe.message({**connection.sent, "message-id": "ID:1", "ack": "x"})
    probe.advisory(seen("dispatched", queue="p", message="ID:1", by=A, out_ms=1))
    assert not probe.tick(1.0)
    probe.advisory(seen("consumed", queue="p", message="ID:1", out_ms=1))
    assert probe.tick(1.1)
    assert probe.seen == EXPECTED
    assert (connection.acknowledged, connection.unsubscribed) == (["x"], ["probe"])
    assert not probe.tick(1.2)


def test_a_probe_that_is_never_reported_times_out() -> None:
    probe, _ = probing()
    probe.advisory(consumer(A, queue="p"))
    assert not probe.tick(4.0)
    assert probe.tick(6.0)
    assert probe.seen == {"consumer"}


def test_another_collector_s_probe_is_acknowledged_but_ignored() -> None:
    probe, connection = probing()
    probe.message({"message-id": "ID:other", "ack": "y", "queuewatch-probe": "z"})
    probe.advisory(seen("consumed", queue="p", message="ID:other"))
    assert connection.acknowledged == ["y"]
    assert probe.seen == set()


def test_a_refused_probe_says_why() -> None:
    probe, _ = probing()
    probe.error({"receipt-id": "advisories"}, "something else")
    assert not probe.tick(0.1)
    probe.error({"receipt-id": "probe-send"}, "not authorized to write")
    assert probe.tick(0.2)
    assert probe.refused == "not authorized to write"
