"""The monitoring mixin: the catalogue as jsonnet data, and a small library that turns it into rules.

Everything the configuration can change is a field of `_config`, so a jsonnet user changes it there, without Python.
The library and `alerts.prometheus_rules` say the same thing twice; a test renders both and compares.
"""

from __future__ import annotations

import json
from typing import Any

from alerts.catalogue import CATALOGUE
from alerts.config import AlertRulesConfig
from alerts.entry import ALERT_GROUPS, DASHBOARD_NAMES, Entry
from alerts.prometheus_rules import (
    RECORDED_IN,
    entry_dashboard_path,
    for_s,
    keep_firing_s,
    limit_text,
    matchers,
    recording_rules,
)
from alerts.units import duration

LIBRARY = """\
// Generated from the catalogue by `queuewatch rules`; change _config, not this file.
local data = import 'alerts.json';

{
  _config+:: {
    // The job label Prometheus scrapes queuewatch under.
    job: data.config.job,
    runbookBaseUrl: data.config.runbook_base_url,
    grafanaUrl: data.config.grafana_url,
    // Further labels of the series that tell alerts apart.
    keepLabels: data.config.keep_labels,
    // Fixed labels of every alert.
    labels: data.config.labels,
    interval: data.config.interval,
    // Per alert: enabled, severity (null: the judge's or the catalogue's), limit (a string, in the unit of the
    // catalogue), for, keepFiringFor, match (further matchers of the queue, beginning with a comma).
    alerts: data.switches,
  },

  local config = self._config,
  local joined(labels) = std.join(', ', labels),
  local words(alert, switch) = {
    local on = alert.identity + config.keepLabels,
    local judged = alert.judgedSeverity && switch.severity == null,
    by: joined(if judged then on + ['severity'] else on),
    on: joined(on),
    match: switch.match,
    job: config.job,
    limit: switch.limit,
  },
  local severity(alert, switch) =
    if switch.severity != null then switch.severity
    else if alert.judgedSeverity then '{{ $labels.severity }}'
    else alert.severity,
  local rule(alert) =
    local switch = config.alerts[alert.name];
    {
      alert: alert.alert,
      expr: alert.expr % words(alert, switch),
      'for': switch['for'],
      [if switch.keepFiringFor != '0s' then 'keep_firing_for']: switch.keepFiringFor,
      labels: { severity: severity(alert, switch), component: alert.component } + config.labels + alert.labels,
      annotations: {
        summary: alert.summary,
        description: alert.description,
        runbook_url: config.runbookBaseUrl + '#' + alert.anchor,
        dashboard_url: config.grafanaUrl + alert.dashboardPath,
      },
    },
  local by = joined(['job'] + config.keepLabels),
  local recorded = [{ record: recorded.record, expr: recorded.expr % { by: by } } for recorded in data.recorded],
  local group(name) = {
    name: 'queuewatch.' + name,
    interval: config.interval,
    // Recorded in the group that reads it: the rules of a group are evaluated in order.
    rules: (if name == data.recordedIn then recorded else []) + [
      rule(alert)
      for alert in data.alerts
      if alert.group == name && config.alerts[alert.name].enabled
    ],
  },

  prometheusRules+:: { groups: [] },

  prometheusAlerts+:: {
    groups: [group for group in [group(name) for name in data.groups] if std.length(group.rules) > 0],
  },

  grafanaDashboards+:: {
%(dashboards)s
  },
}
"""


def mixin_library() -> str:
    """`mixin.libsonnet`: alerts, recording rules and dashboards under the names mixins use."""
    lines = [(f"    'queuewatch-{name}.json': import 'dashboards/queuewatch-{name}.json',") for name in DASHBOARD_NAMES]
    return LIBRARY.replace("%(dashboards)s", "\n".join(lines))


def mixin_data(config: AlertRulesConfig) -> str:
    """`alerts.json`: the catalogue's alerts and the configured values, which are the mixin's defaults."""
    data = {
        "config": {
            "job": config.job,
            "runbook_base_url": config.runbook_base_url,
            "grafana_url": config.grafana_url,
            "keep_labels": list(config.keep_labels),
            "labels": dict(config.labels),
            "interval": duration(config.interval_s),
        },
        "switches": {entry.name: _switch(entry, config) for entry in CATALOGUE},
        "groups": list(ALERT_GROUPS),
        "alerts": [_alert(entry) for entry in CATALOGUE],
        "recordedIn": RECORDED_IN,
        "recorded": _recorded(),
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _alert(entry: Entry) -> dict[str, Any]:
    spec = entry.alert
    return {
        "name": entry.name,
        "alert": entry.alert_name,
        "group": entry.group,
        "component": entry.component,
        "identity": list(spec.identity),
        "judgedSeverity": spec.judged_severity,
        "severity": entry.severity,
        "expr": spec.expr,
        "labels": dict(spec.labels),
        "summary": spec.summary,
        "description": spec.description,
        "anchor": entry.anchor,
        "dashboardPath": entry_dashboard_path(entry),
    }


def _switch(entry: Entry, config: AlertRulesConfig) -> dict[str, Any]:
    switch = config.switch(entry)
    return {
        "enabled": switch.enabled,
        "severity": switch.severity,
        "limit": limit_text(entry, switch),
        "for": duration(for_s(entry, switch)),
        "keepFiringFor": duration(keep_firing_s(entry, switch)),
        "match": matchers(switch),
    }


def _recorded() -> list[dict[str, str]]:
    """The recording rules with their grouping labels left open."""
    marked = AlertRulesConfig(keep_labels=("queuewatch_by",))
    return [{**rule, "expr": rule["expr"].replace("job, queuewatch_by", "%(by)s")} for rule in recording_rules(marked)]
