"""Every rule of `doctor sqs`: when it fires, when it does not, and its boundary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sources.sqs.doctor.rules import RULES, duration, findings
from sources.sqs.doctor.settings import LambdaConsumer, MoveTask, Queues, QueueSettings, Redrive, RedriveAllow

HERE = "arn:aws:sqs:eu-west-1:1:"
DAY_S = 86_400

DLQ = QueueSettings(
    key=f"{HERE}orders-dlq", arn=f"{HERE}orders-dlq", name="orders-dlq", retention_s=14 * DAY_S, encrypted=True, messages=0
)
QUEUE = QueueSettings(
    key=f"{HERE}orders",
    arn=f"{HERE}orders",
    name="orders",
    visibility_timeout_s=180,
    retention_s=4 * DAY_S,
    redrive=Redrive(target=DLQ.key, max_receive_count=5),
    encrypted=True,
    messages=7,
)
FIFO: dict[str, Any] = {"kind": "fifo", "deduplication_scope": "messageGroup", "throughput_limit": "perMessageGroupId"}


def worker(timeout_s: float | None = 30, **settings: Any) -> LambdaConsumer:
    """Return a Lambda function with good settings."""
    return LambdaConsumer(function="work", timeout_s=timeout_s, **{"batch_size": 10, "reports_item_failures": True} | settings)


def other(name: str, max_receive_count: int = 5) -> Redrive:
    """Return a redrive policy to another queue."""
    return Redrive(target=f"{HERE}{name}", max_receive_count=max_receive_count)


def allow(permission: str, *names: str) -> RedriveAllow:
    """Return a redrive allow policy."""
    return RedriveAllow(permission=permission, sources=frozenset(names))


# Settings of the queue, settings of its dead-letter queue, and the expected findings.
CASES: list[tuple[str, dict[str, Any], dict[str, Any], list[tuple[str, str, str]]]] = [
    ("all is well", {}, {}, []),
    ("FIFO, all is well", FIFO, FIFO, []),
    ("no redrive policy", {"redrive": None}, {}, [("orders", "no_dead_letter_queue", "warning")]),
    ("a redrive policy with an unknown target", {"redrive": Redrive()}, {}, []),
    ("itself a dead-letter queue by name", {"redrive": None, "name": "orders-DLQ-eu", "messages": 0}, {}, []),
    (
        "a dead letter by name",
        {"redrive": None, "name": "orders-DLQ-eu", "messages": 1},
        {},
        [("orders-DLQ-eu", "dead_letters_waiting", "warning")],
    ),
    ("messages of a queue that has a dead-letter queue itself", {"name": "dead-slow", "messages": 1}, {}, []),
    ("itself known to have sources", {"redrive": None, "has_sources": True, "messages": 0}, {}, []),
    (
        "a name that only sounds like it",
        {"redrive": None, "name": "deadlines"},
        {},
        [("deadlines", "no_dead_letter_queue", "warning")],
    ),
    ("its target was deleted", {"redrive": other("gone")}, {}, [("orders", "dead_letter_queue_missing", "critical")]),
    ("its target is not among the examined", {"redrive": other("elsewhere")}, {}, []),
    (
        "its target is in another account",
        {"redrive": Redrive(target="arn:aws:sqs:eu-west-1:2:orders-dlq")},
        {},
        [("orders", "dead_letter_queue_elsewhere", "critical")],
    ),
    (
        "its target is in another region",
        {"redrive": Redrive(target="arn:aws:sqs:eu-west-2:1:orders-dlq")},
        {},
        [("orders", "dead_letter_queue_elsewhere", "critical")],
    ),
    ("standard to FIFO", {}, FIFO, [("orders", "redrive_type_mismatch", "critical")]),
    ("FIFO to standard", FIFO, {}, [("orders", "redrive_type_mismatch", "critical")]),
    ("standard to FIFO by name", {"redrive": other("x.fifo")}, {}, [("orders", "redrive_type_mismatch", "critical")]),
    ("allowAll", {}, {"redrive_allow": allow("allowAll")}, []),
    ("denyAll", {}, {"redrive_allow": allow("denyAll")}, [("orders", "allow_policy", "critical")]),
    ("byQueue without it", {}, {"redrive_allow": allow("byQueue", "others")}, [("orders", "allow_policy", "critical")]),
    ("byQueue with it", {}, {"redrive_allow": allow("byQueue", "others", "orders")}, []),
    ("byQueue of unknown queues", {}, {"redrive_allow": RedriveAllow(permission="byQueue")}, []),
    ("kept longer by a second", {"retention_s": 14 * DAY_S - 1}, {}, []),
    ("kept as long", {"retention_s": 14 * DAY_S}, {}, [("orders", "dead_letter_retention", "warning")]),
    ("kept less long", {}, {"retention_s": 60}, [("orders", "dead_letter_retention", "warning")]),
    ("FIFO, kept less long", FIFO, FIFO | {"retention_s": 60}, []),
    ("retention not known", {"retention_s": None}, {"retention_s": 60}, []),
    ("one receive", {"redrive": other("orders-dlq", max_receive_count=1)}, {}, [("orders", "single_receive", "warning")]),
    ("two receives", {"redrive": other("orders-dlq", max_receive_count=2)}, {}, []),
    ("works longer than visible", {"usual_processing_s": 181}, {}, [("orders", "short_visibility", "warning")]),
    ("works as long as visible", {"usual_processing_s": 180}, {}, []),
    ("Lambda, six times", {"consumers": (worker(30),)}, {}, []),
    ("Lambda, less than six times", {"consumers": (worker(31),)}, {}, [("orders", "lambda_visibility", "warning")]),
    ("Lambda, just once", {"consumers": (worker(180),)}, {}, [("orders", "lambda_visibility", "warning")]),
    ("Lambda, less than once", {"consumers": (worker(181),)}, {}, [("orders", "lambda_visibility", "critical")]),
    ("Lambda, the slower of two", {"consumers": (worker(3), worker(31))}, {}, [("orders", "lambda_visibility", "warning")]),
    ("Lambda of unknown timeout", {"consumers": (worker(None),)}, {}, []),
    ("a batching window that fits", {"consumers": (worker(29, batching_window_s=6),)}, {}, []),
    (
        "a batching window too much",
        {"consumers": (worker(29, batching_window_s=7),)},
        {},
        [("orders", "lambda_batching_window", "warning")],
    ),
    (
        "a batching window is said once",
        {"consumers": (worker(31, batching_window_s=7),)},
        {},
        [("orders", "lambda_visibility", "warning")],
    ),
    ("whole batches fail", {"consumers": (worker(reports_item_failures=False),)}, {}, [("orders", "whole_batch_fails", "info")]),
    ("batches of one", {"consumers": (worker(reports_item_failures=False, batch_size=1),)}, {}, []),
    ("nobody knows of batches", {"consumers": (worker(reports_item_failures=None),)}, {}, []),
    (
        "half of high throughput",
        FIFO | {"throughput_limit": "perQueue"},
        FIFO,
        [("orders", "fifo_throughput", "warning")],
    ),
    (
        "no high throughput",
        FIFO | {"throughput_limit": "perQueue", "deduplication_scope": "queue"},
        FIFO,
        [("orders", "fifo_throughput", "info")],
    ),
    ("throughput not known", FIFO | {"throughput_limit": None}, FIFO, []),
    ("a redrive that failed", {}, {"move_task": MoveTask(status="FAILED")}, [("orders-dlq", "redrive_failed", "warning")]),
    ("a redrive that runs", {}, {"move_task": MoveTask(status="RUNNING")}, []),
    ("a redrive that was cancelled", {}, {"move_task": MoveTask(status="CANCELLED")}, []),
    ("a dead letter", {}, {"messages": 1}, [("orders-dlq", "dead_letters_waiting", "warning")]),
    ("dead letters not known", {}, {"messages": None}, []),
    ("unencrypted", {"encrypted": False}, {}, [("orders", "unencrypted", "warning")]),
    ("encryption not known", {"encrypted": None}, {}, []),
]


def found(queue: QueueSettings, dead_letters: QueueSettings) -> list[tuple[str | None, str, str]]:
    """Return the queue, rule and severity of each finding."""
    queues = Queues.of([queue, dead_letters], missing=[f"{HERE}gone"])
    return [(finding.queue, finding.rule, finding.severity) for finding in findings(queues)]


@pytest.mark.parametrize(("queue", "dead_letters", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_rule_and_its_boundary(
    queue: dict[str, Any], dead_letters: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    """Each case changes two queues whose settings are otherwise good."""
    assert found(replace(QUEUE, **queue), replace(DLQ, **dead_letters)) == expected


def test_every_rule_has_a_case_in_which_it_fires() -> None:
    """A new rule without a case fails here."""
    assert {rule for case in CASES for _, rule, _ in case[3]} == set(RULES)


def test_every_finding_has_a_fix() -> None:
    """Summary and fix are full sentences."""
    for _, queue, dead_letters, _ in CASES:
        queues = Queues.of([replace(QUEUE, **queue), replace(DLQ, **dead_letters)], missing=[f"{HERE}gone"])
        for finding in findings(queues):
            assert finding.fix
            assert finding.fix.endswith(".")
            assert finding.summary.endswith(".")


def test_findings_give_numbers() -> None:
    """The summary says what is set, and the fix says what to set."""
    queue = replace(QUEUE, consumers=(worker(60, batching_window_s=20),))
    [finding] = findings(Queues.of([queue, DLQ]))
    assert "(3 min) is less than six times the timeout of Lambda function work (60 s)" in finding.summary
    assert finding.fix == "Set the visibility timeout to 380 s or more."
    failed = replace(DLQ, move_task=MoveTask(status="FAILED", failure_reason="AccessDenied", moved=3, to_move=9))
    [finding] = findings(Queues.of([QUEUE, failed]))
    assert finding.summary == "The last redrive of its messages failed after 3 of 9 messages: AccessDenied."


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (45, "45 s"),
        (120, "120 s"),
        (180, "3 min"),
        (5400, "90 min"),
        (10_800, "3 h"),
        (172_800, "48 h"),
        (345_600, "4 days"),
        (1.5, "1.5 s"),
    ],
)
def test_durations_read_well(seconds: float, words: str) -> None:
    """The unit is the largest without a remainder, if there are at least three of it."""
    assert duration(seconds) == words
