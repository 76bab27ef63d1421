"""With `alerts.keep_labels`, alerts of one cluster do not show, and do not depend on, what another cluster reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.catalogue import CATALOGUE
from alerts.config import AlertRulesConfig
from alerts.prometheus_rules import rule_groups
from tests.alerts.promql import selectors, template_queries
from tests.rules.objective_cases import OBJECTIVE_CASES, OBJECTIVES
from tests.rules.promtool import Alert, Check, rules_needed, run_promtool
from tests.rules.raw_cases import RAW_CASES
from tests.rules.signal_cases import HEARD, SIGNAL_CASES
from tests.services.prometheus import Binaries

CONFIG = AlertRulesConfig(keep_labels=("cluster",), objectives=OBJECTIVES)
CASES = {**SIGNAL_CASES, **OBJECTIVE_CASES, **RAW_CASES}
PUBLISHED = 'queuewatch_pipeline_last_batch_timestamp_seconds{job="queuewatch",instance="a:9400"}'
ASKING = [entry for entry in CATALOGUE if "| query" in entry.alert.description]
"""Alerts whose description has values of other series."""


def _in(cluster: str, series: str) -> str:
    name, _, labels = series.partition("{")
    return f'{name}{{cluster="{cluster}"{"," if labels else ""}{labels or "}"}'


def _elsewhere(description: str, alert: Alert) -> dict[str, str]:
    """Return the series that the description asks for as another cluster reports them, of a queue with the same name."""
    series = {_in("us", HEARD.format("sqs-us")): "0x600"}
    about = {name: alert.labels[name] for name in ("job", "system", "scope_id", "queue") if name in alert.labels}
    for query in template_queries(description):
        for selector in selectors(query):
            labels = {label: value for label, (_, value) in selector.matchers.items()} | about | {"cluster": "us"}
            written = ",".join(f'{label}="{value}"' for label, value in labels.items())
            lowest = query.startswith("min(") or selector.name.endswith("_exact")
            series[f"{selector.name}{{{written}}}"] = "0x600" if lowest else "987654x600"
    return series


def _test(alertname: str, check: Check, elsewhere: dict[str, str]) -> dict[str, Any]:
    series = {_in("eu", name): values for name, values in check.series.items()} | elsewhere
    alerts = [
        {"exp_labels": {**alert.labels, "cluster": "eu"}, "exp_annotations": {"description": alert.description}}
        for alert in check.alerts
    ]
    return {
        "name": f"{alertname}: {check.why}",
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": check.at, "alertname": alertname, "exp_alerts": alerts}],
    }


def _promtool_says(tests: list[dict[str, Any]], folder: Path, binaries: Binaries) -> str:
    """Return how the alerts of `tests` differ from what is expected; nothing if they do not."""
    groups = rules_needed(rule_groups(CONFIG), {test["alert_rule_test"][0]["alertname"] for test in tests})
    for rule in (rule for group in groups for rule in group["rules"] if "annotations" in rule):
        rule["annotations"] = {"description": rule["annotations"]["description"]}
    rules, file = folder / "rules.yaml", folder / "test.yaml"
    rules.write_text(yaml.safe_dump({"groups": groups}))
    document = {"rule_files": [str(rules)], "evaluation_interval": "15s", "tests": tests}
    file.write_text(yaml.safe_dump(document, allow_unicode=True))
    code, said = run_promtool(binaries.promtool, file)
    return said if code else ""


@pytest.mark.slow
def test_descriptions_have_the_values_of_their_own_cluster(tmp_path: Path, prometheus_binaries: Binaries) -> None:
    """A value that the alert's own cluster does not report is unknown there."""
    tests = []
    for entry in ASKING:
        first = next(check for check in CASES[entry.name] if check.kind == "fires")
        description = _description(entry.alert_name)
        tests.append(_test(entry.alert_name, first, _elsewhere(description, first.alerts[0])))
    assert len(tests) > 20
    assert _promtool_says(tests, tmp_path, prometheus_binaries) == ""


def _description(alertname: str) -> str:
    rules = (rule for group in rule_groups(CONFIG) for rule in group["rules"])
    description: str = next(rule for rule in rules if rule.get("alert") == alertname)["annotations"]["description"]
    return description


def test_another_cluster_that_publishes_does_not_silence_the_alert(tmp_path: Path, prometheus_binaries: Binaries) -> None:
    """Two clusters may have an instance of the same name."""
    first = next(check for check in RAW_CASES["NotPublishing"] if check.kind == "fires")
    test = _test("QueuewatchNotPublishing", first, {_in("us", PUBLISHED): "0+15x600"})
    assert _promtool_says([test], tmp_path, prometheus_binaries) == ""
