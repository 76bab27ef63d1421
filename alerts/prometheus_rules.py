"""The Prometheus rule groups as plain values, built from the catalogue and the configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from alerts.catalogue import CATALOGUE
from alerts.config import AlertRulesConfig, AlertSwitch
from alerts.entry import ALERT_GROUPS, DashboardName, Entry
from alerts.objectives import LONG_INTERVALS, SHORT_INTERVALS, long_rules, short_rules
from alerts.ownership import tagged
from alerts.templating import dashboard_path, kept
from alerts.units import duration, number

RuleGroup = dict[str, Any]

LONG_GROUP = "objectives-long"
"""The group that records windows of days; it has no alerts."""
INTERVALS: Mapping[str, int] = {"objectives": SHORT_INTERVALS, LONG_GROUP: LONG_INTERVALS}
"""How many times as long as that of the other groups the interval of a group is."""

DASHBOARD_VARIABLES: dict[DashboardName, tuple[str, ...]] = {
    "overview": ("job", "system", "scope_id"),
    "queue": ("job", "system", "scope_id", "queue"),
    "groups": ("job", "system", "scope_id", "queue"),
    "dead-letters": ("job", "system", "scope_id", "queue"),
    "consumers": ("job", "system", "scope_id", "queue"),
    "pipeline": ("job",),
}
"""The variables of each dashboard that can be set from an alert's labels."""


def dashboard_uid(name: DashboardName) -> str:
    """Return the dashboard's uid, which must never change: links in old notifications must keep working."""
    return f"queuewatch-{name}"


def rule_groups(config: AlertRulesConfig) -> list[RuleGroup]:
    """Return one group per subject, with recording rules before the alerts that read them. Empty groups are left out."""
    recorded = recording_rules(config)
    groups = []
    for group in ALERT_GROUPS:
        # Rules of one group are evaluated in order; across groups an alert could read a value that is one evaluation old.
        rules = recorded.get(group, []) + [alert_rule(entry, config) for entry in enabled(config) if entry.group == group]
        if rules:
            groups.append(_group(group, rules, config))
    if long := recorded[LONG_GROUP]:
        groups.append(_group(LONG_GROUP, long, config))
    return groups


def _group(name: str, rules: list[dict[str, Any]], config: AlertRulesConfig) -> RuleGroup:
    interval_s = INTERVALS.get(name, 1) * config.interval_s
    return {"name": f"queuewatch.{name}", "interval": duration(interval_s), "rules": rules}


def enabled(config: AlertRulesConfig) -> Iterator[Entry]:
    """Return the enabled entries, in the catalogue's order."""
    return (entry for entry in CATALOGUE if config.switch(entry).enabled)


def silenced_by(entry: Entry) -> frozenset[str]:
    """Return the metrics whose series keep the alert from firing: it fires wrongly where `/metrics` leaves one of them out."""
    firing, _, silencing = entry.alert.expr.partition(" unless ")
    # Without a metric that it also fires by, the alert never fires.
    return _metrics(silencing) - _metrics(firing)


def _metrics(expr: str) -> frozenset[str]:
    return frozenset(re.findall(r"\bqueuewatch_\w+", expr))


def recording_rules(config: AlertRulesConfig) -> dict[str, list[dict[str, Any]]]:
    """Return by group what both an alert and a dashboard read: recorded once, so that both show the same number."""
    return {
        "telemetry": _event_ratios(config),
        "objectives": short_rules(config.objectives, config.keep_labels),
        LONG_GROUP: long_rules(config.objectives, config.keep_labels),
    }


def _event_ratios(config: AlertRulesConfig) -> list[dict[str, Any]]:
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
    """Return one alert in Prometheus' format."""
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
        "description": spec.description % kept(config.keep_labels),
        "runbook_url": f"{config.runbook_base_url}#{entry.anchor}",
        "dashboard_url": config.grafana_url + entry_dashboard_path(entry),
    }
    return rule


def expression(entry: Entry, config: AlertRulesConfig) -> str:
    """Return the alert's PromQL."""
    switch = config.switch(entry)
    on = (*entry.alert.identity, *config.keep_labels)
    by = (*on, "severity") if entry.alert.judged_severity and switch.severity is None else on
    expr = entry.alert.expr % {
        "by": ", ".join(by),
        "on": ", ".join(on),
        "match": matchers(switch),
        "job": config.job,
        "limit": limit_text(entry, switch),
    }
    return tagged(expr, entry.alert.identity, config.keep_labels, config.tag_labels)


def for_s(entry: Entry, switch: AlertSwitch) -> float:
    """Return how long the expression must hold."""
    return entry.alert.for_s if switch.for_s is None else switch.for_s


def keep_firing_s(entry: Entry, switch: AlertSwitch) -> float:
    """Return how long the alert keeps firing after the expression no longer holds."""
    return entry.alert.keep_firing_s if switch.keep_firing_s is None else switch.keep_firing_s


def limit_text(entry: Entry, switch: AlertSwitch) -> str:
    """Return the limit of a raw-metric alert as PromQL, or `0` if it has none."""
    if switch.limit is not None:
        return number(switch.limit)
    return number(entry.alert.limit.default) if entry.alert.limit else "0"


def severity_label(entry: Entry, switch: AlertSwitch) -> str:
    """Return the configured severity, else the judge's for signals, else the catalogue's."""
    if switch.severity is not None:
        return switch.severity
    return "{{ $labels.severity }}" if entry.alert.judged_severity else entry.severity


def matchers(switch: AlertSwitch) -> str:
    """Return additional matchers of a selector, each beginning with a comma."""
    only = f",queue=~{_quoted(switch.only_queues)}" if switch.only_queues else ""
    exclude = f",queue!~{_quoted(switch.exclude_queues)}" if switch.exclude_queues else ""
    return only + exclude


def entry_dashboard_path(entry: Entry) -> str:
    """Return path and query of an alert's dashboard, without the base URL."""
    variables = tuple(v for v in DASHBOARD_VARIABLES[entry.dashboard] if v in entry.alert.identity)
    return dashboard_path(dashboard_uid(entry.dashboard), variables)


def _quoted(text: str) -> str:
    # PromQL escapes double-quoted strings like JSON.
    return json.dumps(text, ensure_ascii=False)
