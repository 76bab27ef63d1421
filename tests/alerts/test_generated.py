"""The generated files are up to date, accepted by Prometheus, equal in all three forms, and follow the configuration."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from alerts import generate as command
from alerts.catalogue import BY_NAME, CATALOGUE
from alerts.config import AlertRulesConfig, AlertSwitch
from alerts.objectives import BUDGET_LEFT, Objective
from alerts.prometheus_rules import expression, matchers, rule_groups
from alerts.rules import PROMETHEUS_RULE, PROMETHEUS_RULES, generate, render
from alerts.units import duration, number, shown, spoken_duration
from streaming.config.load import load_config
from streaming.judge.memory.evaluation_schedule import FOLDED
from tests.alerts.promql import TARGET_LABELS, selectors, template_labels, template_queries, unknown_names
from tests.services.prometheus import Binaries

OBJECTIVES = {
    "orders": Objective(queues="orders|100%.*", within_s=30),
    "mails": Objective(queues="mails", within_s=3_600, ratio=0.999),
}
RULES = [rule for group in rule_groups(AlertRulesConfig(objectives=OBJECTIVES)) for rule in group["rules"]]
RECORDED = frozenset(rule["record"] for rule in RULES if "record" in rule)
ALERTS = [rule for rule in RULES if "alert" in rule]

CHANGED = AlertRulesConfig(
    job="watch",
    runbook_base_url="https://wiki.example.org/queues/",
    grafana_url="https://grafana.example.org",
    keep_labels=("cluster",),
    tag_labels=("team", "cost_center"),
    labels={"team": "messaging"},
    interval_s=30,
    objectives=OBJECTIVES,
    rules={
        "PoisonMessage": AlertSwitch(severity="critical", exclude_queues=r"dev-.*\.fifo"),
        "NoisyGroup": AlertSwitch(enabled=False),
        "MessageTooOld": AlertSwitch(limit=90.5, for_s=0, keep_firing_s=0, only_queues="orders.*"),
        "ClockSkew": AlertSwitch(severity="info"),
        "JobDown": AlertSwitch(for_s=45),
    },
)


def test_the_committed_files_are_up_to_date() -> None:
    """Otherwise the error names the command to run: `python -m alerts.generate`."""
    assert command.outdated() == []
    assert command.main(["--check"]) == 0


@pytest.mark.slow
def test_outdated_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An edited, a missing and a superfluous file are all named, and regenerating corrects them."""
    monkeypatch.setattr(command, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    assert command.main([]) == 0
    assert command.main(["--check"]) == 0
    folder = tmp_path / "alerts" / "generated"
    (tmp_path / "docs" / "runbook.md").write_text("edited")
    (folder / "alerts.json").unlink()
    (folder / "old.txt").write_text("left behind")
    assert command.main(["--check"]) == 1
    said = capsys.readouterr().err
    assert all(name in said for name in ("runbook.md", "alerts.json", "old.txt", "python -m alerts.generate"))
    assert command.main([]) == 0
    assert command.outdated() == []


def test_the_runbook_is_stored_once() -> None:
    """The runbook is stored only in docs/; `queuewatch rules` renders it again."""
    stored = [path for path in command.files() if path.stem == "runbook"]
    assert stored == [command.ROOT / "docs" / "runbook.md"]
    assert not list((command.ROOT / "alerts").rglob("runbook.[mh]*"))
    assert {"runbook.md", "runbook.html"} <= render().keys()


def test_generating_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    """The files depend on no time, no set order and no machine."""
    first, second = tmp_path / "a", tmp_path / "b"
    written = generate(first)
    generate(second)
    assert written
    for path in written:
        assert path.read_bytes() == (second / path.relative_to(first)).read_bytes()
        assert str(tmp_path) not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("config", [AlertRulesConfig(), CHANGED], ids=["defaults", "changed"])
def test_prometheus_accepts_the_rules(config: AlertRulesConfig, tmp_path: Path, prometheus_binaries: Binaries) -> None:
    """Without --lint-fatal, promtool exits with 0 on duplicates."""
    generate(tmp_path, config)
    check = [prometheus_binaries.promtool, "check", "rules", "--lint=all", "--lint-fatal", str(tmp_path / PROMETHEUS_RULES)]
    done = subprocess.run(check, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{sum(len(g['rules']) for g in rule_groups(config))} rules found" in done.stdout


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.get("alert") or r["record"])
def test_series_and_labels_of_expressions_exist(rule: dict[str, Any]) -> None:
    """Otherwise a renamed metric or label would leave a rule that never fires."""
    assert unknown_names(rule["expr"], RECORDED) == []
    assert list(selectors(rule["expr"]))


@pytest.mark.parametrize("rule", ALERTS, ids=lambda r: r["alert"])
def test_series_and_labels_of_annotations_exist(rule: dict[str, Any]) -> None:
    """A template with a missing label renders an empty string without an error, so it is checked here."""
    texts = [*rule["annotations"].values(), *map(str, rule["labels"].values())]
    entry = next(e for e in CATALOGUE if e.alert_name == rule["alert"])
    available = {*entry.alert.identity, *(("severity",) if entry.alert.judged_severity else ())}
    for text in texts:
        assert template_labels(text) <= available
        for query in template_queries(text):
            assert unknown_names(query, RECORDED) == [], query


def test_the_alert_on_caps_asks_for_a_kind_that_is_counted() -> None:
    """The judge counts what it leaves out by kind, and groups and consumers are left out by design."""
    [asked] = selectors(expression(BY_NAME["FindingsCapped"], AlertRulesConfig()))
    assert asked.matchers == {"what": ("=", "messages")}
    assert "messages" in FOLDED


def test_the_check_of_names_can_fail() -> None:
    """The parser finds wrong names in a series, a matcher and a grouping."""
    assert unknown_names('max by (queue) (queuewatch_signal{signal="x"}) > 0')[0] == "no series queuewatch_signal"
    assert unknown_names('queuewatch_signals{sginal="x"}') == ["queuewatch_signals has no label sginal"]
    assert unknown_names("max by (qeue) (queuewatch_poison_messages)") == ["none of the series has label qeue"]
    assert unknown_names("rate(queuewatch_events_total[5m]) > 1e5") == []


@pytest.mark.slow
def test_plain_rules_and_the_prometheusrule_are_equal() -> None:
    """Plain rules and the PrometheusRule are made from one list."""
    for config in (AlertRulesConfig(), CHANGED):
        files = render(config)
        plain = yaml.safe_load(files[PROMETHEUS_RULES])["groups"]
        resource = yaml.safe_load(files[PROMETHEUS_RULE])
        assert plain == resource["spec"]["groups"] == rule_groups(config)
        assert (resource["kind"], resource["apiVersion"]) == ("PrometheusRule", "monitoring.coreos.com/v1")
        assert resource["metadata"]["namespace"] == config.kubernetes.namespace


def _mixin(folder: Path, override: str = "{}") -> Any:
    jsonnet = pytest.importorskip("_jsonnet", reason="the package jsonnet is not installed")
    source = (
        f"local mixin = (import 'mixin.libsonnet') + {override}; "
        "{ rules: mixin.prometheusAlerts.groups + mixin.prometheusRules.groups, "
        "dashboards: std.objectFields(mixin.grafanaDashboards), "
        "uids: [mixin.grafanaDashboards[f].uid for f in std.objectFields(mixin.grafanaDashboards)] }"
    )
    return json.loads(jsonnet.evaluate_snippet(str(folder / "test.jsonnet"), source))


@pytest.mark.slow
@pytest.mark.parametrize("config", [AlertRulesConfig(), CHANGED], ids=["defaults", "changed"])
def test_the_mixin_gives_the_same_rules(config: AlertRulesConfig, tmp_path: Path) -> None:
    """The jsonnet library and the Python code produce the same rules."""
    generate(tmp_path, config)
    found = _mixin(tmp_path)
    assert found["rules"] == rule_groups(config)
    assert sorted(found["uids"]) == [name.removesuffix(".json") for name in found["dashboards"]]


@pytest.mark.slow
def test_the_mixin_has_the_same_settings(tmp_path: Path) -> None:
    """Settings in jsonnet's _config produce the same rules as those in the configuration file."""
    generate(tmp_path, AlertRulesConfig(objectives=OBJECTIVES))
    override = """{ _config+:: {
        job: 'watch',
        runbookBaseUrl: 'https://wiki.example.org/queues',
        grafanaUrl: 'https://grafana.example.org',
        keepLabels: ['cluster'],
        tagLabels: ['team', 'cost_center'],
        labels: { team: 'messaging' },
        interval: '30s',
        objectivesInterval: '150s',
        longInterval: '50m',
        alerts+: {
            PoisonMessage+: { severity: 'critical', match: ',queue!~"dev-.*\\\\\\\\.fifo"' },
            NoisyGroup+: { enabled: false },
            MessageTooOld+: { limit: '90.5', 'for': '0s', keepFiringFor: '0s', match: ',queue=~"orders.*"' },
            ClockSkew+: { severity: 'info' },
            JobDown+: { 'for': '45s' },
        },
    } }"""
    assert _mixin(tmp_path, override)["rules"] == rule_groups(CHANGED)


def _rule(config: AlertRulesConfig, name: str) -> dict[str, Any]:
    return next(r for g in rule_groups(config) for r in g["rules"] if r.get("alert") == f"Queuewatch{name}")


def test_settings_change_the_rules() -> None:
    """Tested are on and off, severity, limit, durations, queues, labels and links."""
    names = {r.get("alert") for g in rule_groups(CHANGED) for r in g["rules"]}
    assert "QueuewatchNoisyGroup" not in names
    assert "QueuewatchGroupStuck" in names
    poison = _rule(CHANGED, "PoisonMessage")
    assert poison["labels"] == {"severity": "critical", "component": "queue", "team": "messaging"}
    chosen = r'signal="PoisonMessage",severity!="info",queue!~"dev-.*\\.fifo"'
    expected = f"max by (job, system, scope_id, queue, cluster) (queuewatch_signals{{{chosen}}}) > 0"
    joined = " * on (job, system, scope_id, queue, cluster) group_left (tag_team, tag_cost_center)"
    assert poison["expr"].startswith(f"({expected}){joined}")
    assert _rule(CHANGED.model_copy(update={"tag_labels": ()}), "PoisonMessage")["expr"] == expected
    assert poison["annotations"]["runbook_url"] == "https://wiki.example.org/queues#alert-name-queuewatchpoisonmessage"
    assert poison["annotations"]["dashboard_url"].startswith("https://grafana.example.org/d/queuewatch-queue?var-job=")
    old = _rule(CHANGED.model_copy(update={"tag_labels": ()}), "MessageTooOld")
    assert old["for"] == "0s"
    assert "keep_firing_for" not in old
    assert '{scope="visible",queue=~"orders.*"}) > 90.5 unless' in old["expr"]
    assert _rule(CHANGED, "ClockSkew")["labels"]["severity"] == "info"
    assert _rule(CHANGED, "JobDown")["expr"] == 'up{job="watch"} == 0'
    assert _rule(CHANGED, "JobDown")["for"] == "45s"


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda e: e.name)
def test_each_alert_can_be_switched_off_alone(entry: Any) -> None:
    """The other alerts do not change."""
    off = AlertRulesConfig(rules={entry.name: AlertSwitch(enabled=False)})
    left = [r["alert"] for g in rule_groups(off) for r in g["rules"] if "alert" in r]
    assert left == [r["alert"] for r in ALERTS if r["alert"] != entry.alert_name]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"rules": {"PoisonMesage": {}}}, "did you mean PoisonMessage?"),
        ({"rules": {"PoisonMessage": {"limit": 5}}}, "judge.thresholds: poison_receives"),
        ({"rules": {"MessageTooOld": {"limit": float("nan")}}}, "finite number"),  # JSON, and so Grafana, has neither
        ({"rules": {"MessageTooOld": {"limit": float("inf")}}}, "finite number"),
        ({"rules": {"JobDown": {"exclude_queues": "x"}}}, "JobDown is not about a queue"),
        ({"rules": {"PoisonMessage": {"exclude_queues": "("}}}, "is not a regular expression"),
        ({"rules": {"PoisonMessage": {"exclude_queues": "a{99999999999}"}}}, "in Prometheus, whose syntax"),
        ({"rules": {"PoisonMessage": {"exclude_queues": "(" * 5_000}}}, "is not a regular expression"),
        ({"rules": {"PoisonMessage": {"only_queues": "(?!test).*"}}}, "in Prometheus, whose syntax"),
        ({"rules": {"PoisonMessage": {"only_queues": "shop-[[:digit:]]+"}}}, "in another way than queuewatch"),
        ({"rules": {"PoisonMessage": {"only_queues": "shop-[0-9]{,2}"}}}, "in another way than queuewatch"),
        ({"objectives": {"fast": {"queues": r"(a|b)-\1", "within_s": 30}}}, "has no"),
        ({"rules": {"PoisonMessage": {"enable": False}}}, "Extra inputs"),
        ({"labels": {"severity": "critical"}}, "severity is set by the rules"),
        ({"labels": {"system": "production"}}, "system tells alerts apart"),
        ({"labels": {"arrivals": "x"}}, "arrivals tells alerts apart"),
        ({"keep_labels": ["cluster"], "labels": {"cluster": "eu"}}, "cluster tells alerts apart"),
        ({"labels": {"a-b": "x"}}, "is not a label name"),
        ({"keep_labels": ["0x"]}, "is not a label name"),
        ({"grafana_url": "grafana:3000"}, "begin it with http://"),
        ({"grafana_url": "http://:3000"}, "write the host"),
        ({"page_url": "http://["}, "write the host"),
        ({"job": 'a"b'}, "should match pattern"),
        ({"interval_s": 0}, "greater than 0"),
    ],
)
def test_a_wrong_section_is_refused_with_the_reason(section: dict[str, Any], said: str) -> None:
    """The error names the key and the fix."""
    with pytest.raises(ValidationError, match=said.replace("(", r"\(").replace("?", r"\?")):
        AlertRulesConfig.model_validate(section)


