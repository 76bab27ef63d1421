"""`queuewatch doctor activemq`: check in one connection what the broker reports, and how to add what is missing."""

from __future__ import annotations

import time

from queuewatch.clock import now_ms
from sources.activemq.config import ActiveMQCollectorConfig
from sources.activemq.connection import open_session
from sources.activemq.errors import BrokerUnavailable
from sources.activemq.event_builder import SYSTEM
from sources.activemq.findings import Finding, Observed, diagnose
from sources.activemq.inbox import Inbox
from sources.activemq.lifecycle import Lifecycle
from sources.activemq.watch import Watch
from sources.doctor.finding import Examination
from sources.doctor.finding import Finding as Reported

_LOOK_AT_MOST_S = 20.0


def check_broker(config: ActiveMQCollectorConfig) -> list[Finding]:
    """Return all findings about the first address that answers.

    One message goes through `probe_queue` unless that is None. An unreachable broker is also a finding.
    """
    unreachable: list[BrokerUnavailable] = []
    config = config.model_copy(update={"statistics_interval_s": 0.5})
    for address in config.parsed_addresses():
        inbox = Inbox(config.max_waiting_advisories)
        try:
            session = open_session(config, address, inbox)
        except BrokerUnavailable as error:
            unreachable.append(error)
            inbox.close()
            continue
        try:
            found = _look(Watch(config, session, Lifecycle(config.broker_name), lambda _: None), inbox)
        except BrokerUnavailable as error:
            found = diagnose(Observed(session.server, session.version))
            found.append(Finding("connection", "error", error.reason, error.remedy))
        finally:
            inbox.close()
            session.close()
        # An address that does not answer matters even if another one does: failover may not work.
        return [*map(_unanswered, unreachable), Finding("connection", "ok", f"logged in at {address}"), *found]
    return [_refused(error) for error in unreachable]


def _refused(error: BrokerUnavailable) -> Finding:
    return Finding("connection", "error", f"{error.address}: {error.reason}", error.remedy)


def _unanswered(error: BrokerUnavailable) -> Finding:
    """Return the finding of an address that does not answer while another one does."""
    if not error.is_closed:
        return _refused(error)
    what = f"{error.address}: {error.reason}. A slave listens once it has taken over; if this is none, failover does not work"
    return Finding("connection", "info", what, error.remedy)


def _look(watch: Watch, inbox: Inbox) -> list[Finding]:
    until_s = time.monotonic() + _LOOK_AT_MOST_S
    watch.start(time.monotonic(), now_ms())
    while watch.probing and time.monotonic() < until_s:
        for incoming in inbox.take(0.05):
            watch.take(incoming)
        watch.tick(time.monotonic(), now_ms())
    return watch.findings() or []


def examine(config: ActiveMQCollectorConfig) -> Examination:
    """Return the findings of `check_broker` in the form of every doctor."""
    found = check_broker(config)
    return Examination(
        system=SYSTEM,
        passed=[f"{one.check}: {one.what}" for one in found if one.level == "ok"],
        findings=[
            Reported(rule=one.check, severity="critical" if one.level == "error" else one.level, summary=one.what, fix=one.fix)
            for one in found
            if one.level != "ok"
        ],
    )
