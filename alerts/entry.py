"""The shape of one catalogue entry: what an alert means, when it fires, what to do about it. Plain values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from alerts.remedy import QueueSystem as QueueSystem
from alerts.remedy import Step
from streaming.judge.signals import Severity, SignalName

QUEUE_SYSTEMS: tuple[QueueSystem, ...] = get_args(QueueSystem)
SYSTEM_TITLES: Mapping[QueueSystem, str] = {
    "aws_sqs": "Amazon SQS",
    "activemq": "ActiveMQ Classic",
    "cloudflare_queues": "Cloudflare Queues",
}

RawAlertName = Literal[
    "MessageTooOld",
    "QueueStale",
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
RAW_ALERT_NAMES: tuple[RawAlertName, ...] = get_args(RawAlertName)

AlertName = SignalName | RawAlertName

AlertGroup = Literal["messages", "groups", "consumers", "queues", "telemetry", "watcher"]
ALERT_GROUPS: tuple[AlertGroup, ...] = get_args(AlertGroup)

DashboardName = Literal["overview", "queue", "groups", "dead-letters", "consumers", "pipeline"]
DASHBOARD_NAMES: tuple[DashboardName, ...] = get_args(DashboardName)

Unit = Literal["seconds", "ratio", "count", "events"]

QUEUE_IDENTITY: tuple[str, ...] = ("job", "system", "scope_id", "queue")
"""What tells one queue's alert from another's. Not `instance`: a restart must not look like a new alert."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at: `command` may be pasted into the shell the runbook's first section prepared."""

    what: str
    command: str
    look_for: str


@dataclass(frozen=True, slots=True)
class Link:
    title: str
    url: str


@dataclass(frozen=True, slots=True)
class EvidenceField:
    """One field of a signal's evidence, or one companion series, and how to read it."""

    name: str
    says: str


@dataclass(frozen=True, slots=True)
class Limit:
    """The number a raw-metric alert compares with; `alerts.<Name>.limit` in the configuration replaces it."""

    default: float
    unit: Unit
    meaning: str


@dataclass(frozen=True, slots=True)
class AlertSpec:
    """How the alert is asked of Prometheus.

    `expr` is %-formatted with `by` (grouping labels, comma-separated), `on` (the same without severity), `match` (extra
    matchers, empty or beginning with a comma), `job` and `limit`. `labels` are templated labels on top of those of the
    expression. `why` says why this expression and not another one.
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
    """True: the severity is the signal's own, read from its series, so a rule per queue pattern reaches the pager."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Everything there is to know about one alert."""

    name: AlertName
    group: AlertGroup
    subject: str
    """What it is about, in one word or two: a message, a group, the job."""
    meaning: str
    rule: tuple[str, ...]
    """Numbered steps in plain words; `{field}` stands for a threshold of `thresholds`, rendered with its unit."""
    thresholds: tuple[str, ...]
    """Fields of `Thresholds` the rule uses."""
    severity: Severity
    alert: AlertSpec
    dashboard: DashboardName
    evidence: tuple[EvidenceField, ...]
    checks: Mapping[QueueSystem, tuple[Check, ...]]
    """Exactly five per system the alert concerns."""
    fix: tuple[Step, ...]
    """What to do, the first thing first."""
    ignore: tuple[str, ...]
    links: tuple[Link, ...]
    not_applicable: Mapping[QueueSystem, str] = field(default_factory=dict)
    """Systems where it cannot happen, each with the reason."""
    watcher_checks: tuple[Check, ...] = ()
    """Exactly five, for alerts about queuewatch itself, which are the same whatever the queue system."""

    @property
    def alert_name(self) -> str:
        """The name in Prometheus: one first component for all."""
        return f"Queuewatch{self.name}"

    @property
    def anchor(self) -> str:
        """The heading's anchor in the runbook."""
        return f"alert-name-{self.alert_name.lower()}"

    @property
    def pages(self) -> bool:
        """Whether it wakes somebody by default."""
        return self.severity == "critical"

    @property
    def component(self) -> Literal["queue", "watcher"]:
        """Whom it is for: whoever runs the queue, or whoever runs queuewatch."""
        return "watcher" if self.group in ("telemetry", "watcher") else "queue"
