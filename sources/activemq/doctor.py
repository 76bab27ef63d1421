"""`queuewatch doctor activemq`: connects once, looks what the broker tells, and says what is missing and how
to add it."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable

from sources.activemq.config import ActiveMQCollectorConfig
from sources.activemq.connection import now_ms, open_session
from sources.activemq.errors import BrokerUnavailable
from sources.activemq.findings import Finding, Observed, diagnose
from sources.activemq.inbox import Inbox
from sources.activemq.lifecycle import Lifecycle
from sources.activemq.watch import Watch

_LOOK_AT_MOST_S = 20.0
_MARKS = {"ok": "ok     ", "warning": "warning", "error": "ERROR  "}


def examine(config: ActiveMQCollectorConfig) -> list[Finding]:
    """Everything found out about the first address that answers.

    One message goes through `probe_queue` unless that is None. An unreachable broker is a finding too.
    """
    unreachable: list[Finding] = []
    config = config.model_copy(update={"statistics_interval_s": 0.5})
    for address in config.parsed_addresses():
        inbox = Inbox(config.max_waiting_advisories)
        try:
            session = open_session(config, address, inbox)
        except BrokerUnavailable as error:
            unreachable.append(Finding("connection", "error", f"{error.address}: {error.reason}", error.remedy))
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
        # An address that does not answer matters even where another one does: failing over would not work.
        return [*unreachable, Finding("connection", "ok", f"logged in at {address}"), *found]
    return unreachable


def _look(watch: Watch, inbox: Inbox) -> list[Finding]:
    found: list[Finding] = []
    until_s = time.monotonic() + _LOOK_AT_MOST_S
    watch.start(time.monotonic(), now_ms())
    while watch.probing and time.monotonic() < until_s:
        for incoming in inbox.take(0.05):
            watch.take(incoming)
        watch.tick(time.monotonic(), now_ms())
    return watch.findings() or found


def render(findings: list[Finding]) -> str:
    """The findings for a terminal, what to do indented below each."""
    lines = []
    for finding in findings:
        lines.append(f"{_MARKS[finding.level]}  {finding.check}: {finding.what}")
        if finding.fix:
            lines.append(textwrap.indent(finding.fix, "         "))
    return "\n".join(lines)


def run_doctor(config: ActiveMQCollectorConfig, write: Callable[[str], None]) -> int:
    """Examine and print. Answers 0 when messages can be followed, 1 when something makes that impossible."""
    findings = examine(config)
    write(render(findings))
    return 1 if any(finding.level == "error" for finding in findings) else 0
