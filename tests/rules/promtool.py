"""Rule tests in promtool's format: series in, alerts with their labels and annotations out."""

from __future__ import annotations

import subprocess
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

Kind = Literal["fires", "quiet", "boundary"]


@dataclass(frozen=True)
class Alert:
    """An alert that must be firing: its labels, and its description as users read it."""

    labels: Mapping[str, str]
    description: str


@dataclass(frozen=True)
class Check:
    """Given these series (in promtool's notation), exactly these alerts of the rule fire at `at`."""

    kind: Kind
    why: str
    series: Mapping[str, str]
    at: str
    alerts: Sequence[Alert] = ()


def rule_test_yaml(
    rule_file: Path, alertname: str, summary: str, links: Mapping[str, str], checks: Sequence[Check], step: str = "15s"
) -> str:
    """Return the YAML of `promtool test rules` for one alert. `links` are annotations that each of its alerts has."""
    tests = []
    for check in checks:
        expected: list[dict[str, Any]] = [
            {
                "exp_labels": dict(alert.labels),
                "exp_annotations": {
                    "summary": summary,
                    "description": alert.description,
                    "runbook_url": links["runbook_url"],
                    "dashboard_url": links["dashboard_url"].format_map(_Escaped(alert.labels)),
                },
            }
            for alert in check.alerts
        ]
        tests.append(
            {
                "name": f"{check.kind}: {check.why}",
                "interval": step,
                "input_series": [{"series": series, "values": values} for series, values in check.series.items()],
                "alert_rule_test": [{"eval_time": check.at, "alertname": alertname, "exp_alerts": expected}],
            }
        )
    document = {"rule_files": [str(rule_file)], "evaluation_interval": step, "tests": tests}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1_000_000)


class _Escaped(dict[str, str]):
    """Labels escaped for a URL; a missing label is empty."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__({name: value.replace("/", "%2F").replace(" ", "+") for name, value in labels.items()})

    def __missing__(self, key: str) -> str:
        return ""


def rules_needed(groups: Sequence[Mapping[str, Any]], wanted: Container[str]) -> list[dict[str, Any]]:
    """Return the groups with only the `wanted` rules (names of alerts or recorded series) and the recording rules they read.

    Promtool evaluates every rule of a file at every step: all rules would take it seconds.
    """
    rules = [rule for group in groups for rule in group["rules"]]
    text = str([rule for rule in rules if _name(rule) in wanted])
    needed: set[str] = set()
    while found := [rule for rule in rules if "record" in rule and rule["record"] in text and rule["record"] not in needed]:
        needed.update(rule["record"] for rule in found)
        text = str(found)
    return [
        {**group, "rules": [rule for rule in group["rules"] if _name(rule) in wanted or rule.get("record") in needed]}
        for group in groups
    ]


def _name(rule: Mapping[str, Any]) -> str:
    return str(rule.get("record") or rule["alert"])


def run_promtool(promtool: str, file: Path) -> tuple[int, str]:
    """Return promtool's exit code and its whole output."""
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr
