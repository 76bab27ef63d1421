"""Convert a dashboard's plain values to Grafana's JSON, with Grafana's own model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models

from alerts.catalogue import BY_NAME
from alerts.config import AlertRulesConfig
from alerts.dashboards.spec import GRID_WIDTH, Board, Column, Context, Line, Panel, Query
from alerts.prometheus_rules import dashboard_uid
from alerts.units import number, spoken_duration
from streaming.judge.findings.signals import Severity

DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG = "queuewatch"

_VARIABLES: dict[str, tuple[str, str, str]] = {
    # name: (label, query, value that means "all")
    "job": ("Job", "label_values(queuewatch_events_total, job)", ".+"),
    "instance": ("Instance", 'label_values(queuewatch_events_total{job=~"$job"}, instance)', ".+"),
    # A queue without a scope has no such label, a signal about telemetry or the clock none of the three: .+ would not match them.
    "system": ("System", 'label_values(queuewatch_queue_status{job=~"$job"}, system)', ".*"),
    "scope_id": ("Scope", ('label_values(queuewatch_queue_status{job=~"$job", system=~"$system"}, scope_id)'), ".*"),
    "queue": (
        "Queue",
        'label_values(queuewatch_queue_status{job=~"$job", system=~"$system", scope_id=~"$scope_id"}, queue)',
        ".*",
    ),
}
_SEVERITY_COLOURS: dict[Severity, str] = {"critical": "red", "warning": "orange", "info": "blue"}


def dashboard_json(board: Board, context: Context) -> str:
    """Return the dashboard as JSON text that ends in a newline. The same input gives the same bytes."""
    builder = (
        dashboard.Dashboard(board.title)
        .uid(dashboard_uid(board.name))
        .description(board.description)
        .tags([TAG])
        .readonly()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
    )
    builder.with_variable(
        dashboard.DatasourceVariable("datasource")
        .label("Data source")
        .type("prometheus")
        .current(models.VariableOption(text="default", value="default"))
    )
    for name in board.variables:
        builder.with_variable(_variable(name, all_queues=not board.one_queue))
    builder.annotation(
        dashboard.AnnotationQuery()
        .name("Alerts")
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color("red")
        .expr('ALERTS{alertname=~"Queuewatch.+", alertstate="firing", job=~"$job"}')
    )
    for link in _links(context.config):
        builder.link(link)
    for panel in _placed(board, context):
        builder.with_panel(panel)
    return str(JSONEncoder(sort_keys=True, indent=2, ensure_ascii=False).encode(builder.build())) + "\n"


def _variable(name: str, *, all_queues: bool) -> dashboard.QueryVariable:
    label, query, everything = _VARIABLES[name]
    variable = (
        dashboard.QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(DATASOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
    )
    if name != "queue" or all_queues:
        variable.include_all(True).all_value(everything)
        variable.current(models.VariableOption(text="All", value="$__all", selected=True))
    return variable


def _links(config: AlertRulesConfig) -> Iterator[dashboard.DashboardLink]:
    yield (
        dashboard.DashboardLink("queuewatch boards")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )
    for title, url in (("Status page", f"{config.page_url}/"), ("Runbook", config.runbook_base_url)):
        yield (
            dashboard.DashboardLink(title).type(models.DashboardLinkType.LINK).url(url).icon("external link").target_blank(True)
        )


def _placed(board: Board, context: Context) -> Iterator[Any]:
    """Return rows and panels with positions and ids: row by row, wrapped at the grid's width."""
    y = 0
    panel_id = 0
    for row in board.rows:
        panel_id += 1
        yield _Placed(dashboard.Row(row.title), panel_id, models.GridPos(h=1, w=GRID_WIDTH, x=0, y=y))
        y += 1
        x = line_height = 0
        for panel in row.panels:
            if x + panel.width > GRID_WIDTH:
                x, y, line_height = 0, y + line_height, 0
            panel_id += 1
            place = models.GridPos(h=panel.height, w=panel.width, x=x, y=y)
            yield _Placed(_panel(panel, context), panel_id, place)
            x += panel.width
            line_height = max(line_height, panel.height)
        y += line_height


class _Placed:
    """A panel builder with id and position. The library's own layout leaves panels outside the grid."""

    def __init__(self, builder: Any, panel_id: int, place: models.GridPos) -> None:
        self._builder = builder.id(panel_id).grid_pos(place)

    def build(self) -> Any:
        return self._builder.build()


def _panel(panel: Panel, context: Context) -> Any:
    lines = [line for line in panel.lines if context.config.switch(BY_NAME[line.alert]).enabled]
    builder: Any
    match panel.kind:
        case "stat":
            builder = stat.Panel().reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False))
            builder.color_mode(common_models.BigValueColorMode.VALUE).graph_mode(common_models.BigValueGraphMode.NONE)
        case "timeseries":
            builder = timeseries.Panel().fill_opacity(10).show_points(common_models.VisibilityMode.NEVER)
            builder.span_nulls(False).axis_soft_min(0)
            builder.legend(
                common.VizLegendOptions()
                .display_mode(common_models.LegendDisplayMode.LIST)
                .placement(common_models.LegendPlacement.BOTTOM)
                .show_legend(True)
            )
            if panel.stacked:
                builder.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"))
            if lines:
                builder.thresholds_style(common.GraphThresholdsStyleConfig().mode(common_models.GraphThresholdsStyleMode.DASHED))
        case "state-timeline":
            builder = statetimeline.Panel().merge_values(True).show_value(common_models.VisibilityMode.NEVER)
        case "bargauge":
            builder = bargauge.Panel().orientation(common_models.VizOrientation.HORIZONTAL)
            builder.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False))
        case "table":
            builder = _with_columns(table.Panel(), panel.columns, context)
    builder.title(panel.title).description(_description(panel, lines)).unit(panel.unit).datasource(DATASOURCE)
    for position, query in enumerate(panel.queries):
        builder.with_target(_target(query, position))
    if panel.states:
        builder.mappings([_mapping(panel.states)])
    builder.thresholds(_thresholds(lines, panel))
    if lines:
        builder.links(list(_runbook_links(lines, context.config)))
    return builder