REFUSED = [
    *("(?!test).*", "orders(?=-eu)", "(?<!x)a", "(?<=x)a", r"(a)\1", "(?P<a>b)(?P=a)", "(?>ab)", "a*+", "a{2}+b", r"a\Z"),
    *(r"\u0041", "(?x)a b", "(?#c)a", "(a)?(?(1)b|c)"),
    *(r"\é", r"[\é]", r"[\b]", r"[\1]", r"[\u0041]", "(?P<é>a)", "a{1001}", "a{2,1001}", "a{1001,}"),
    *("(a{100}){100}", "(?:a{31}b){33}", "((b){21}){50}", "(x|(a{40}|c){5}){6}", "(a{2,}){501}", r"(a{30}\){40}){33}"),
    *("{0}", "((a{100}){11}){0}", "((a{600}){0,}){2}", "((a{2}){0}b{501}){2}"),
]
TAKEN = [
    *("orders.*", "[(?=]+", r"\(\?=a", r"a\\1", "(?i)orders", "(?P<x>a)|b", "(?:a|b){2,3}?", "[]+]+", r"\d+\.\w*\b", r"a\+\+b"),
    *("é[é]", r"[\\b]", "a{1000}{", "a{,x}", "[:b:]"),
    *("(a{100}){10}", "((a{10}){10}){10}", "(a{500}b{500}){2}", "(a{1000})*", "(a{1000}|b){0}", "(a{30}[)(]{2}){33}"),
    *("((a{1000}){0}){2}", "((a{600}){0}b){2}", "(a{2}){0,0}b{1000}"),
    *("a{500}(b){3}", "orders-[0-9]{3}(-[a-z]{2}){0,400}", "(a{500}(?:b){3}){2}"),
]


