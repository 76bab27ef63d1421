"""The alert for one signal: labels that identify it, annotations for people. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from alerts.catalogue import BY_NAME
from alerts.config import LABEL_PATTERN, AlertRulesConfig
from sinks.explain.advice import advice
from streaming.judge.findings.signals import Finding, Severity, SignalKey

OTHERS = "others"
"""The value of the label `part` for the alert that represents all folded findings."""

_MAX_VALUE = 1_024
_MAX_LABEL = 512
_MAX_EVIDENCE = 30
_STEPS = 2

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PendingAlert:
    """A signal that is, or will be, sent. `folded` counts the additional findings that the alert represents."""

    finding: Finding
    severity: Severity
    folded: int = 0


def labels_of(alert: PendingAlert, rules: AlertRulesConfig) -> Labels:
    """Return the labels that identify the alert: the labels of the generated rules, and the signal's subject.

    They never contain evidence, because a changing number would create a new alert.
    """
    key = alert.finding.key
    entry = BY_NAME[key.signal]
    labels = {
        **rules.labels,
        "alertname": entry.alert_name,
        "component": entry.component,
        "severity": alert.severity,
        "job": rules.job,
        "system": key.system,
        "scope_id": key.scope,
        "queue": key.queue,
        "message_id": key.message_id,
        "group": key.group,
        "consumer": key.consumer,
        "part": key.part,
    }
    return {name: _cut(value, _MAX_LABEL) for name, value in labels.items() if value}


def annotations_of(alert: PendingAlert, rules: AlertRulesConfig) -> Labels:
    """Return the annotations: summary, evidence by name, what to do, and links."""
    key, evidence = alert.finding.key, alert.finding.evidence
    entry = BY_NAME[key.signal]
    own = {
        "summary": entry.alert.summary,
        "description": alert.finding.summary or entry.alert.summary,
        "what_to_do": " ".join(advice(alert.finding).to_do[:_STEPS]),
        "runbook_url": f"{rules.runbook_base_url}#{entry.anchor}",
        "dashboard_url": page_link(key, rules),
    }
    if alert.folded:
        own["description"] = f"{alert.folded:,} more of the same; the latest: {own['description']}"
    evidence_texts = {name: _word(value) for name, value in list(evidence.items())[:_MAX_EVIDENCE] if name != "summary"}
    texts = {**evidence_texts, **own}
    return {name: _cut(value, _MAX_VALUE) for name, value in texts.items() if LABEL_PATTERN.match(name) and value}


def to_json(alert: PendingAlert, rules: AlertRulesConfig, *, ends_ms: int) -> dict[str, Any]:
    """Return the alert for API v2. `ends_ms` (epoch milliseconds) is in the past if the alert has ended."""
    # A sender's clock may run ahead, but an alert must begin before it ends.
    starts_ms = min(alert.finding.since_ms, ends_ms - 1)
    return {
        "labels": labels_of(alert, rules),
        "annotations": annotations_of(alert, rules),
        "startsAt": _rfc3339(starts_ms),
        "endsAt": _rfc3339(ends_ms),
        "generatorURL": page_link(alert.finding.key, rules),
    }


def page_link(key: SignalKey, rules: AlertRulesConfig) -> str:
    """Return the status page's URL for the queue, opened at the subject of the signal."""
    about = {"message": key.message_id, "group": key.group, "consumer": key.consumer}
    query = {"system": key.system, "scope": key.scope, "queue": key.queue} | {
        name: value for name, value in about.items() if value
    }
    return f"{rules.page_url}/#/queue?{urlencode(query, errors='replace')}"


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _cut(text: str, longest: int) -> str:
    # Half a surrogate pair is valid in JSON but not in a label.
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _rfc3339(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
