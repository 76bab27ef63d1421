"""The monitoring mixin: the catalogue as jsonnet data, and a small library that turns it into rules.

Everything that can be configured is a field of `_config`, so jsonnet users can change it there, without Python. The library
duplicates `alerts.prometheus_rules`; a test renders both and compares them.
"""

from __future__ import annotations

import json
from typing import Any

from alerts.catalogue import CATALOGUE
from alerts.config import AlertRulesConfig
from alerts.entry import ALERT_GROUPS, DASHBOARD_NAMES, QUEUE_IDENTITY, Entry
from alerts.objectives import LONG_INTERVALS, SHORT_INTERVALS
from alerts.ownership import TAGGED
from alerts.prometheus_rules import (
    LONG_GROUP,
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
    // Tags of queues that alerts about a queue carry as labels: team becomes tag_team.
    tagLabels: data.config.tag_labels,
    // Fixed labels of every alert.
    labels: data.config.labels,
    interval: data.config.interval,
    // Of what is recorded over days. The objectives themselves are those `queuewatch rules` was run with.
    objectivesInterval: data.config.objectives_interval,
    longInterval: data.config.long_interval,
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
  local kept = {
    kept_matchers: std.join('', [',' + label + '=%q' for label in config.keepLabels]),
    kept_values: std.join('', [' $labels.' + label for label in config.keepLabels]),
  },
  local tagged(expr, identity) =
    if std.length(config.tagLabels) == 0 || !std.member(identity, 'queue') then expr
    else data.tagged % {
      expr: expr,
      on: joined(data.queueIdentity + config.keepLabels),
      tags: joined(['tag_' + tag for tag in config.tagLabels]),
    },
  local severity(alert, switch) =
    if switch.severity != null then switch.severity
    else if alert.judgedSeverity then '{{ $labels.severity }}'
    else alert.severity,
  local rule(alert) =
    local switch = config.alerts[alert.name];
    {
      alert: alert.alert,
      expr: tagged(alert.expr % words(alert, switch), alert.identity),
      'for': switch['for'],
      [if switch.keepFiringFor != '0s' then 'keep_firing_for']: switch.keepFiringFor,
      labels: { severity: severity(alert, switch), component: alert.component } + config.labels + alert.labels,
      annotations: {
        summary: alert.summary,
        description: alert.description % kept,
        runbook_url: config.runbookBaseUrl + '#' + alert.anchor,
        dashboard_url: config.grafanaUrl + alert.dashboardPath,
      },
    },
  local by = joined(['job'] + config.keepLabels),
  local recorded(name) = [
    rule { expr: rule.expr % { by: by } }
    for rule in (if std.objectHas(data.recorded, name) then data.recorded[name] else [])
  ],
  local group(name) = {
    name: 'queuewatch.' + name,
    interval: if name == data.longGroup then config.longInterval
    else if name == 'objectives' then config.objectivesInterval
    else config.interval,
    // Recorded in the group that reads it: the rules of a group are evaluated in order.
    rules: recorded(name) + [
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
    """Return `mixin.libsonnet`: alerts, recording rules and dashboards under the names mixins use."""
    lines = [(f"    'queuewatch-{name}.json': import 'dashboards/queuewatch-{name}.json',") for name in DASHBOARD_NAMES]
    return LIBRARY.replace("%(dashboards)s", "\n".join(lines))


def mixin_data(config: AlertRulesConfig) -> str:
    """Return `alerts.json`: the catalogue's alerts and the configured values, which are the mixin's defaults."""
    data = {
        "config": {
            "job": config.job,
            "runbook_base_url": config.runbook_base_url,
            "grafana_url": config.grafana_url,
            "keep_labels": list(config.keep_labels),
            "tag_labels": list(config.tag_labels),
            "labels": dict(config.labels),
            "interval": duration(config.interval_s),
            "objectives_interval": duration(SHORT_INTERVALS * config.interval_s),
            "long_interval": duration(LONG_INTERVALS * config.interval_s),
        },
        "switches": {entry.name: _switch(entry, config) for entry in CATALOGUE},
        "groups": [*ALERT_GROUPS, LONG_GROUP],
        "longGroup": LONG_GROUP,
        "tagged": TAGGED,
        "queueIdentity": list(QUEUE_IDENTITY),
        "alerts": [_alert(entry) for entry in CATALOGUE],
        "recorded": _recorded(config),
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


def _recorded(config: AlertRulesConfig) -> dict[str, list[dict[str, Any]]]:
    """Return the recording rules by group, with placeholders for their grouping labels."""
    marked = AlertRulesConfig(keep_labels=("queuewatch_by",), objectives=config.objectives)
    return {
        group: [{**rule, "expr": _with_placeholder(rule["expr"])} for rule in rules]
        for group, rules in recording_rules(marked).items()
    }


def _with_placeholder(expr: str) -> str:
    # A queue's pattern may contain a percent sign, which jsonnet's formatting would read.
    return expr.replace("%", "%%").replace("job, queuewatch_by", "%(by)s")
