"""The catalogue is complete: every signal, every threshold, five checks per system, and texts for people."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import pytest

from alerts.catalogue import BY_NAME, CATALOGUE, UNUSED_THRESHOLDS, did_you_mean, entry, rule_text
from alerts.entry import QUEUE_SYSTEMS, SYSTEM_TITLES, Check, Entry, RawAlertName
from alerts.judge_constants import JUDGE_CONSTANTS
from alerts.remedy import labelled
from streaming.core.thresholds import Thresholds
from streaming.judge.findings.signals import SIGNAL_NAMES
from streaming.judge.metrics import METRIC_BY_NAME
from tests.alerts.findings import every_finding

THRESHOLDS = {field.name for field in fields(Thresholds)}
SUBJECTS = ("message_id", "group", "consumer")
each = pytest.mark.parametrize("entry_", CATALOGUE, ids=lambda e: e.name)


def test_every_signal_and_every_raw_alert_has_one_entry() -> None:
    """No signal lacks an entry, and none has two."""
    names = [e.name for e in CATALOGUE]
    assert sorted(names) == sorted({*SIGNAL_NAMES, *get_args(RawAlertName)})


def test_every_threshold_is_used_or_explained() -> None:
    """A threshold that is explained nowhere cannot be set sensibly."""
    used = {name for e in CATALOGUE for name in e.thresholds}
    assert used | UNUSED_THRESHOLDS.keys() == THRESHOLDS
    assert not used & UNUSED_THRESHOLDS.keys()


@each
def test_the_rule_text_names_every_threshold_it_uses(entry_: Entry) -> None:
    """The thresholds that the entry declares are those that its numbered rule shows."""
    text = " ".join(entry_.rule)
    assert [name for name in entry_.thresholds if f"{{{name}}}" not in text] == []
    rendered = " ".join(rule_text(entry_))
    assert "{" not in rendered
    if entry_.alert.limit is not None:
        assert "{limit}" in text
    if entry_.alert.for_s:
        assert "{wait}" in text


def test_every_constant_of_the_judge_is_named_by_a_rule() -> None:
    """Rule texts take their figures from the judge, so a constant that changes there changes the runbook."""
    text = " ".join(step for e in CATALOGUE for step in e.rule)
    assert [name for name in JUDGE_CONSTANTS if f"{{{name}}}" not in text] == []


def test_rule_text_shows_the_given_thresholds() -> None:
    """The runbook shows configured values with their units."""
    rule = rule_text(entry("GroupStuck"), Thresholds(group_stuck_min_s=150.0, group_stuck_visibility_factor=1.5))
    assert "1.5 × the queue's visibility timeout and 150 seconds" in rule[1]
    assert "older than 2 hours" in rule_text(entry("MessageTooOld"), limit=7200.0)[0]


@pytest.mark.slow
def test_severities_are_those_of_the_judge() -> None:
    """The runbook must not promise a page that the judge does not send. A finding that does not alert is info for now."""
    assert {finding.severity for finding in every_finding() if not finding.alerting} == {"info"}
    judged = {(finding.key.signal, finding.severity) for finding in every_finding() if finding.alerting}
    # Where the retention is only assumed, as the rule says.
    assumed = {("DeadLetterExpiring", "warning")}
    # They explain others, as the rules say.
    explaining = {("NoisyGroup", "warning"), ("WindowTooShort", "critical")}
    assert judged == {(name, BY_NAME[name].severity) for name in SIGNAL_NAMES} | assumed | explaining


@pytest.mark.simulation
def test_the_evidence_of_every_finding_about_a_queue_names_its_basis() -> None:
    """How much is known of the queue decides what a finding is worth. Findings about the service have no queue."""
    findings = every_finding()
    strategies = {finding.evidence.get("strategy") for finding in findings}
    assert {"hold", "ack", "prefetch", "zombie"} <= strategies, "bring it about in tests/alerts/findings.py"
    assert {finding.key for finding in findings if finding.key.queue and not finding.evidence.get("basis")} == set()
    assert {finding.key.signal for finding in findings if not finding.key.queue} == {"TelemetryStale", "ClockUntrusted"}


@pytest.mark.simulation
@each
def test_evidence_fields_exist(entry_: Entry) -> None:
    """Fields that readers are asked to check must be in the judge's evidence or be a metric."""
    findings = [finding for finding in every_finding() if finding.key.signal == entry_.name]
    given = {name for f in findings for name in f.evidence} | {
        name for f in findings for name in SUBJECTS if getattr(f.key, name)
    }
    for field in entry_.evidence:
        name = field.name.partition("{")[0]
        if name.startswith("queuewatch_"):
            assert name in METRIC_BY_NAME
        elif entry_.name in SIGNAL_NAMES:
            assert name in given, "bring it about in tests/alerts/findings.py"


@each
def test_five_checks_for_every_system_it_concerns(entry_: Entry) -> None:
    """An on-call engineer gets five checks for each queue system."""
    if entry_.component == "watcher":
        assert len(entry_.watcher_checks) == 5
        assert not entry_.checks
        return
    assert set(entry_.checks) | set(entry_.not_applicable) == set(QUEUE_SYSTEMS)
    assert not set(entry_.checks) & set(entry_.not_applicable)
    assert entry_.checks
    for system, checks in entry_.checks.items():
        assert len(checks) == 5, system
        assert len({check.command for check in checks}) == 5, system


def _words(entry_: Entry) -> list[str]:
    checks: list[Check] = [c for some in entry_.checks.values() for c in some] + list(entry_.watcher_checks)
    return [
        entry_.meaning,
        entry_.alert.summary,
        entry_.alert.why,
        *entry_.rule,
        *labelled(entry_.fix, SYSTEM_TITLES),
        *entry_.ignore,
        *(c.what for c in checks),
        *(c.look_for for c in checks),
    ]


@each
def test_texts_are_complete(entry_: Entry) -> None:
    """No text is blank, and the summary is one sentence without a template."""
    assert all(text.strip() for text in _words(entry_))
    assert entry_.fix
    assert entry_.ignore
    assert entry_.evidence
    summary = entry_.alert.summary
    assert summary.endswith(".")
    assert "{{" not in summary
    assert summary[0].isupper() or summary.startswith("queuewatch")


def test_anchors_and_alert_names_are_unique() -> None:
    """Each alert has its own heading."""
    assert len({e.anchor for e in CATALOGUE}) == len(CATALOGUE)
    assert all(e.alert_name == f"Queuewatch{e.name}" for e in CATALOGUE)


def test_only_these_alerts_page() -> None:
    """Pages are for losing messages, standing still, missing an objective, and monitoring that is down."""
    assert {e.name for e in CATALOGUE if e.pages} == {
        "MessageDropped",
        "DeadLetterExpiring",
        "GroupStuck",
        "LookAheadSaturated",
        "QueueStalled",
        "QueueFailing",
        "ErrorBudgetBurning",
        "JobDown",
        "JobAbsent",
        "NotPublishing",
        "NoRecentBatch",
    }


def test_a_wrong_name_suggests_the_nearest() -> None:
    """The error names the wrong name and suggests a correct one."""
    assert did_you_mean("PoisonMesage") == " (did you mean PoisonMessage?)"
    assert did_you_mean("zzz") == ""
    with pytest.raises(KeyError, match="did you mean GroupStuck"):
        entry("GroupStock")
