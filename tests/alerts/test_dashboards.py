"""The dashboards follow the rules of Grafana's linter, fit the grid, and draw the alerts' thresholds."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from alerts.catalogue import BY_NAME, CATALOGUE
from alerts.config import AlertRulesConfig, AlertSwitch
from alerts.dashboards.boards import boards, dashboards
from alerts.dashboards.spec import Context
from alerts.entry import DASHBOARD_NAMES
from alerts.objectives import Objective
from alerts.prometheus_rules import DASHBOARD_VARIABLES, dashboard_uid, recording_rules
from streaming.core.thresholds import Thresholds
from tests.alerts.promql import selectors, unknown_names

CONFIG = AlertRulesConfig()
WITH_OBJECTIVE = AlertRulesConfig(objectives={"orders": Objective(queues="orders", within_s=30)})
RECORDED = frozenset(rule["record"] for rules in recording_rules(WITH_OBJECTIVE).values() for rule in rules)
FILES = dashboards(CONFIG)
BOARDS = {name: json.loads(text) for name, text in FILES.items()}
SPECS = boards(Context(CONFIG, Thresholds()))

# From the linter's list of Grafana units.
UNITS = {"none", "short", "s", "percentunit", "mps", "ops", "bytes"}

board = pytest.mark.parametrize("name", sorted(BOARDS))


def panels(name: str) -> Iterator[dict[str, Any]]:
    """Yield every panel of a board except row headings."""
    return (panel for panel in BOARDS[name]["panels"] if panel["type"] != "row")


def targets(name: str) -> Iterator[tuple[str, str]]:
    """Yield title and expression of every query."""
    for panel in panels(name):
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def variables(name: str) -> dict[str, dict[str, Any]]:
    """Return the variables of a board by name."""
    return {variable["name"]: variable for variable in BOARDS[name]["templating"]["list"]}


def test_there_is_one_file_per_board() -> None:
    """Names and uids never change, so that old links keep working."""
    assert set(FILES) == {f"queuewatch-{name}.json" for name in DASHBOARD_NAMES}
    for name, content in BOARDS.items():
        assert f"{content['uid']}.json" == name


@board
def test_it_is_not_editable(name: str) -> None:
    """Dashboards are generated, so an edit in Grafana would be lost."""
    assert BOARDS[name]["editable"] is False


@board
def test_datasource_job_and_instance_are_variables(name: str) -> None:
    """As the linter requires, they have names and labels, allow several values, and refresh with the time range."""
    found = variables(name)
    assert (found["datasource"]["type"], found["datasource"]["query"]) == ("datasource", "prometheus")
    assert found["datasource"]["label"] == "Data source"
    assert [v["name"] for v in BOARDS[name]["templating"]["list"]][:3] == ["datasource", "job", "instance"]
    for own in ("job", "instance"):
        variable = found[own]
        assert variable["type"] == "query"
        assert variable["label"] == own.capitalize()
        assert variable["multi"] is True
        assert variable["includeAll"] is True
        assert variable["allValue"] == ".+"
    for variable in found.values():
        if variable["type"] == "query":
            assert variable["refresh"] == 2
            assert variable["datasource"]["uid"] == "${datasource}"


@board
def test_variable_queries_use_existing_series(name: str) -> None:
    """A variable without values leaves the whole board empty."""
    for variable in variables(name).values():
        if variable["type"] != "query":
            continue
        asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
        assert asked
        assert unknown_names(f"max by ({asked[2]}) ({asked[1]})") == []


@board
def test_every_panel_is_described(name: str) -> None:
    """A panel has a title, a description, a unit, a data source and at least one query."""
    titles = [panel["title"] for panel in panels(name)]
    assert len(titles) == len(set(titles))
    for panel in panels(name):
        assert panel["title"].strip()
        assert panel["description"].strip().endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["targets"]
        assert [t["refId"] for t in panel["targets"]] == [chr(65 + i) for i in range(len(panel["targets"]))]


@board
def test_series_and_labels_of_queries_exist(name: str) -> None:
    """Series, matchers and groupings of every query are in the metrics catalogue."""
    for title, expr in targets(name):
        assert unknown_names(expr, RECORDED) == [], title


@board
def test_every_selector_filters_by_the_chosen_job_and_instance(name: str) -> None:
    """Two installations in one Prometheus must not mix."""
    for title, expr in targets(name):
        for selector in selectors(expr):
            assert selector.matchers.get("job") == ("=~", "$job"), title
            # Recorded series of a queue have no instance label.
            assert selector.matchers.get("instance") == (None if selector.name.startswith("queue:") else ("=~", "$instance")), (
                title
            )


RANGES = {"Deliveries in 5 minutes": "[5m]"}
"""Panels whose line is a number within the time that the rule looks back."""


@board
def test_counters_are_shown_as_rates_over_the_rate_interval(name: str) -> None:
    """A bare counter is meaningless, and a fixed range is wrong at another zoom level."""
    for title, expr in targets(name):
        for selector in selectors(expr):
            if selector.name.endswith("_total"):
                assert selector.function in ("rate", "irate", "increase"), title
            if selector.range is not None:
                assert selector.range == RANGES.get(title, "[$__rate_interval]"), title


@board
def test_the_layout_is_on_the_grid_without_overlap(name: str) -> None:
    """x + w ≤ 24, no two panels share a cell, ids are unique, and rows precede their panels."""
    every = BOARDS[name]["panels"]
    places = [panel["gridPos"] for panel in every]
    assert all(p["x"] >= 0 and p["y"] >= 0 and p["w"] > 0 and p["h"] > 0 and p["x"] + p["w"] <= 24 for p in places)
    for a, b in itertools.combinations(places, 2):
        apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"] or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert apart, (a, b)
    ids = [panel["id"] for panel in every]
    assert len(ids) == len(set(ids))
    assert [p["y"] for p in places] == sorted(p["y"] for p in places)
    assert every[0]["type"] == "row"


@board
def test_boards_link_to_each_other_the_page_and_the_runbook(name: str) -> None:
    """The other boards are one click away, and links keep the variables."""
    links = BOARDS[name]["links"]
    others = next(link for link in links if link["type"] == "dashboards")
    assert others["tags"] == ["queuewatch"] == BOARDS[name]["tags"]
    assert others["includeVars"] is True
    assert {link.get("url") for link in links} >= {f"{CONFIG.page_url}/", CONFIG.runbook_base_url}


def test_links_in_alerts_set_existing_variables() -> None:
    """Grafana silently ignores `?var-queue=…` on a board without that variable."""
    for name, names in DASHBOARD_VARIABLES.items():
        assert set(names) <= set(variables(f"{dashboard_uid(name)}.json"))


def test_the_table_of_queues_links_to_every_board_of_a_queue() -> None:
    """A click on a queue's name opens the board for that queue."""
    table = next(p for p in panels("queuewatch-overview.json") if p["type"] == "table")
    override = next(o for o in table["fieldConfig"]["overrides"] if o["matcher"]["options"] == "Queue")
    urls = [link["url"] for link in override["properties"][0]["value"]]
    for name in ("queue", "groups", "consumers", "dead-letters"):
        assert any(url.startswith(f"/d/queuewatch-{name}?") for url in urls)
    wanted = set(DASHBOARD_VARIABLES["queue"]) - {"job"}
    assert all(wanted <= set(re.findall(r"var-(\w+)=", url)) for url in urls if url.startswith("/d/"))