def test_a_pattern_is_refused_if_prometheus_refuses_it(prometheus_binaries: Binaries, tmp_path: Path) -> None:
    """Python's regular expressions have more than Prometheus', which would refuse the whole file of rules."""
    taken = []
    for count, pattern in enumerate([*REFUSED, *TAKEN]):
        try:
            config = AlertRulesConfig(rules={"PoisonMessage": AlertSwitch(only_queues=pattern)})
        except ValidationError:
            # As it would be generated without the check.
            switch = AlertSwitch.model_construct(only_queues=pattern, exclude_queues="")
            expr = f'queuewatch_signals{{signal="PoisonMessage"{matchers(switch)}}}'
        else:
            taken.append(pattern)
            expr = expression(BY_NAME["PoisonMessage"], config)
        file = tmp_path / f"{count}.yaml"
        file.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": [{"alert": "A", "expr": expr}]}]}))
        done = subprocess.run([prometheus_binaries.promtool, "check", "rules", str(file)], capture_output=True, timeout=60)
        assert (done.returncode == 0) == (pattern in taken), pattern
    assert taken == TAKEN


def test_the_section_is_read_from_the_configuration_file(tmp_path: Path) -> None:
    """The general loader reads `alerts:` from the one configuration file."""
    file = tmp_path / "queuewatch.yaml"
    file.write_text("alerts:\n  job: watch\n  rules:\n    NoisyGroup: {enabled: false}\n")
    section = load_config(file, env={}).section("alerts")
    assert isinstance(section, AlertRulesConfig)
    assert section.job == "watch"
    assert not section.rules["NoisyGroup"].enabled


