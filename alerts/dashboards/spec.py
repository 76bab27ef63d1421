"""What a dashboard consists of, as plain values: rows of panels, each with its queries and the lines of its alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from alerts.config import AlertRulesConfig
from alerts.entry import AlertName, DashboardName
from streaming.core.thresholds import Thresholds
from streaming.judge.signals import Severity

GRID_WIDTH = 24

PanelKind = Literal["stat", "timeseries", "table", "state-timeline", "bargauge"]
PanelUnit = Literal["short", "s", "percentunit", "mps", "ops", "bytes"]
"""Grafana's names: a plain number, seconds, a share 0..1, messages/s, operations/s, bytes."""


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression with Grafana's variables. `legend` is Grafana's `{{label}}` form."""

    expr: str
    legend: str = ""
    instant: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """The number an alert compares the panel's value with, in the panel's unit."""

    alert: AlertName
    value: float
    below: bool = False
    """True: the alert fires below the line."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: the query that fills it, its heading and unit."""

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
    """Of a state timeline or a stat: value -> (text, colour)."""
    stacked: bool = False
    mark: tuple[float, Severity] | None = None
    """A value from which the panel takes a severity's colour, where several alerts have a part in it."""


@dataclass(frozen=True, slots=True)
class Row:
    """A heading and the panels below it, wrapped at the grid's width in the order given."""

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
    """Names of the query variables it has, in order, after `datasource`."""
    one_queue: bool = False
    """True: the queue variable has no All."""


@dataclass(frozen=True, slots=True)
class Context:
    """What the lines depend on."""

    config: AlertRulesConfig
    thresholds: Thresholds
