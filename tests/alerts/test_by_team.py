"""Alerts carry the tags of their queue, and Alertmanager routes by them; promtool and amtool check this."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.catalogue import BY_NAME, CATALOGUE
from alerts.config import AlertRulesConfig
from alerts.prometheus_rules import alert_rule, rule_groups
from tests.docs.test_client_pages import blocks
from tests.rules.promtool import run_promtool
from tests.services.prometheus import Binaries

CHOICE, ROUTING = (yaml.safe_load(block) for block in blocks("docs/alerts.md", "yaml") if "tag_team" in block)
"""The two examples in docs/alerts.md: queuewatch's configuration, and Alertmanager's."""
BY_TEAM = AlertRulesConfig.model_validate(CHOICE["alerts"])
QUEUE = {"job": "queuewatch", "system": "aws_sqs", "scope_id": "1/eu-west-1", "queue": "orders"}
STALLED = {
    "alertname": "QueuewatchQueueStalled",
    "severity": "critical",
    "component": "queue",
    "rulesgroup": "queuewatch",
} | QUEUE


def _series(name: str, **labels: str) -> str:
    every = {**QUEUE, "instance": "a:9400"} | labels
    written = ", ".join(f'{key}="{value}"' for key, value in every.items())
    return f"{name}{{{written}}}"


FIRING = {_series("queuewatch_signals", signal="QueueStalled", severity="critical"): "1x20"}
CASES: list[tuple[str, dict[str, str], dict[str, str]]] = [
    # why, series beside the signal, labels of the alert
    ("the queue's team", {_series("queuewatch_queue_info", kind="fifo", tag_team="shop"): "1x20"}, {"tag_team": "shop"}),
    ("no such tag", {_series("queuewatch_queue_info", kind="fifo"): "1x20"}, {}),
    ("nothing known of the queue", {}, {}),
    ("another queue's team", {_series("queuewatch_queue_info", queue="mails", tag_team="shop"): "1x20"}, {}),
    (
        "a new instance reports the queue beside the old one",
        {_series("queuewatch_queue_info", instance=f"{host}:9400", kind=host, tag_team="shop"): "1x20" for host in "ab"},
        {"tag_team": "shop"},
    ),
]


@pytest.mark.parametrize(("why", "info", "team"), CASES, ids=[case[0] for case in CASES])
def test_an_alert_has_its_queues_team(
    why: str, info: Mapping[str, str], team: Mapping[str, str], tmp_path: Path, prometheus_binaries: Binaries
) -> None:
    """The alert fires once, with or without a team."""
    del why
    entry = BY_NAME["QueueStalled"]
    rule = alert_rule(entry, BY_TEAM) | {"annotations": {}}
    assert (
        _promtool_says(rule, {**FIRING, **info}, "2m", [{"exp_labels": {**STALLED, **team}}], tmp_path, prometheus_binaries) == ""
    )


def _promtool_says(
    rule: dict[str, Any], series: Mapping[str, str], at: str, alerts: list[Any], folder: Path, binaries: Binaries
) -> str:
    """Return how the alerts that fire at `at` differ from `alerts`; nothing if they do not."""
    rules, file = folder / "rules.yaml", folder / "test.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "one", "interval": "15s", "rules": [rule]}]}))
    test = {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": at, "alertname": rule["alert"], "exp_alerts": alerts}],
    }
    file.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "15s", "tests": [test]}))
    code, said = run_promtool(binaries.promtool, file)
    return said if code else ""


def test_an_alert_that_bridges_a_restart_keeps_its_team(tmp_path: Path, prometheus_binaries: Binaries) -> None:
    """Without the team it would be another alert, and somebody else would be notified of an old dead letter."""
    entry = BY_NAME["DeadLetterArrived"]
    rule = alert_rule(entry, BY_TEAM) | {"annotations": {}}
    labels = {**STALLED, "alertname": entry.alert_name, "severity": "warning", "tag_team": "shop", "arrivals": "1"}
    series = {
        _series("queuewatch_signals", signal="DeadLetterArrived", severity="warning"): "1x8 stale",
        _series("queuewatch_queue_info", kind="fifo", tag_team="shop"): "1x8 stale",
    }
    assert _promtool_says(rule, series, "3m", [{"exp_labels": labels}], tmp_path, prometheus_binaries) == ""


@pytest.mark.parametrize(("name", "severity"), [("ErrorBudgetBurning", "critical"), ("ErrorBudgetBurningSlowly", "warning")])
@pytest.mark.parametrize("keep", [{}, {"cluster": "eu"}], ids=["", "with a label to keep"])
def test_every_objective_of_a_queue_has_its_team(
    name: str, severity: str, keep: dict[str, str], tmp_path: Path, prometheus_binaries: Binaries
) -> None:
    """The info series says nothing about objectives, and one queue may miss several."""
    entry = BY_NAME[name]
    rule = alert_rule(entry, BY_TEAM.model_copy(update={"keep_labels": tuple(keep)})) | {"annotations": {}}
    series = {
        _series(recorded, instance="", objective=objective, **keep): "100x100"
        for recorded in re.findall(r"queue:\w+:\w+", rule["expr"])
        for objective in ("fast", "slow")
    }
    info = {
        _series("queuewatch_queue_info", kind="fifo", tag_team="shop", **keep): "1x100",
        _series("queuewatch_queue_info", kind="fifo", tag_team="mail", **dict.fromkeys(keep, "us"), queue="mails"): "1x100",
    }
    labels = {**STALLED, "alertname": entry.alert_name, "severity": severity, "tag_team": "shop", **keep}
    alerts = [{"exp_labels": {**labels, "objective": objective}} for objective in ("fast", "slow")]
    assert _promtool_says(rule, {**series, **info}, "20m", alerts, tmp_path, prometheus_binaries) == ""


def test_exactly_the_alerts_about_queues_are_joined_with_tags() -> None:
    rules = {rule["alert"]: rule["expr"] for group in rule_groups(BY_TEAM) for rule in group["rules"] if "alert" in rule}
    joined = {name for name, expr in rules.items() if "group_left (tag_team)" in expr}
    assert joined == {entry.alert_name for entry in CATALOGUE if "queue" in entry.alert.identity}
    assert len(joined) > 20
    assert joined < rules.keys()


def test_promtool_accepts_the_joined_rules(tmp_path: Path, prometheus_binaries: Binaries) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": rule_groups(BY_TEAM)}))
    command = [prometheus_binaries.promtool, "check", "rules", "--lint=all", "--lint-fatal", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def extended(tmp_path: Path) -> Path:
    """The sample configuration with the routes and receivers of docs/alerts.md."""
    sample = Path(__file__).parents[2] / "deploy" / "alertmanager" / "alertmanager.yml"
    config: dict[str, Any] = yaml.safe_load(sample.read_text())
    config["route"]["routes"] = ROUTING["route"]["routes"] + config["route"]["routes"]
    config["receivers"] += ROUTING["receivers"]
    config["templates"] = [str(sample.parent / name) for name in config["templates"]]
    file = tmp_path / "alertmanager.yml"
    file.write_text(yaml.safe_dump(config))
    return file


ROUTES = [
    ("the team is paged", {"tag_team": "shop"}, "shop-pager"),
    ("a warning of the team", {"tag_team": "shop", "severity": "warning"}, "shop-chat"),
    ("info is only shown", {"tag_team": "shop", "severity": "info"}, "nobody"),
    ("a team without a route", {"tag_team": "billing"}, "page-everybody"),
    ("a queue without a team", {}, "page-everybody"),
    ("queuewatch's own trouble", {"alertname": "QueuewatchJobDown", "component": "watcher"}, "pagerduty-watcher"),
]


@pytest.mark.parametrize(("why", "labels", "receiver"), ROUTES, ids=[route[0] for route in ROUTES])
def test_amtool_routes_by_team(
    why: str, labels: Mapping[str, str], receiver: str, extended: Path, prometheus_binaries: Binaries
) -> None:
    """The labels are those that promtool found on the alert."""
    words = [f"{name}={value}" for name, value in (STALLED | dict(labels)).items()]
    options = ["config", "routes", "test", f"--config.file={extended}", f"--verify.receivers={receiver}"]
    done = subprocess.run([prometheus_binaries.amtool, *options, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{why}: {done.stdout}{done.stderr}"


def test_alertmanager_accepts_the_extended_configuration(extended: Path, prometheus_binaries: Binaries) -> None:
    done = subprocess.run([prometheus_binaries.amtool, "check-config", str(extended)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