def test_recorded_ratios_keep_the_labels_that_distinguish_alerts() -> None:
    """A ratio without `cluster` would mix clusters."""
    recorded = [r for g in rule_groups(CHANGED) for r in g["rules"] if "record" in r]
    assert len(recorded) == 2 + len(OBJECTIVES) * (3 * 8 + 1)
    assert all("sum by (job, cluster" in r["expr"] or r["record"].startswith(BUDGET_LEFT) for r in recorded)
    assert {"job"} <= TARGET_LABELS


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "0s"), (15, "15s"), (90, "90s"), (300, "5m"), (3600, "1h"), (5400, "90m"), (86_400, "1d"), (0.5, "500ms")],
)
def test_durations_are_written_as_prometheus_reads_them(value: float, written: str) -> None:
    """The unit is the largest one that divides the value."""
    assert duration(value) == written


def test_numbers_are_written_for_people() -> None:
    """The unit follows from the end of the threshold's name."""
    assert shown("stalled_s", 300.0) == "5 minutes"
    assert shown("coverage_low_ratio", 0.9) == "90%"
    assert shown("look_ahead", 120_000) == "120,000"
    assert shown("held_visibility_factor", 2.5) == "2.5"
    assert spoken_duration(86_400) == "24 hours"
    assert spoken_duration(345_600) == "4 days"
    assert spoken_duration(1) == "1 second"
    assert (number(3600.0), number(0.01)) == ("3600", "0.01")


def test_the_page_lists_everything_that_is_written() -> None:
    """A file that no row explains would be a riddle."""
    rows = re.findall(r"(?m)^\| \[?`([^`]+)`", (command.ROOT / "docs" / "alerts.md").read_text().split("## Kinds of alerts")[0])
    written = {f"{name.partition('/')[0]}/" if name.startswith("dashboards/") else name for name in render()}
    assert set(rows) == written
