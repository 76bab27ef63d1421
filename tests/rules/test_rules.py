"""Every alert fires when it should, stays quiet when it should not, and has the boundary that the catalogue states."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from alerts.catalogue import CATALOGUE
from alerts.config import AlertRulesConfig
from alerts.prometheus_rules import rule_groups, silenced_by
from tests.rules.objective_cases import OBJECTIVE_CASES, OBJECTIVES
from tests.rules.promtool import Check, rule_test_yaml, rules_needed, run_promtool
from tests.rules.raw_cases import RAW_CASES
from tests.rules.signal_cases import SIGNAL_CASES
from tests.services.prometheus import Binaries

CASES: dict[str, tuple[Check, ...]] = {**SIGNAL_CASES, **OBJECTIVE_CASES, **RAW_CASES}

QUEUE_URL = "http://localhost:3000/d/queuewatch-{board}?var-job={{job}}&var-system={{system}}&var-scope_id={{scope_id}}&var-queue={{queue}}"
PIPELINE_URL = "http://localhost:3000/d/queuewatch-pipeline?var-job={job}"
BOARDS = {
    "PoisonMessage": "queue",
    "MessageHeldTooLong": "consumers",
    "MessageDropped": "queue",
    "QueuePurged": "queue",
    "DeadLetterArrived": "dead-letters",
    "DeadLetterExpiring": "dead-letters",
    "GroupStuck": "groups",
    "LookAheadSaturated": "groups",
    "ConcurrencyCollapsed": "groups",
    "NoisyGroup": "groups",
    "SlowConsumer": "consumers",
    "BatchRetryStorm": "consumers",
    "QueueStalled": "queue",
    "QueueFailing": "queue",
    "WindowTooShort": "queue",
    "QueueSilent": "queue",
    "RedriveFailed": "dead-letters",
    "RedriveStalled": "dead-letters",
    "QueueMisconfigured": "queue",
    "MessageTooOld": "queue",
    "QueueLagging": "queue",
    "QueueStale": "queue",
    "ErrorBudgetBurning": "queue",
    "ErrorBudgetBurningSlowly": "queue",
}


def rule_file(alertname: str, folder: Path) -> Path:
    """Write one alert with its defaults and the recording rules that it reads."""
    groups = rules_needed(rule_groups(AlertRulesConfig(objectives=OBJECTIVES)), {alertname})
    file = folder / f"{alertname}.rules.yaml"
    file.write_text(yaml.safe_dump({"groups": groups}))
    return file


def test_every_alert_has_a_case_of_each_kind() -> None:
    """Each alert needs three kinds of cases."""
    assert set(CASES) == {entry.name for entry in CATALOGUE}
    for name, checks in CASES.items():
        assert {check.kind for check in checks} == {"fires", "quiet", "boundary"}, name
        boundary = [bool(check.alerts) for check in checks if check.kind == "boundary"]
        assert (True in boundary and False in boundary) or _relabels(checks), f"{name}: a boundary has two sides"


def _relabels(checks: tuple[Check, ...]) -> bool:
    """Return whether an alert changes its labels at the boundary, instead of starting or ending there."""
    labels = {str(check.alerts[0].labels) for check in checks if check.kind == "boundary" and check.alerts}
    return len(labels) > 1


@pytest.mark.parametrize("name", sorted(CASES))
def test_promtool_agrees_with_every_case(name: str, tmp_path: Path, prometheus_binaries: Binaries) -> None:
    """Prometheus' own tool compares labels, annotations and times in full."""
    entry = next(e for e in CATALOGUE if e.name == name)
    links = {
        "runbook_url": f"http://localhost:9400/runbook#alert-name-queuewatch{name.lower()}",
        "dashboard_url": QUEUE_URL.format(board=BOARDS[name]) if name in BOARDS else PIPELINE_URL,
    }
    alertname = f"Queuewatch{name}"
    text = rule_test_yaml(rule_file(alertname, tmp_path), alertname, entry.alert.summary, links, CASES[name])
    file = tmp_path / f"{name}.yaml"
    file.write_text(text)
    code, said = run_promtool(prometheus_binaries.promtool, file)
    assert code == 0, said


def test_promtool_fails_on_a_wrong_expectation(tmp_path: Path, prometheus_binaries: Binaries) -> None:
    """An alert that is expected but does not fire must be an error, or the other tests prove nothing."""
    wrong = Check("fires", "nothing there", {"up": "1"}, "1m", RAW_CASES["JobDown"][0].alerts)
    links = {"runbook_url": "", "dashboard_url": ""}
    file = tmp_path / "wrong.yaml"
    rules = rule_file("QueuewatchJobDown", tmp_path)
    file.write_text(rule_test_yaml(rules, "QueuewatchJobDown", "", links, [wrong]))
    code, _ = run_promtool(prometheus_binaries.promtool, file)
    assert code != 0


def test_an_alert_does_not_fire_wrongly_without_the_metric_it_fires_by() -> None:
    """QueueStale reads the status twice: without that metric it never fires, so there is nothing to warn about."""
    entries = {entry.name: entry for entry in CATALOGUE}
    assert silenced_by(entries["QueueStale"]) == frozenset()
    assert silenced_by(entries["MessageTooOld"]) == {"queuewatch_queue_info"}
