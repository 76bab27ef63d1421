"""The data model of a catalogue entry: what an alert means, when it fires, what to do about it. Plain values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from alerts.remedy import QueueSystem as QueueSystem
from alerts.remedy import Step
from streaming.judge.findings.signals import Severity, SignalName

QUEUE_SYSTEMS: tuple[QueueSystem, ...] = get_args(QueueSystem)
SYSTEM_TITLES: Mapping[QueueSystem, str] = {
    "aws_sqs": "Amazon SQS",
    "activemq": "ActiveMQ Classic",
    "cloudflare_queues": "Cloudflare Queues",
}

RawAlertName = Literal[
    "MessageTooOld",
    "QueueStale",
    "ErrorBudgetBurning",
    "ErrorBudgetBurningSlowly",
    "JobDown",
    "JobAbsent",
    "NotPublishing",
    "NoRecentBatch",
    "PipelineLagging",
    "FallingBehind",
    "TelemetryLost",
    "CollectorSilent",
    "CoverageLow",
    "InvalidEvents",
    "LateEvents",
    "FindingsCapped",
    "ClockSkew",
]
"""Alerts that are not signals: they read the published series, so they also work when the judge itself does not."""

AlertName = SignalName | RawAlertName

AlertGroup = Literal["messages", "groups", "consumers", "queues", "objectives", "telemetry", "watcher"]
ALERT_GROUPS: tuple[AlertGroup, ...] = get_args(AlertGroup)

DashboardName = Literal["overview", "queue", "groups", "dead-letters", "consumers", "pipeline"]
DASHBOARD_NAMES: tuple[DashboardName, ...] = get_args(DashboardName)

Unit = Literal["seconds", "ratio", "count", "records"]

QUEUE_IDENTITY: tuple[str, ...] = ("job", "system", "scope_id", "queue")
"""The labels that distinguish the alerts of two queues. Not `instance`, because a restart must not look like a new alert."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to check; paste `command` into the shell that the runbook's first section prepares."""

    what: str
    command: str
    look_for: str


@dataclass(frozen=True, slots=True)
class Link:
    """Further reading."""

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class EvidenceField:
    """A field of a signal's evidence, or a companion series, and how to interpret it."""

    name: str
    says: str


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a raw-metric alert; `alerts.rules.<Name>.limit` in the configuration replaces it."""

    default: float
    unit: Unit
    meaning: str


@dataclass(frozen=True, slots=True)
class AlertSpec:
    """The Prometheus expression and texts of an alert.

    `expr` is %-formatted with `by` (grouping labels, comma-separated), `on` (the same without severity), `match` (extra matchers,
    empty or beginning with a comma), `job` and `limit`; `description` with what `alerts.templating.kept` returns. `labels` are
    additional templated labels. `why` explains the choice of the expression.
    """

    expr: str
    why: str
    summary: str
    description: str
    identity: tuple[str, ...] = QUEUE_IDENTITY
    for_s: float = 0.0
    keep_firing_s: float = 300.0
    limit: Limit | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    judged_severity: bool = False
    """Whether the severity is read from the signal's series, so that severities set per queue pattern reach the pager."""


@dataclass(frozen=True, slots=True)
class Entry:
    """All information about one alert."""

    name: AlertName
    group: AlertGroup
    subject: str
    """The subject in one or two words: a message, a group, the job."""
    meaning: str
    rule: tuple[str, ...]
    """The conditions in plain words; `{name}` stands for one of `thresholds` or of `JUDGE_CONSTANTS`, with its unit."""
    thresholds: tuple[str, ...]
    """Fields of `Thresholds` that the rule uses."""
    severity: Severity
    alert: AlertSpec
    dashboard: DashboardName
    evidence: tuple[EvidenceField, ...]
    checks: Mapping[QueueSystem, tuple[Check, ...]]
    """Exactly five for each system that can have this alert."""
    fix: tuple[Step, ...]
    """What to do, in order."""
    ignore: tuple[str, ...]
    links: tuple[Link, ...]
    not_applicable: Mapping[QueueSystem, str] = field(default_factory=dict)
    """Systems where this cannot happen, each with the reason."""
    severity_rises: str = ""
    """When the judge gives it a higher severity, and which: ends a sentence that begins with the usual one."""
    watcher_checks: tuple[Check, ...] = ()
    """Exactly five checks for alerts about queuewatch itself, which are the same for every queue system."""

    @property
    def alert_name(self) -> str:
        """The name in Prometheus, with the prefix common to all alerts."""
        return f"Queuewatch{self.name}"

    @property
    def anchor(self) -> str:
        """The heading's anchor in the runbook."""
        return f"alert-name-{self.alert_name.lower()}"

    @property
    def pages(self) -> bool:
        """Whether it pages by default."""
        return self.severity == "critical"

    @property
    def component(self) -> Literal["queue", "watcher"]:
        """The component for routing: the queue's owners or queuewatch's operators."""
        return "watcher" if self.group in ("telemetry", "watcher") else "queue"
