"""Configuration of the generated rules, dashboards and runbook: section `alerts` of the file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from alerts.catalogue import BY_NAME, CATALOGUE, did_you_mean
from alerts.entry import Entry
from alerts.objectives import Name, Objective
from alerts.patterns import Pattern
from streaming.config.section import Seconds, Section
from streaming.judge.findings.signals import Severity

LABEL_PATTERN: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")

_IDENTITY: Final = sorted({label for entry in CATALOGUE for label in (*entry.alert.identity, *entry.alert.labels)})
"""The labels that distinguish the alerts of some rule."""


def _label(name: str) -> str:
    if not LABEL_PATTERN.match(name) or name.startswith("__"):
        raise ValueError(f"{name!r} is not a label name: letters, digits and _ only, not beginning with a digit or __")
    return name


def _base_url(url: str) -> str:
    if not re.match(r"https?://[^\s]+\Z", url):
        raise ValueError(f"{url!r} is not a URL: begin it with http:// or https://")
    try:
        parts = urlsplit(url)
        valid = bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port beyond 65535, or half of an IPv6 address
        valid = False
    if not valid:
        raise ValueError("it is not a URL: write the host after http:// or https://, and a port of 1 to 65535 if any")
    return url.rstrip("/")


LabelName = Annotated[str, AfterValidator(_label)]
BaseUrl = Annotated[str, AfterValidator(_base_url)]


class AlertSwitch(Section):
    """Changes to one alert; keys that are not set keep the catalogue's default."""

    enabled: bool = True
    severity: Severity | None = None
    """Replaces the severity of the judge or the catalogue."""
    limit: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """The limit of a raw-metric alert, in the unit given in the catalogue. Limits of signals are set in `judge`."""
    for_s: Seconds | None = None
    """How long the expression must hold, in seconds."""
    keep_firing_s: Seconds | None = None
    """How long the alert keeps firing after the expression no longer holds, in seconds."""
    only_queues: Pattern = ""
    """Alert only on queues whose name matches."""
    exclude_queues: Pattern = ""
    """Do not alert on queues whose name matches."""


class KubernetesSection(Section):
    """Metadata of the generated PrometheusRule."""

    name: str = "queuewatch"
    namespace: str = "monitoring"
    labels: dict[str, str] = Field(default_factory=lambda: {"app.kubernetes.io/name": "queuewatch"})
    """Must match the `ruleSelector` of your Prometheus, for example `release: kube-prometheus-stack`."""


class AlertRulesConfig(Section):
    """All settings of the generated files. Every key is optional."""

    job: str = Field(default="queuewatch", pattern=r"^[A-Za-z0-9_.:/-]+$")
    """The `job` label under which Prometheus scrapes queuewatch."""
    runbook_base_url: BaseUrl = "http://localhost:9400/runbook"
    """The URL where you publish the runbook; `runbook_url` is this, `#` and the alert's heading."""
    grafana_url: BaseUrl = "http://localhost:3000"
    """The base of `dashboard_url`."""
    page_url: BaseUrl = "http://localhost:9400"
    """The URL of queuewatch's status page, linked from the dashboards."""
    keep_labels: tuple[LabelName, ...] = ()
    """Additional labels of the series (`cluster`, `namespace`) that distinguish alerts, besides job and queue."""
    tag_labels: tuple[LabelName, ...] = ()
    """Tags of `judge.tag_labels` that alerts about a queue carry as labels, for routing: `team` becomes `tag_team`."""
    labels: dict[LabelName, str] = Field(default_factory=lambda: {"rulesgroup": "queuewatch"})
    """Constant labels added to every alert, for routing."""
    interval_s: Annotated[float, Field(gt=0)] = 3
    """How often Prometheus evaluates the rules, in seconds: a page waits at most this long after a scrape."""
    kubernetes: KubernetesSection = Field(default_factory=KubernetesSection)
    objectives: Mapping[Name, Objective] = Field(default_factory=dict)
    """Service-level objectives by name, for recording rules and the two alerts on error budgets."""
    rules: Mapping[str, AlertSwitch] = Field(default_factory=dict)
    """Changes by the alert's name in the catalogue, for example `PoisonMessage`."""

    @field_validator("rules")
    @classmethod
    def _known(cls, rules: Mapping[str, AlertSwitch]) -> Mapping[str, AlertSwitch]:
        for name, switch in rules.items():
            entry = BY_NAME.get(name)
            if entry is None:
                raise ValueError(f"no alert {name}{did_you_mean(name)}")
            if switch.limit is not None and entry.alert.limit is None:
                raise ValueError(
                    f"{name} has no limit of its own; change its thresholds under judge.thresholds: "
                    f"{', '.join(entry.thresholds) or 'it has none'}"
                )
            if (switch.only_queues or switch.exclude_queues) and "queue" not in entry.alert.identity:
                raise ValueError(f"{name} is not about a queue: only_queues and exclude_queues do not apply")
        return rules

    @field_validator("labels")
    @classmethod
    def _free_labels(cls, labels: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        for taken in ("severity", "alertname", "component"):
            if taken in labels:
                raise ValueError(f"labels: {taken} is set by the rules; use rules.<Alert>.severity for a severity")
        for taken in (*_IDENTITY, *info.data.get("keep_labels", ())):
            if taken in labels:
                raise ValueError(f"labels: {taken} tells alerts apart: with the same value for all, Prometheus would send none")
        return labels

    def switch(self, entry: Entry) -> AlertSwitch:
        """Return the configured changes to an alert."""
        return self.rules.get(entry.name) or AlertSwitch()