def _target(query: Query, position: int, *, as_table: bool = False) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expr).ref_id(chr(ord("A") + position)).datasource(DATASOURCE)
    if query.legend:
        target.legend_format(query.legend)
    if as_table:
        target.format(prometheus_models.PromQueryFormat.TABLE)
    return target.instant() if query.instant else target.range()


def _description(panel: Panel, lines: list[Line]) -> str:
    # The numbers of a panel with states are for Grafana only.
    if not lines or panel.states:
        return panel.description
    words = [
        (f"{BY_NAME[ln.alert].alert_name} {'below' if ln.below else 'from'} {_in_unit(ln.value, panel.unit)}") for ln in lines
    ]
    return f"{panel.description} Alert lines: {'; '.join(dict.fromkeys(words))}."


def _in_unit(value: float, unit: str) -> str:
    if unit == "s":
        return spoken_duration(value)
    return f"{number(round(value * 100, 4))}%" if unit == "percentunit" else f"{value:,.10g}"


def _thresholds(lines: list[Line], panel: Panel) -> dashboard.ThresholdsConfig:
    """Return the alert thresholds as steps. Lower limits colour the range below them, upper limits the range above."""
    steps = [models.Threshold(value=None, color="green")]
    if not panel.states:
        below = _coloured(line for line in lines if line.below)
        above = _coloured(line for line in lines if not line.below)
        if below:
            steps = [models.Threshold(value=None, color=below[0][1])]
            # Each step has the colour of the band above it.
            colours = [colour for _, colour in below[1:]] + ["green"]
            steps += [models.Threshold(value=v, color=c) for (v, _), c in zip(below, colours, strict=True)]
        if panel.mark is not None:
            above.append((panel.mark[0], _SEVERITY_COLOURS[panel.mark[1]]))
        steps += [models.Threshold(value=value, color=colour) for value, colour in above]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _coloured(lines: Iterable[Line]) -> list[tuple[float, str]]:
    """Return value and colour of each line, from low to high; at the same value the higher severity gives the colour."""
    gravest: dict[float, Severity] = {}
    for line in lines:
        severity = BY_NAME[line.alert].severity
        known = gravest.get(line.value, severity)
        gravest[line.value] = min(severity, known, key=list(_SEVERITY_COLOURS).index)
    return [(value, _SEVERITY_COLOURS[severity]) for value, severity in sorted(gravest.items())]


def _runbook_links(lines: list[Line], config: AlertRulesConfig) -> Iterator[dashboard.DashboardLink]:
    for name in dict.fromkeys(line.alert for line in lines):
        entry = BY_NAME[name]
        yield (
            dashboard.DashboardLink(f"Runbook: {entry.alert_name}")
            .type(models.DashboardLinkType.LINK)
            .url(f"{config.runbook_base_url}#{entry.anchor}")
            .target_blank(True)
        )


def _mapping(states: Any) -> models.ValueMap:
    return models.ValueMap(
        options={
            value: models.ValueMappingResult(text=text, color=colour, index=position)
            for position, (value, (text, colour)) in enumerate(states.items())
        }
    )


def _with_columns(builder: table.Panel, columns: Any, context: Context) -> table.Panel:
    """Build a table with one row per queue: each query's result is a column, joined on the queue's labels."""
    names: dict[str, str] = {"system": "System", "scope_id": "Scope", "queue": "Queue", "status": "Status"}
    order: list[str] = ["queue", "system", "scope_id", "status"]
    hidden: dict[str, bool] = {"Time": True}
    for position, column in enumerate(columns):
        assert isinstance(column, Column)
        builder.with_target(_target(column.query, position, as_table=True))
        value = f"Value #{chr(ord('A') + position)}"
        if column.heading == "Status":
            hidden[value] = True
            continue
        names[value] = column.heading
        order.append(value)
        builder.override_by_name(column.heading, [models.DynamicConfigValue(id_val="unit", value=column.unit)])
    builder.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    builder.with_transformation(
        models.DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": hidden,
                "indexByName": {name: position for position, name in enumerate(order)},
                "renameByName": names,
            },
        )
    )
    builder.override_by_name("Queue", [models.DynamicConfigValue(id_val="links", value=_queue_links(context.config))])
    return builder.filterable(True)


def _queue_links(config: AlertRulesConfig) -> list[dict[str, Any]]:
    fields = {"system": "System", "scope_id": "Scope", "queue": "Queue"}
    variables = "&".join(f"var-{name}=${{__data.fields.{field}:percentencode}}" for name, field in fields.items())
    boards: tuple[tuple[str, Literal["queue", "groups", "consumers", "dead-letters"]], ...] = (
        ("Queue", "queue"),
        ("Groups", "groups"),
        ("Consumers", "consumers"),
        ("Dead letters", "dead-letters"),
    )
    inside = [
        {"title": title, "url": f"/d/{dashboard_uid(name)}?{variables}&${{__url_time_range}}&${{job:queryparam}}"}
        for title, name in boards
    ]
    return [*inside, {"title": "Status page", "url": f"{config.page_url}/", "targetBlank": True}]
