"""Which alerts there are: begun once, ended properly, never flapping, never more than allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from alerts.config import AlertRulesConfig, AlertSwitch
from sinks.alertmanager.alert import annotations_of, labels_of, page_link, to_json
from sinks.alertmanager.book import ENDED_KEPT_MS, AlertBook, Line
from sinks.alertmanager.config import AlertmanagerConfig
from streaming.judge.signals import Finding, Severity
from tests.sinks.fakes import HOSTILE_NAMES, NOW_MS, SCOPE, finding, shop_snapshot

RULES = AlertRulesConfig()


def config(**changes: Any) -> AlertmanagerConfig:
    return AlertmanagerConfig.model_validate({"destinations": [{"url": "http://127.0.0.1:9093"}], **changes})


def poison(number: int = 1, severity: Severity = "warning", since_ms: int = NOW_MS, queue: str = "orders") -> Finding:
    return finding("PoisonMessage", queue, severity, since_ms, f"m{number} again.", message_id=f"m{number}", receive_count=number)


def arrival(number: int) -> Finding:
    return finding("DeadLetterArrived", "dlq", "warning", NOW_MS + number, f"m{number} arrived.", message_id=f"m{number}")


def firing(lines: Sequence[Line]) -> list[str]:
    return [
        f"{line.told.finding.key.message_id or line.told.finding.key.part} {line.told.severity}"
        for line in lines
        if line.ended_ms is None
    ]


def ended(lines: Sequence[Line]) -> list[str]:
    return [f"{line.told.finding.key.message_id} {line.told.severity}" for line in lines if line.ended_ms is not None]


def test_what_lasts_is_told_once() -> None:
    """Evidence changes with every batch; the alert does not."""
    book = AlertBook(config(), RULES)
    for second in range(50):
        changed = replace(poison(), evidence={"summary": f"received {second} times", "receive_count": second})
        book.update([changed], NOW_MS + second * 1000)
    assert book.version == 1
    assert firing(book.since(0)) == ["m1 warning"]
    assert book.since(0)[0].told.finding.evidence["receive_count"] == 49, "a resend carries the latest evidence"
    assert book.since(1) == []


def test_what_is_gone_for_a_moment_does_not_flap_and_for_good_ends() -> None:
    """keep_firing_s, at the boundary."""
    book = AlertBook(config(keep_firing_s=15), RULES)
    book.update([poison()], NOW_MS)
    book.update([], NOW_MS + 14_999)
    assert firing(book.since(0)) == ["m1 warning"]
    book.update([poison()], NOW_MS + 20_000)
    book.update([], NOW_MS + 34_999)
    assert book.version == 1, "it came back in time: nothing to tell"
    book.update([], NOW_MS + 35_000)
    assert ended(book.since(1)) == ["m1 warning"]
    assert book.since(1)[0].ended_ms == NOW_MS + 35_000


def test_what_ended_is_told_for_a_while_and_may_begin_again() -> None:
    """For an Alertmanager that was away; then it is forgotten."""
    book = AlertBook(config(keep_firing_s=0), RULES)
    book.update([poison()], NOW_MS)
    book.update([], NOW_MS + 1)
    book.update([poison()], NOW_MS + 2)
    assert (firing(book.since(-1)), ended(book.since(-1))) == (["m1 warning"], [])
    book.update([], NOW_MS + 3)
    book.update([], NOW_MS + 3 + ENDED_KEPT_MS)
    assert ended(book.since(-1)) == ["m1 warning"]
    book.update([], NOW_MS + 4 + ENDED_KEPT_MS)
    assert book.since(-1) == []


def test_a_signal_that_gets_graver_is_another_alert_and_never_goes_back() -> None:
    """Severity is a label: back and forth would notify every time."""
    book = AlertBook(config(), RULES)
    book.update([poison(severity="warning")], NOW_MS)
    book.update([poison(severity="critical")], NOW_MS + 1_000)
    assert (firing(book.since(1)), ended(book.since(1))) == (["m1 critical"], ["m1 warning"])
    before = book.version
    book.update([poison(severity="warning")], NOW_MS + 2_000)
    assert book.version == before
    assert firing(book.since(-1)) == ["m1 critical"]


def test_each_new_dead_letter_is_a_new_alert_even_when_there_are_too_many() -> None:
    """The newest has an alert of its own; the oldest, which was told, makes room."""
    book = AlertBook(config(max_per_queue=3, keep_firing_s=0), RULES)
    seen: list[str] = []
    for count in range(1, 9):
        before = book.version
        book.update([arrival(n) for n in range(1, count + 1)], NOW_MS + count * 1000)
        new = [name for name in firing(book.since(before)) if name != "others warning"]
        seen += new
    assert seen == [f"m{n} warning" for n in range(1, 9)]
    assert sorted(firing(book.since(-1))) == ["m6 warning", "m7 warning", "m8 warning", "others warning"]


def test_too_many_of_a_queue_are_one_alert_more_that_does_not_change_with_their_number() -> None:
    """And whoever has an alert keeps it: a full book does not change its mind."""
    book = AlertBook(config(max_per_queue=2), RULES)
    book.update([poison(n, since_ms=NOW_MS + n) for n in (5, 6, 7)], NOW_MS)
    assert sorted(firing(book.since(0))) == ["m5 warning", "m6 warning", "others warning"]
    before = book.version
    book.update([poison(n, since_ms=NOW_MS + n) for n in (1, 2, 3, 5, 6, 7)], NOW_MS + 1_000)
    assert book.version == before
    (others,) = [line for line in book.since(-1) if line.told.folded]
    assert others.told.folded == 4
    assert labels_of(others.told, RULES)["part"] == "others"
    assert annotations_of(others.told, RULES)["description"].startswith("4 more of the same; the latest: m7")


def test_beyond_the_limit_of_all_the_mildest_are_left_out_and_counted() -> None:
    """Memory and Alertmanager are spared; the metric tells."""
    book = AlertBook(config(max_alerts=3), RULES)
    findings = [poison(n, "critical" if n == 9 else "warning", NOW_MS + n, queue=f"q{n}") for n in range(10)]
    book.update(findings, NOW_MS)
    assert firing(book.since(0))[0] == "m9 critical"
    assert (book.count(), book.unsent) == (3, 7)


@pytest.mark.parametrize(
    ("told", "found", "why"),
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
def test_the_switches_of_the_rules_hold_here_too(told: Finding, found: bool, why: str) -> None:
    """One place to turn an alert off, whichever way it takes."""
    rules = AlertRulesConfig(
        rules={
            "PoisonMessage": AlertSwitch(exclude_queues="test-.*"),
            "NoisyGroup": AlertSwitch(enabled=False),
            "SlowConsumer": AlertSwitch(severity="warning"),
        }
    )
    book = AlertBook(config(), rules)
    book.update([told], NOW_MS)
    assert bool(book.count()) is found, why


def test_an_alert_names_message_group_head_consumer_and_what_to_do() -> None:
    """Identity in labels, numbers in annotations."""
    book = AlertBook(config(), AlertRulesConfig(runbook_base_url="https://run.book", page_url="https://watch"))
    rules = book._rules
    book.update(shop_snapshot().firing, NOW_MS)
    told = {line.told.finding.key.signal: line.told for line in book.since(0)}
    stuck = to_json(told["GroupStuck"], rules, ends_ms=NOW_MS + 240_000)
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
    assert notes["description"].startswith("Group customer-4711 is stuck")
    assert notes["what_to_do"]
    assert notes["runbook_url"] == "https://run.book#alert-name-queuewatchgroupstuck"
    assert (stuck["startsAt"], stuck["endsAt"]) == ("2025-11-21T11:54:30.000Z", "2025-11-21T12:04:00.000Z")
    poisoned = annotations_of(told["PoisonMessage"], rules)
    assert (poisoned["receive_count"], poisoned["final_attempt"]) == ("3", "false")
    held = labels_of(told["MessageHeldTooLong"], rules)
    assert held["consumer"] == "video-encoder-7"
    assert "message=5a8e2b10" in page_link(told["MessageHeldTooLong"].finding.key, rules)


def test_an_alert_never_begins_after_its_end() -> None:
    """A sender's clock ran an hour ahead; Alertmanager would refuse it."""
    book = AlertBook(config(keep_firing_s=0), RULES)
    book.update([poison(since_ms=NOW_MS + 3_600_000)], NOW_MS)
    book.update([], NOW_MS + 1)
    (line,) = book.since(1)
    assert line.ended_ms is not None
    alert = to_json(line.told, RULES, ends_ms=line.ended_ms)
    assert alert["startsAt"] < alert["endsAt"]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_bounded_text(name: str) -> None:
    """Valid UTF-8, no longer than allowed, an address that is one, annotation names that are names."""
    told = finding("PoisonMessage", name, "warning", NOW_MS, name * 20, scope=name, message_id=name, **{name: name, "ok": name})
    book = AlertBook(config(), RULES)
    book.update([told], NOW_MS)
    alert = to_json(book.since(0)[0].told, RULES, ends_ms=NOW_MS + 1)
    for value in (*alert["labels"].values(), *alert["annotations"].values(), alert["generatorURL"]):
        assert len(value.encode()) <= 4_096
    assert alert["generatorURL"].isascii()
    assert all(key.isidentifier() for key in alert["annotations"])
