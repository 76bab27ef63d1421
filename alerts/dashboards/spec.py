"""The plain data model of a dashboard: rows of panels, each with its queries and the thresholds of its alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from alerts.config import AlertRulesConfig
from alerts.entry import AlertName, DashboardName
from streaming.core.thresholds import Thresholds
from streaming.judge.findings.signals import Severity

GRID_WIDTH = 24

PanelKind = Literal["stat", "timeseries", "table", "state-timeline", "bargauge"]
PanelUnit = Literal["short", "s", "percentunit", "mps", "ops", "bytes"]
"""Grafana's unit names: a plain number, seconds, a share 0..1, messages/s, operations/s, bytes."""


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression with Grafana's variables. `legend` is Grafana's `{{label}}` form."""

    expr: str
    legend: str = ""
    instant: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """The limit an alert compares the panel's value with, in the panel's unit."""

    alert: AlertName
    value: float
    below: bool = False
    """Whether the alert fires below the line."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the query that fills it, its heading and unit."""

    query: Query
    heading: str
    unit: PanelUnit


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. Either `queries`, or for a table `columns`."""

    kind: PanelKind
    title: str
    description: str
    unit: PanelUnit = "short"
    queries: Sequence[Query] = ()
    width: int = 12
    height: int = 8
    lines: Sequence[Line] = ()
    columns: Sequence[Column] = ()
    states: Mapping[str, tuple[str, str]] | None = None
    """Text and colour for each value of a state timeline or a stat."""
    stacked: bool = False
    mark: tuple[float, Severity] | None = None
    """A value at which the panel takes a severity's colour, if several alerts use it."""


@dataclass(frozen=True, slots=True)
class Row:
    """A heading and the panels below it, in order, wrapped at the grid's width."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard."""

    name: DashboardName
    title: str
    description: str
    rows: Sequence[Row]
    variables: Sequence[str]
    """Names of its query variables, in order, after `datasource`."""
    one_queue: bool = False
    """Whether the queue variable has no "All" option."""


@dataclass(frozen=True, slots=True)
class Context:
    """The settings that determine the threshold lines."""

    config: AlertRulesConfig
    thresholds: Thresholds
