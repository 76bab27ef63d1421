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
    'queuewatch-overview.json': import 'dashboards/queuewatch-overview.json',
    'queuewatch-queue.json': import 'dashboards/queuewatch-queue.json',
    'queuewatch-groups.json': import 'dashboards/queuewatch-groups.json',
    'queuewatch-dead-letters.json': import 'dashboards/queuewatch-dead-letters.json',
    'queuewatch-consumers.json': import 'dashboards/queuewatch-consumers.json',
    'queuewatch-pipeline.json': import 'dashboards/queuewatch-pipeline.json',
  },
}