def _lines() -> Iterator[tuple[str, str, float, bool, dict[str, Any]]]:
    """Yield board, alert, value, below, and the generated panel for every line."""
    for spec in SPECS:
        found = iter(panels(f"{dashboard_uid(spec.name)}.json"))
        for row in spec.rows:
            for panel in row.panels:
                generated = next(found)
                assert generated["title"] == panel.title
                for line in panel.lines:
                    yield spec.name, line.alert, line.value, line.below, generated


LINES = list(_lines())


def test_every_alert_has_a_line_on_the_board_it_links_to() -> None:
    """A user who follows an alert's link sees the threshold that the alert compared with."""
    drawn = {(name, alert) for name, alert, *_ in LINES}
    assert [e.name for e in CATALOGUE if (e.dashboard, e.name) not in drawn] == []


@pytest.mark.parametrize(("name", "alert", "value", "below", "panel"), LINES, ids=lambda v: str(v)[:20])
def test_a_line_is_a_threshold_step_and_links_to_the_runbook(
    name: str, alert: str, value: float, below: bool, panel: dict[str, Any]
) -> None:
    """The step is at the alert's value and the panel links to its heading; the text names it unless the panel has states."""
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    if panel["type"] != "state-timeline":
        assert value in [step["value"] for step in steps], (name, steps)
        assert steps[0]["color"] == ("green" if not below else steps[0]["color"])
        assert (steps[0]["color"] != "green") is below
    if panel["type"] == "timeseries":
        assert panel["fieldConfig"]["defaults"]["custom"]["thresholdsStyle"]["mode"] == "dashed"
    assert (BY_NAME[alert].alert_name in panel["description"]) is (panel["type"] != "state-timeline")
    assert f"{CONFIG.runbook_base_url}#{BY_NAME[alert].anchor}" in [link["url"] for link in panel["links"]]


