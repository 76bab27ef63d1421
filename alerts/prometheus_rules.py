"""The rule groups of Prometheus, as plain values, from the catalogue and the configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from alerts.catalogue import CATALOGUE
from alerts.config import AlertRulesConfig, AlertSwitch
from alerts.entry import ALERT_GROUPS, AlertGroup, DashboardName, Entry
from alerts.templating import dashboard_path
from alerts.units import duration, number

RuleGroup = dict[str, Any]

RECORDED_IN: AlertGroup = "telemetry"
"""The group that records ratios, as its alerts read them."""

DASHBOARD_VARIABLES: dict[DashboardName, tuple[str, ...]] = {
    "overview": ("job", "system", "scope_id"),
    "queue": ("job", "system", "scope_id", "queue"),
    "groups": ("job", "system", "scope_id", "queue"),
    "dead-letters": ("job", "system", "scope_id", "queue"),
    "consumers": ("job", "system", "scope_id", "queue"),
    "pipeline": ("job",),
}
"""The variables of each dashboard that an alert's labels can set."""


def dashboard_uid(name: DashboardName) -> str:
    """Stable for ever: links in old notifications must go on working."""
    return f"queuewatch-{name}"


def rule_groups(config: AlertRulesConfig) -> list[RuleGroup]:
    """One group per subject, with what is recorded before the alerts that read it. Groups without a rule are left out."""
    groups = []
    for group in ALERT_GROUPS:
        # Rules of one group are evaluated in order; across groups an alert could read what was recorded a step ago.
        rules = recording_rules(config) if group == RECORDED_IN else []
        rules += [alert_rule(entry, config) for entry in enabled(config) if entry.group == group]
        if rules:
            groups.append({"name": f"queuewatch.{group}", "interval": duration(config.interval_s), "rules": rules})
    return groups


def enabled(config: AlertRulesConfig) -> Iterator[Entry]:
    """The entries that are switched on, in the catalogue's order."""
    return (entry for entry in CATALOGUE if config.switch(entry).enabled)


def recording_rules(config: AlertRulesConfig) -> list[dict[str, Any]]:
    """Ratios that an alert compares and a dashboard plots: recorded once, so both show the same number."""
    by = ", ".join(("job", *config.keep_labels))
    total = f"sum by ({by}) (rate(queuewatch_events_total[10m]))"
    return [
        {
            "record": f"job:queuewatch_events_{result}:ratio_rate10m",
            "expr": (f'sum by ({by}) (rate(queuewatch_events_total{{result="{result}"}}[10m])) / ({total} > 0)'),
        }
        for result in ("invalid", "late")
    ]


def alert_rule(entry: Entry, config: AlertRulesConfig) -> dict[str, Any]:
    """One alert as Prometheus wants it."""
    spec, switch = entry.alert, config.switch(entry)
    rule: dict[str, Any] = {
        "alert": entry.alert_name,
        "expr": expression(entry, config),
        "for": duration(for_s(entry, switch)),
    }
    if keep_s := keep_firing_s(entry, switch):
        rule["keep_firing_for"] = duration(keep_s)
    rule["labels"] = {
        "severity": severity_label(entry, switch),
        "component": entry.component,
        **config.labels,
        **spec.labels,
    }
    rule["annotations"] = {
        "summary": spec.summary,
        "description": spec.description,
        "runbook_url": f"{config.runbook_base_url}#{entry.anchor}",
        "dashboard_url": config.grafana_url + entry_dashboard_path(entry),
    }
    return rule


def expression(entry: Entry, config: AlertRulesConfig) -> str:
    """The alert's PromQL."""
    switch = config.switch(entry)
    on = (*entry.alert.identity, *config.keep_labels)
    by = (*on, "severity") if entry.alert.judged_severity and switch.severity is None else on
    return entry.alert.expr % {
        "by": ", ".join(by),
        "on": ", ".join(on),
        "match": matchers(switch),
        "job": config.job,
        "limit": limit_text(entry, switch),
    }


def for_s(entry: Entry, switch: AlertSwitch) -> float:
    """How long the expression must hold."""
    return entry.alert.for_s if switch.for_s is None else switch.for_s


def keep_firing_s(entry: Entry, switch: AlertSwitch) -> float:
    """How long the alert goes on after the expression ended."""
    return entry.alert.keep_firing_s if switch.keep_firing_s is None else switch.keep_firing_s


def limit_text(entry: Entry, switch: AlertSwitch) -> str:
    """The number of a raw-metric alert as PromQL; `0` where there is none."""
    if switch.limit is not None:
        return number(switch.limit)
    return number(entry.alert.limit.default) if entry.alert.limit else "0"


def severity_label(entry: Entry, switch: AlertSwitch) -> str:
    """The configured one, else the judge's own for signals, else the catalogue's."""
    if switch.severity is not None:
        return switch.severity
    return "{{ $labels.severity }}" if entry.alert.judged_severity else entry.severity


def matchers(switch: AlertSwitch) -> str:
    """Further matchers of a selector, each beginning with a comma."""
    only = f",queue=~{_quoted(switch.only_queues)}" if switch.only_queues else ""
    exclude = f",queue!~{_quoted(switch.exclude_queues)}" if switch.exclude_queues else ""
    return only + exclude


def entry_dashboard_path(entry: Entry) -> str:
    """Path and query of the dashboard of an alert, without the base URL."""
    variables = tuple(v for v in DASHBOARD_VARIABLES[entry.dashboard] if v in entry.alert.identity)
    return dashboard_path(dashboard_uid(entry.dashboard), variables)


def _quoted(text: str) -> str:
    # PromQL's double-quoted strings escape as JSON's do.
    return json.dumps(text, ensure_ascii=False)
