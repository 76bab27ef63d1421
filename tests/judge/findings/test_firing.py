"""What fires, and what of it a step changes."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from streaming.core.settings import QueueName
from streaming.judge.findings.firing import NO_QUEUE, FiringSignals
from streaming.judge.findings.signals import Finding, SignalKey, SignalName


def found(queue: str, signal: SignalName = "PoisonMessage", *, since_ms: int = 5, **about: Any) -> Finding:
    key = SignalKey(signal, "aws_sqs" if queue else "", "", queue, message_id=about.pop("message_id", None))
    return Finding(key, about.pop("severity", "warning"), since_ms, {"summary": queue}, **about)


def name(queue: str) -> QueueName:
    return QueueName("aws_sqs", "", queue)


def after(*findings: Finding) -> dict[SignalKey, Finding]:
    return {finding.key: finding for finding in findings}


def started(*findings: Finding) -> FiringSignals:
    firing = FiringSignals()
    firing.update([one.key.queue_name for one in findings], after(*findings), 10)
    return firing


def queues_of(firing: FiringSignals) -> list[str]:
    return [one.key.queue for one in firing]


def test_only_the_queues_concerned_are_compared() -> None:
    firing = started(found("a"), found("b"), found("c"))
    (ended,) = firing.update([name("b")], {}, 20)
    assert (ended.status, ended.finding.key.queue) == ("resolved", "b")
    assert queues_of(firing) == ["a", "c"]
    assert firing.of(name("b")) == {}


def test_what_goes_on_keeps_its_place_and_its_start() -> None:
    firing = started(found("a"), found("b"), found("c"))
    changes = firing.update([name("b"), name("d")], after(found("d"), found("b", since_ms=9)), 20)
    assert [(change.status, change.finding.key.queue) for change in changes] == [("firing", "d")]
    assert queues_of(firing) == ["a", "b", "c", "d"]
    assert [one.since_ms for one in firing] == [5, 5, 5, 5]


def test_what_is_no_longer_folded_is_announced() -> None:
    firing = started(found("a", folded="QueueFailing"))
    (announced,) = firing.update([name("a")], after(found("a")), 20)
    assert (announced.status, announced.finding.folded) == ("firing", None)
    assert firing.update([name("a")], after(found("a", folded="QueueFailing")), 30) == []
    assert firing.update([name("a")], after(found("a")), 40) == []


@pytest.mark.parametrize("read_again", [False, True])
def test_what_becomes_more_severe_fires_again_once(read_again: bool) -> None:
    """Going back and forth between two severities is one change."""
    firing = started(found("a"))
    (risen,) = firing.update([name("a")], after(found("a", severity="critical")), 20)
    assert (risen.status, risen.finding.severity, risen.at_ms) == ("firing", "critical", 20)
    firing = FiringSignals(dict(firing.findings)) if read_again else firing
    assert firing.update([name("a")], after(found("a")), 30) == []
    assert firing.update([name("a")], after(found("a", severity="critical")), 40) == []
    assert [(one.since_ms, one.severity) for one in firing] == [(5, "critical")]


def test_what_is_folded_becomes_more_severe_in_silence() -> None:
    """It is announced with the severity that it has by then."""
    firing = started(found("a", folded="QueueFailing"))
    assert firing.update([name("a")], after(found("a", folded="QueueFailing", severity="critical")), 20) == []
    (announced,) = firing.update([name("a")], after(found("a", severity="critical")), 30)
    assert announced.finding.severity == "critical"
    assert firing.update([name("a")], after(found("a", severity="critical")), 40) == []


@pytest.mark.parametrize("read_again", [False, True])
def test_queues_with_a_signal_that_time_may_end_are_judged_in_every_step(read_again: bool) -> None:
    """Also after a restart; not those that only lack a setting."""
    firing = started(found("a", "QueueMisconfigured"), found("b"), found("a"), found("b", "QueueMisconfigured"))
    firing = FiringSignals(dict(firing.findings)) if read_again else firing
    assert firing.changing() == {name("a"), name("b")}
    firing.update([name("a")], after(found("a", "QueueMisconfigured")), 20)
    assert firing.changing() == {name("b")}
    firing.update([name("b")], {}, 30)
    assert firing.changing() == set()


def test_queues_that_are_no_longer_known_are_found_once() -> None:
    """A signal about a collector is about no queue."""
    firing = started(found("a"), found("b"), found(""))
    assert firing.forgotten(known("a", "b")) == []
    fewer = known("a")
    assert firing.forgotten(fewer) == [name("b")]
    assert firing.forgotten(fewer) == []
    assert NO_QUEUE in {one.key.queue_name for one in firing}


def known(*queues: str) -> Any:
    names: Sequence[QueueName] = tuple(map(name, queues))
    return SimpleNamespace(names=names, place=lambda one: names.index(one) if one in names else None)