CONDITIONS = {
    "CollectorSilent": {"queuewatch_events_total", "queuewatch_pipeline_lag_seconds"},
    "CoverageLow": {"queuewatch_telemetry_basis"},
    "MessageTooOld": {"queuewatch_queue_info"},
    "PipelineLagging": {"queuewatch_events_total"},
}
"""Series that only select the queues or times for which an alert compares its own series with the limit."""


@pytest.mark.parametrize("entry", [e for e in CATALOGUE if e.alert.limit is not None], ids=lambda e: e.name)
def test_a_raw_alert_has_its_limit_as_line_on_its_own_series(entry: Any) -> None:
    """The panel queries the alert's series, and its line is at the configured limit."""
    changed = AlertRulesConfig(rules={entry.name: AlertSwitch(limit=0.375)})
    spec = next(b for b in boards(Context(changed, Thresholds())) if b.name == entry.dashboard)
    lines = [(p, line) for row in spec.rows for p in row.panels for line in p.lines if line.alert == entry.name]
    assert lines
    asked = {s.name for s in selectors(entry.alert.expr % dict.fromkeys(("by", "on", "match", "job", "limit"), ""))}
    asked = {"queuewatch_events_total" if name.startswith("job:") else name for name in asked}
    asked -= CONDITIONS.get(entry.name, set())
    for panel, line in lines:
        assert line.value == 0.375
        shown = {s.name for q in panel.queries for s in selectors(q.expr)}
        assert asked <= shown


def test_lines_of_signals_follow_the_thresholds() -> None:
    """Changing a threshold in the configuration moves its line."""
    moved = Context(CONFIG, Thresholds(poison_receives=7, slow_hold_min_s=99.0, coverage_low_ratio=0.42))
    values = {(ln.alert, ln.value) for b in boards(moved) for r in b.rows for p in r.panels for ln in p.lines}
    assert {("PoisonMessage", 7), ("SlowConsumer", 99.0), ("TelemetryPartial", 0.42)} <= values


def _panel(name: str, title: str) -> dict[str, Any]:
    return next(panel for panel in panels(f"queuewatch-{name}.json") if panel["title"] == title)


def test_texts_of_panels_agree_with_the_rules() -> None:
    """The smaller limit pages for dead letters, one group in flight is a collapse, and storms are judged over five minutes."""
    text = _panel("dead-letters", "Until the first dead letter is deleted")["description"]
    assert "below the line or below 25% of the retention, whichever is less" in text
    groups = _panel("groups", "Groups in flight")
    assert "With 1 or fewer (below the line) while many wait" in groups["description"]
    steps = groups["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [(step.get("value"), step["color"]) for step in steps] == [(None, "orange"), (2, "green")]
    assert "[5m]" in _panel("consumers", "Deliveries in 5 minutes")["targets"][0]["expr"]


def test_a_disabled_alert_has_no_line() -> None:
    """The alert appears neither as a threshold step nor in a text."""
    off = dashboards(AlertRulesConfig(rules={"MessageTooOld": AlertSwitch(enabled=False)}))
    assert "QueuewatchMessageTooOld" in FILES["queuewatch-queue.json"]
    assert all("QueuewatchMessageTooOld" not in text for text in off.values())


def test_the_panel_of_waiting_dead_letters_includes_queues_without_retention() -> None:
    """A dead-letter queue of a broker that keeps messages for ever has no time of the next deletion."""
    (expr,) = (expr for title, expr in targets("queuewatch-dead-letters.json") if title == "Waiting in dead-letter queues")
    assert {s.name for s in selectors(expr)} == {"queuewatch_queue_messages", "queuewatch_queue_info"}
    assert 'is_dead_letter_queue="true"' in expr
