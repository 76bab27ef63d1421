"""Signals folded into the one that names their cause: what the simulated queues in `judge/rules` do not bring about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streaming.core.settings import Settings
from streaming.judge.findings.signals import Finding, Severity, SignalKey, SignalName
from streaming.judge.folding.causes import fold_into_causes

QUEUE = ("aws_sqs", "", "q")


def found(signal: SignalName, severity: Severity = "warning", *, about: dict[str, str] | None = None, **evidence: Any) -> Finding:
    """Return a finding about the queue, or about a part of it."""
    return Finding(SignalKey(signal, *QUEUE, **(about or {})), severity, 0, {"summary": "It fires.", **evidence})


def folded(*findings: Finding, before: tuple[Finding, ...] = (), most: int = 100) -> dict[SignalName, Finding]:
    """Return the last finding of each signal."""
    after = fold_into_causes({f.key: f for f in findings}, {f.key: f for f in before}, Settings(messages_per_queue=most))
    return {f.key.signal: f for f in after.values()}


NOISY = found("NoisyGroup", "info", about={"group": "loud"})
SLOW = found(
    "SlowConsumer",
    about={"consumer": "a"},
    message_group="loud",
    held_s=900.0,
    held_messages=3,
    finished_meanwhile=True,
)


def test_a_consumer_that_holds_a_message_too_long_is_announced_beside_a_noisy_group() -> None:
    """It finished another one after it had received that message, but that may be long ago."""
    assert folded(NOISY, SLOW)["SlowConsumer"].folded == "NoisyGroup"
    held = [found("MessageHeldTooLong", about={"message_id": f"m{n}"}, consumer="a") for n in range(3)]
    after = folded(NOISY, SLOW, *held)
    assert after["SlowConsumer"].folded is None
    assert after["MessageHeldTooLong"].folded == "SlowConsumer"
    assert after["NoisyGroup"].severity == "info"


@pytest.mark.parametrize(("most", "says"), [(3, "2 stuck groups"), (2, "at least 2 stuck groups")])
def test_a_count_of_what_is_listed_is_a_lower_bound_where_the_list_is_full(most: int, says: str) -> None:
    """More than `messages_per_queue` are not listed, and of those it is not known why they are stuck."""
    stuck = [found("GroupStuck", "critical", about={"group": f"g{n}"}, head_refused_settlements=1) for n in range(2)]
    window = folded(found("WindowTooShort"), *stuck, most=most)["WindowTooShort"]
    assert window.summary == f"It fires. {says} come of that: deletions were refused as too late."


def test_it_is_one_too_where_fewer_are_listed_because_very_many_queues_have_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of each are listed in any case."""
    monkeypatch.setattr("streaming.judge.folding.causes.MOST_LISTED", 6)
    stuck = [found("GroupStuck", "critical", about={"group": f"g{n}"}, head_refused_settlements=1) for n in range(3)]
    window = folded(found("WindowTooShort"), *stuck)["WindowTooShort"]
    assert window.summary.startswith("It fires. at least 3 stuck groups come of that")


@pytest.mark.parametrize("severity", ["warning", "critical"])
def test_a_queue_falls_behind_because_its_groups_are_stuck(severity: Severity) -> None:
    """Where none was stuck, work that is done twice now and then does not explain it."""
    after = folded(found("WindowTooShort"), found("QueueLagging"), before=(found("WindowTooShort", severity),))
    assert after["QueueLagging"].folded == ("WindowTooShort" if severity == "critical" else None)
    assert after["WindowTooShort"].severity == severity


def fails(failed: int = 20, **evidence: Any) -> Finding:
    """Return a finding about a queue of which so many deliveries failed."""
    return found("QueueFailing", "critical", failed_deliveries=failed, lost_or_dead_lettered_per_hour=1_200, **evidence)


FAILING = fails(outlived_deliveries=10)


@pytest.mark.parametrize(
    ("failing", "is_folded"),
    [
        (FAILING, True),
        (fails(outlived_deliveries=9), False),
        (fails(0), False),
        (fails(outlived_deliveries=20, consumer="a"), False),
    ],
    ids=["half of them late", "fewer", "none", "one consumer"],
)
def test_a_queue_whose_deliveries_fail_late_is_one_page_about_its_window(failing: Finding, is_folded: bool) -> None:
    """A page that says to raise the visibility timeout is enough, unless many deliveries fail otherwise, or one host's do."""
    after = folded(found("WindowTooShort"), failing)
    assert after["QueueFailing"].folded == ("WindowTooShort" if is_folded else None)
    window = after["WindowTooShort"]
    assert window.severity == ("critical" if is_folded else "warning")
    lost = "Most deliveries of the queue fail because of that; about 1,200 messages an hour are dead-lettered or lost."
    assert window.summary == ("It fires. " + lost if is_folded else "It fires.")


def test_a_failing_queue_that_was_announced_is_not_taken_back() -> None:
    """It fired before the window was known to be too short."""
    before = replace(FAILING, announced_as="critical")
    assert folded(found("WindowTooShort"), FAILING, before=(before,))["QueueFailing"].folded is None
