"""The ledger of pushed alerts: each begins once and ends properly, none flaps, and their number is limited."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from alerts.config import AlertRulesConfig, AlertSwitch
from sinks.alertmanager.alert import PendingAlert, annotations_of, labels_of, page_link, to_json
from sinks.alertmanager.config import AlertmanagerConfig
from sinks.alertmanager.ledger import ENDED_KEPT_MS, AlertLedger, LedgerEntry
from sinks.alertmanager.ledger_file import from_bytes, to_bytes
from streaming.judge.findings.signals import Finding, Severity
from tests.sinks.fakes import HOSTILE_NAMES, NOW_MS, SCOPE, finding, shop_snapshot

RULES = AlertRulesConfig()


def config(**changes: Any) -> AlertmanagerConfig:
    return AlertmanagerConfig.model_validate({"destinations": [{"url": "http://127.0.0.1:9093"}], **changes})


def poison(number: int = 1, severity: Severity = "warning", since_ms: int = NOW_MS, queue: str = "orders") -> Finding:
    return finding("PoisonMessage", queue, severity, since_ms, f"m{number} again.", message_id=f"m{number}", receive_count=number)


def arrival(number: int) -> Finding:
    return finding("DeadLetterArrived", "dlq", "warning", NOW_MS + number, f"m{number} arrived.", message_id=f"m{number}")


def firing(entries: Sequence[LedgerEntry]) -> list[str]:
    return [
        f"{entry.alert.finding.key.message_id or entry.alert.finding.key.part} {entry.alert.severity}"
        for entry in entries
        if entry.ended_ms is None
    ]


def ended(entries: Sequence[LedgerEntry]) -> list[str]:
    return [f"{entry.alert.finding.key.message_id} {entry.alert.severity}" for entry in entries if entry.ended_ms is not None]


def test_a_lasting_signal_is_sent_once() -> None:
    """The evidence changes with every batch; the alert is sent once."""
    ledger = AlertLedger(config(), RULES)
    for second in range(50):
        changed = replace(poison(), evidence={"summary": f"received {second} times", "receive_count": second})
        ledger.update([changed], NOW_MS + second * 1000)
    assert ledger.version == 1
    assert firing(ledger.since(0)) == ["m1 warning"]
    assert ledger.since(0)[0].alert.finding.evidence["receive_count"] == 49, "a resend carries the latest evidence"
    assert ledger.since(1) == []


def test_an_alert_ends_only_after_its_signal_is_gone_for_keep_firing_s() -> None:
    """A signal that is gone for less than `keep_firing_s` does not resolve the alert; the boundary is tested."""
    ledger = AlertLedger(config(keep_firing_s=15), RULES)
    ledger.update([poison()], NOW_MS)
    ledger.update([], NOW_MS + 14_999)
    assert firing(ledger.since(0)) == ["m1 warning"]
    ledger.update([poison()], NOW_MS + 20_000)
    ledger.update([], NOW_MS + 34_999)
    assert ledger.version == 1, "it came back in time: nothing to tell"
    ledger.update([], NOW_MS + 35_000)
    assert ended(ledger.since(1)) == ["m1 warning"]
    assert ledger.since(1)[0].ended_ms == NOW_MS + 35_000


def test_an_ended_alert_is_sent_for_a_while_and_may_begin_again() -> None:
    """A resolved alert is resent for a while, in case Alertmanager was down, and then forgotten; it may fire again."""
    ledger = AlertLedger(config(keep_firing_s=0), RULES)
    ledger.update([poison()], NOW_MS)
    ledger.update([], NOW_MS + 1)
    ledger.update([poison()], NOW_MS + 2)
    assert (firing(ledger.since(-1)), ended(ledger.since(-1))) == (["m1 warning"], [])
    ledger.update([], NOW_MS + 3)
    ledger.update([], NOW_MS + 3 + ENDED_KEPT_MS)
    assert ended(ledger.since(-1)) == ["m1 warning"]
    ledger.update([], NOW_MS + 4 + ENDED_KEPT_MS)
    assert ledger.since(-1) == []


def test_alerts_end_also_when_the_clock_is_set_back() -> None:
    """The clock was a day ahead when one alert ended and the other was last seen: neither lasts until tomorrow."""
    ledger = AlertLedger(config(keep_firing_s=15), RULES)
    day_ms = 86_400_000
    ledger.update([poison(1), poison(2)], NOW_MS)
    ledger.update([poison(2)], NOW_MS + day_ms)
    assert ended(ledger.since(-1)) == ["m1 warning"]
    ledger.update([], NOW_MS + 30_000)
    assert [entry.ended_ms for entry in ledger.since(2)] == [NOW_MS + 30_000] * 2
    ledger.update([], NOW_MS + 30_001 + ENDED_KEPT_MS)
    assert ledger.since(-1) == []


def test_a_higher_severity_is_a_new_alert_and_severity_never_goes_down() -> None:
    """Severity is a label, so each change would notify again: it only goes up."""
    ledger = AlertLedger(config(), RULES)
    ledger.update([poison(severity="warning")], NOW_MS)
    ledger.update([poison(severity="critical")], NOW_MS + 1_000)
    assert (firing(ledger.since(1)), ended(ledger.since(1))) == (["m1 critical"], ["m1 warning"])
    before = ledger.version
    ledger.update([poison(severity="warning")], NOW_MS + 2_000)
    assert ledger.version == before
    assert firing(ledger.since(-1)) == ["m1 critical"]


def test_an_alert_that_becomes_critical_again_replaces_the_one_that_ended() -> None:
    """In the same moment as the ended one is forgotten, it was forgotten too, and paged only with the next batch."""
    ledger = AlertLedger(config(keep_firing_s=0), RULES)
    ledger.update([poison(severity="warning")], NOW_MS)
    ledger.update([poison(severity="critical")], NOW_MS + 1_000)
    ledger.update([], NOW_MS + 2_000)
    ledger.update([poison(severity="warning")], NOW_MS + 3_000)
    ledger.update([poison(severity="critical")], NOW_MS + 2_001 + ENDED_KEPT_MS)
    assert firing(ledger.since(-1)) == ["m1 critical"]
    assert ended(ledger.since(-1)) == ["m1 warning"]


def test_each_new_dead_letter_is_a_new_alert_even_when_there_are_too_many() -> None:
    """The newest dead letter gets its own alert; the oldest, which was already sent, makes room."""
    ledger = AlertLedger(config(max_per_queue=3, keep_firing_s=0), RULES)
    seen: list[str] = []
    for count in range(1, 9):
        before = ledger.version
        ledger.update([arrival(n) for n in range(1, count + 1)], NOW_MS + count * 1000)
        new = [name for name in firing(ledger.since(before)) if name != "others warning"]
        seen += new
    assert seen == [f"m{n} warning" for n in range(1, 9)]
    assert sorted(firing(ledger.since(-1))) == ["m6 warning", "m7 warning", "m8 warning", "others warning"]


def test_alerts_beyond_the_queue_limit_are_folded_into_one_that_does_not_change_with_their_number() -> None:
    """An alert that was already sent keeps its place when the ledger is full."""
    ledger = AlertLedger(config(max_per_queue=2), RULES)
    ledger.update([poison(n, since_ms=NOW_MS + n) for n in (5, 6, 7)], NOW_MS)
    assert sorted(firing(ledger.since(0))) == ["m5 warning", "m6 warning", "others warning"]
    before = ledger.version
    ledger.update([poison(n, since_ms=NOW_MS + n) for n in (1, 2, 3, 5, 6, 7)], NOW_MS + 1_000)
    assert ledger.version == before
    (others,) = [entry for entry in ledger.since(-1) if entry.alert.folded]
    assert others.alert.folded == 4
    assert labels_of(others.alert, RULES)["part"] == "others"
    assert annotations_of(others.alert, RULES)["description"].startswith("4 more of the same; the latest: m7")


def test_beyond_the_overall_limit_the_mildest_are_left_out_and_counted() -> None:
    """The limit protects memory and Alertmanager; `unsent` counts the alerts that were left out."""
    ledger = AlertLedger(config(max_alerts=3), RULES)
    findings = [poison(n, "critical" if n == 9 else "warning", NOW_MS + n, queue=f"q{n}") for n in range(10)]
    ledger.update(findings, NOW_MS)
    assert firing(ledger.since(0))[0] == "m9 critical"
    assert (ledger.count(), ledger.unsent) == (3, 7)


@pytest.mark.parametrize(
    ("poisoned", "found", "why"),
    [
        (replace(poison(), alerting=False), False, "the broker's own strategies are shown, never paged"),
        (poison(severity="info"), False, "below min_severity"),
        (poison(severity="critical"), True, "above it"),
        (poison(queue="test-orders"), False, "an excluded queue"),
        (finding("NoisyGroup", "orders", "warning", NOW_MS, "noisy", group="g"), False, "switched off"),
        (finding("SlowConsumer", "orders", "info", NOW_MS, "slow", consumer="c"), True, "severity set by the rules"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_the_switches_of_the_alert_rules_apply_to_pushed_alerts(poisoned: Finding, found: bool, why: str) -> None:
    """Disabling a rule, excluding queues and overriding a severity affect pushed alerts too."""
    rules = AlertRulesConfig(
        rules={
            "PoisonMessage": AlertSwitch(exclude_queues="test-.*"),
            "NoisyGroup": AlertSwitch(enabled=False),
            "SlowConsumer": AlertSwitch(severity="warning"),
        }
    )
    ledger = AlertLedger(config(), rules)
    ledger.update([poisoned], NOW_MS)
    assert bool(ledger.count()) is found, why


def test_an_alert_names_message_group_head_consumer_and_what_to_do() -> None:
    """Labels hold the identity, annotations the numbers."""
    ledger = AlertLedger(config(), AlertRulesConfig(runbook_base_url="https://run.book", page_url="https://watch"))
    rules = ledger._rules
    ledger.update(shop_snapshot().firing, NOW_MS)
    alerts = {entry.alert.finding.key.signal: entry.alert for entry in ledger.since(0)}
    stuck = to_json(alerts["GroupStuck"], rules, ends_ms=NOW_MS + 240_000)
    assert stuck["labels"] == {
        "alertname": "QueuewatchGroupStuck",
        "component": "queue",
        "severity": "critical",
        "job": "queuewatch",
        "rulesgroup": "queuewatch",
        "system": "aws_sqs",
        "scope_id": SCOPE,
        "queue": "payments.fifo",
        "group": "customer-4711",
    }
    notes = stuck["annotations"]
    assert notes["head_message_id"] == "18849561234907385856"
    assert notes["head_receive_count"] == "11"
    assert notes["description"].startswith("Group customer-4711 of payments.fifo has not moved")
    assert notes["what_to_do"]
    assert notes["runbook_url"] == "https://run.book#alert-name-queuewatchgroupstuck"
    assert (stuck["startsAt"], stuck["endsAt"]) == ("2025-11-21T11:53:08.000Z", "2025-11-21T12:04:00.000Z")
    poisoned = annotations_of(alerts["PoisonMessage"], rules)
    assert (poisoned["receive_count"], poisoned["final_attempt"]) == ("3", "false")
    assert labels_of(alerts["SlowConsumer"], rules)["consumer"] == "ID:app-3-4711:1:1"
    assert "held by video-encoder-7" in annotations_of(alerts["MessageHeldTooLong"], rules)["description"]
    assert "message=5a8e2b10" in page_link(alerts["MessageHeldTooLong"].finding.key, rules)


def test_an_alert_never_begins_after_its_end() -> None:
    """When a sender's clock is an hour ahead, `startsAt` still precedes `endsAt`; Alertmanager would refuse it otherwise."""
    ledger = AlertLedger(config(keep_firing_s=0), RULES)
    ledger.update([poison(since_ms=NOW_MS + 3_600_000)], NOW_MS)
    ledger.update([], NOW_MS + 1)
    (entry,) = ledger.since(1)
    assert entry.ended_ms is not None
    alert = to_json(entry.alert, RULES, ends_ms=entry.ended_ms)
    assert alert["startsAt"] < alert["endsAt"]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_bounded_text(name: str) -> None:
    """Labels are valid UTF-8 of limited length, links are valid URLs, and annotation names are valid names."""
    hostile = finding(
        "PoisonMessage", name, "warning", NOW_MS, name * 20, scope=name, message_id=name, **{name: name, "ok": name}
    )
    ledger = AlertLedger(config(), RULES)
    ledger.update([hostile], NOW_MS)
    alert = to_json(ledger.since(0)[0].alert, RULES, ends_ms=NOW_MS + 1)
    for value in (*alert["labels"].values(), *alert["annotations"].values(), alert["generatorURL"]):
        assert len(value.encode()) <= 4_096
    assert alert["generatorURL"].isascii()
    assert all(key.isidentifier() for key in alert["annotations"])


def test_a_saved_ledger_is_read_back_as_it_was() -> None:
    """Every part of an alert's identity, its evidence, and what a newer release added is ignored."""
    one = replace(poison(3), folded="QueueFailing", announced_as="critical")
    entry = LedgerEntry(PendingAlert(one, "critical", folded=2), 7, NOW_MS, NOW_MS + 5)
    body = json.loads(to_bytes(9, [entry], {"http://a": 8}))
    body["lines"][0]["finding"]["key"]["added_later"] = 1
    saved = from_bytes(json.dumps(body).encode())
    assert (saved.version, saved.entries, saved.sent) == (9, (entry,), {"http://a": 8})
