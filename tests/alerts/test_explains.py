"""One incident causes one page: the table of causes and consequences, followed by sample configuration and push."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml

from alerts.config import AlertRulesConfig
from alerts.entry import RawAlertName
from alerts.explains import EXPLAINS, explained_by
from lab.notifications import shipped_inhibitions
from sinks.alertmanager.config import AlertmanagerConfig
from sinks.alertmanager.ledger import AlertLedger
from streaming.judge.findings.signals import SIGNAL_NAMES, Finding, SignalKey, SignalName
from streaming.judge.folding.failing import FOLDED_INTO, HELD_BACK

DOCS = Path(__file__).resolve().parents[2] / "docs"
CONFIG = Path(__file__).resolve().parents[2] / "deploy" / "alertmanager" / "alertmanager.yml"
PAIRS = [(cause, effect) for cause, effects in EXPLAINS.items() for effect in effects]


def test_the_table_has_existing_alerts_and_no_cycles() -> None:
    """Two alerts that explain each other would both be silenced."""
    names = {*SIGNAL_NAMES, *get_args(RawAlertName)}
    assert {name for pair in PAIRS for name in pair} <= names
    assert not {(a, b) for a, b in PAIRS if (b, a) in PAIRS}


def test_dead_letters_are_folded_by_the_judge_alone() -> None:
    """Their alerts are about the dead-letter queue: no rule that compares queues can hold them back."""
    assert not [cause for cause, effect in PAIRS if effect == "DeadLetterArrived"]


@pytest.mark.parametrize(
    ("page", "first", "last"),
    [
        ("alerts", "The judge folds signals", "Folded signals are counted"),
        ("runbook", "The PoisonMessage, ", "signals are held back"),
    ],
)
def test_the_pages_name_every_signal_that_is_folded_into_a_failing_queue(page: str, first: str, last: str) -> None:
    """And every one that is held back until it is known whether the queue fails."""
    text = " ".join((DOCS / f"{page}.md").read_text(encoding="utf-8").replace("`", "").split())
    passage = text[text.index(first) : text.index(last)]
    assert [name for name in (*FOLDED_INTO["QueueFailing"], "DeadLetterArrived") if name not in passage] == []
    held = re.findall(r", new (.*?) signals", f"{passage}signals")
    assert set(re.findall(r"\w+[A-Z]\w+", held[0])) == HELD_BACK


@pytest.mark.parametrize(("cause", "effect"), PAIRS)
def test_alertmanager_inhibits_consequences(cause: str, effect: str) -> None:
    """A rule has that source and that target, for the same queue."""
    rules = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["inhibit_rules"]
    held = [
        rule
        for rule in rules
        if any(f'"Queuewatch{cause}"' in m for m in rule["source_matchers"])
        and any(re.search(rf"\bQueuewatch{effect}\b", m) for m in rule["target_matchers"])
    ]
    assert held
    assert held[0]["equal"] == ["job", "system", "scope_id", "queue"]


@pytest.mark.parametrize(("severity", "is_held"), [("critical", True), ("warning", False)])
def test_a_window_that_blocks_groups_explains_the_age_of_the_queue(severity: str, is_held: bool) -> None:
    """A warning about it says nothing about why messages are old."""
    names = [
        {"alertname": f"Queuewatch{name}", "severity": s}
        for name, s in (("WindowTooShort", severity), ("MessageTooOld", "warning"))
    ]
    assert any(rule.holds_back(*names) for rule in shipped_inhibitions()) is is_held


def finding(signal: SignalName) -> Finding:
    """Build a finding about one queue."""
    return Finding(SignalKey(signal, "aws_sqs", "", "orders"), "critical", 1, {"summary": signal})


CAUSES: list[SignalName] = [name for name in SIGNAL_NAMES if name in EXPLAINS]


@pytest.mark.parametrize("cause", CAUSES)
def test_the_push_sends_only_the_cause(cause: SignalName) -> None:
    """When a cause and all its consequences fire, one alert is sent."""
    effects = [name for name in SIGNAL_NAMES if name in EXPLAINS[cause]]
    ledger = AlertLedger(
        AlertmanagerConfig.model_validate({"destinations": [{"url": "http://127.0.0.1:9093"}]}), AlertRulesConfig()
    )
    ledger.update([finding(cause), *(finding(name) for name in effects)], 1_000)
    assert [entry.alert.finding.key.signal for entry in ledger.since(-1)] == [cause]


def test_a_signal_is_explained_only_by_causes_in_the_table() -> None:
    """A signal does not explain itself, and other signals are not folded."""
    for cause, effects in EXPLAINS.items():
        assert explained_by("PoisonMessage", [cause, "PoisonMessage"]) == (cause if "PoisonMessage" in effects else None)
    assert explained_by("PoisonMessage", ["PoisonMessage"]) is None
