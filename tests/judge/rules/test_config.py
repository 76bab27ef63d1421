"""QueueMisconfigured: settings that cause trouble, judged here or found by a collector that sees more of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streaming.core.settings import QueueRule
from tests.core.driving import event
from tests.judge.driving import SETTINGS, Step, judged

WORKER: dict[str, Any] = {"kind": "standard", "retention_s": 345_600, "dead_letter_queue": "dead", "max_retries": 3}


def state(at_ms: int, **attributes: Any) -> Step:
    """Return a step in which a Cloudflare queue reports its settings."""
    return at_ms, [event("queue_state", at_ms, attributes=WORKER | attributes, system="cloudflare_queues")]


def found(*steps: Step) -> dict[str, str]:
    """Return rule -> summary of the findings that fire at the end."""
    firing = judged(steps).firing("QueueMisconfigured")
    assert [f.key.part for f in firing] == [f.evidence["rule"] for f in firing]
    return {f.evidence["rule"]: f.evidence["summary"] for f in firing}


@pytest.mark.parametrize(
    ("attributes", "rules"),
    [
        ({}, []),
        ({"max_retries": 0}, ["no_retries"]),
        ({"max_retries": 1}, []),
        ({"max_batch_size": 100, "throws_on_error": True}, ["whole_batch_fails"]),
        ({"max_batch_size": 99, "throws_on_error": True}, []),
        ({"max_batch_size": 100}, []),
        ({"dead_letter_queue": ""}, ["no_dead_letter_queue"]),
        ({"dead_letter_queue": "", "has_consumer": True}, ["no_dead_letter_queue"]),
        ({"dead_letter_queue": "", "has_consumer": False}, []),
    ],
    ids=[
        "nothing wrong",
        "no retry at all",
        "one retry",
        "a throw fails a hundred",
        "smaller batches",
        "nobody knows of throwing",
        "no dead-letter queue",
        "no dead-letter queue but a consumer",
        "nothing fails where nobody receives",
    ],
)
def test_rules_of_worker_queues(attributes: dict[str, Any], rules: list[str]) -> None:
    """Each alone, and at its boundary."""
    assert list(found(state(0, **attributes))) == rules


@pytest.mark.parametrize("configured", [False, True], ids=["reported", "configured"])
def test_a_worker_queue_that_delivers_once_retries_nothing(configured: bool) -> None:
    """Without `max_retries`, the deliveries in all say so: SQS has its own rule for them."""
    settings = replace(SETTINGS, rules=(QueueRule("orders", max_receive_count=1),) if configured else ())
    reported = {"dead_letter_queue": "dead"} | ({} if configured else {"max_receive_count": 1})
    step = 0, [event("queue_state", 0, attributes=reported, system="cloudflare_queues")]
    (fired,) = judged([step], settings).firing("QueueMisconfigured")
    assert fired.evidence["rule"] == "no_retries"


@pytest.mark.parametrize(
    ("system", "what"),
    [("aws_sqs", "again and again until its retention runs out."), ("rabbitmq", "again and again.")],
)
def test_only_a_queue_with_a_retention_loses_what_fails_to_it(system: str, what: str) -> None:
    """RabbitMQ keeps a message until it is settled."""
    step = 0, [event("queue_state", 0, attributes={"dead_letter_queue": ""}, system=system)]
    assert f"a message that fails is received {what} Add one." in found(step)["no_dead_letter_queue"]


@pytest.mark.parametrize(
    ("queue", "dead_letter_queue", "retention_s", "rules"),
    [
        ("orders", "dead", 345_600, ["dead_letter_retention"]),
        ("orders", "dead", 345_599, ["dead_letter_retention"]),
        ("orders", "dead", 345_601, []),
        ("orders.fifo", "dead.fifo", 345_600, []),
        ("orders.fifo", "dead.fifo", 60, []),
    ],
    ids=["equal", "shorter", "longer", "FIFO equal", "FIFO shorter"],
)
def test_retention_of_sqs_dead_letter_queues(queue: str, dead_letter_queue: str, retention_s: int, rules: list[str]) -> None:
    """A standard dead letter keeps its send time, so its queue must keep messages longer; a FIFO one starts anew."""
    source = {"kind": "fifo" if ".fifo" in queue else "standard", "retention_s": 345_600, "max_receive_count": 3}
    states = [
        event("queue_state", 0, queue=queue, attributes=source | {"dead_letter_queue": dead_letter_queue}, system="aws_sqs"),
        event("queue_state", 0, queue=dead_letter_queue, attributes=source | {"retention_s": retention_s}, system="aws_sqs"),
    ]
    fired = {(f.key.queue, f.evidence["rule"]) for f in judged([(0, states)]).firing("QueueMisconfigured")}
    assert sorted(rule for name, rule in fired if name == queue) == rules


def test_what_a_collector_found_is_passed_on_once() -> None:
    """A rule that the judge has itself is left to it; several findings of one rule are one."""
    reported = [
        {"rule": "delivery_paused", "summary": "Delivery is paused. Resume it."},
        {"rule": "no_retries", "summary": "The collector's words."},
        {"rule": "beyond_limits", "summary": "One."},
        {"rule": "beyond_limits", "summary": "Two."},
    ]
    said = found(state(0, max_retries=0, findings=reported))
    assert said["delivery_paused"] == "Delivery is paused. Resume it."
    assert said["beyond_limits"] == "One. Two."
    assert said["no_retries"].startswith("orders retries nothing")
    assert len(said) == 3


def test_a_finding_the_collector_takes_back_ends() -> None:
    """The latest report counts, and a finding that comes back starts again."""
    reported = [{"rule": "delivery_paused", "summary": "Paused."}]
    steps = [state(0, findings=reported), state(60_000, findings=[]), state(120_000, findings=reported)]
    changes = [(c.at_ms % 1_000_000, c.status) for c in judged(steps).changes if c.finding.key.part == "delivery_paused"]
    assert changes == [(0, "firing"), (60_000, "resolved"), (120_000, "firing")]
    (again,) = judged(steps).firing("QueueMisconfigured")
    assert again.since_ms % 1_000_000 == 120_000


@pytest.mark.parametrize("findings", ["text", 1, {"rule": "x"}, [1, None, {}, {"rule": "x"}, {"rule": 1, "summary": "y"}], [[]]])
def test_findings_that_are_none_are_left_out(findings: object) -> None:
    """External values may have any shape."""
    assert found(state(0, findings=findings)) == {}


def test_a_collector_cannot_flood() -> None:
    """Neither through many rules nor through long texts."""
    many = [{"rule": f"rule-{n:03d}" + "x" * 500, "summary": "y" * 9_000} for n in range(6)]
    said = found(state(0, findings=many + [{"rule": f"r{n}", "summary": "z"} for n in range(100)]))
    assert len(said) == 20
    assert max(len(rule) for rule in said) == 64
    assert max(len(words) for words in said.values()) == 500
