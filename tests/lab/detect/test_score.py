"""What counts as detected, as false, as one alarm, and as the right name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from lab.detect.alarms import Alarm, spans
from lab.detect.compare import figures
from lab.detect.run import Run
from lab.detect.score import episodes, score
from lab.history import History
from lab.recording import Label, Recording
from lab.simulation import ms


@dataclass
class Alarming:
    """A rule that returns the given alarms."""

    detected: list[Alarm]
    name: str = "detected"
    source: str = "here"
    asked: list[Run] = field(default_factory=list)

    def applies(self, run: Run) -> bool:
        return bool(run.recording.settings)

    def alarms(self, run: Run) -> list[Alarm]:
        self.asked.append(run)
        return self.detected


def alarm(from_s: float, to_s: float | None = None, what: str = "x", *names: str) -> Alarm:
    """An alarm on queue q."""
    return Alarm(ms(from_s), None if to_s is None else ms(to_s), "q", what, frozenset(names))


def run(*labels: Label, learning_s: float = 0.0) -> Run:
    """An hour of queue q."""
    history = History()
    history.of("q")
    history.freeze()
    recording = Recording("made up", 1, 3600.0, [], history, {"q": {}}, list(labels), learning_s=learning_s)
    return Run("made up", "standard", recording)


FAULT = Label("f", "q", ms(1200), None, ms(1230), "m")


@pytest.mark.parametrize(
    ("alarms", "detected_s", "culprit", "true", "false"),
    [
        ([alarm(1260)], 60, False, 1, 0),
        ([alarm(1260, None, "x", "m")], 60, True, 1, 0),
        ([alarm(600, 700)], None, None, 0, 1),
        ([alarm(600)], None, None, 0, 1),
        ([alarm(600, 700), alarm(1300)], 100, False, 1, 1),
        ([], None, None, 0, 0),
    ],
    ids=["detected", "and named", "false", "false and never ending is not detected", "both", "nothing"],
)
def test_an_alarm_before_the_fault_is_false_and_the_first_after_it_detects(
    alarms: list[Alarm], detected_s: float | None, culprit: bool | None, true: int, false: int
) -> None:
    """The quiet time is the time before the fault."""
    result = score(Alarming(alarms), run(FAULT))
    assert (result.detected_s, result.culprit, result.true, result.false) == (detected_s, culprit, true, false)
    assert (result.minimum_s, result.quiet_s) == (30, 1200)


def test_an_alarm_about_something_else_detects_nothing() -> None:
    """A signal must name the fault or one of its effects, and blame no healthy consumer; a threshold says nothing of either."""
    fault = Label("f", "q", ms(1200), None, ms(1230), consumer="worker-2", expected=("SlowConsumer",))
    hung = run(fault)
    hung.recording.allowed = frozenset({"GroupStuck"})

    def signal(at_s: float, what: str, consumer: str | None = None) -> Alarm:
        return Alarm(ms(at_s), None, "q", what, says_what=True, consumer=consumer)

    def counted(*alarms: Alarm) -> tuple[float | None, int, int, int]:
        result = score(Alarming(list(alarms)), hung)
        return result.detected_s, result.true, result.unrelated, result.false

    assert counted(signal(1260, "PoisonMessage")) == (None, 0, 1, 0)
    assert counted(signal(1260, "SlowConsumer", "worker-1"), signal(1300, "SlowConsumer", "worker-2")) == (100, 1, 1, 0)
    assert counted(signal(1260, "GroupStuck")) == (60, 1, 0, 0)
    assert counted(alarm(1260, None, "age")) == (60, 1, 0, 0)


def test_a_cause_may_be_announced_before_the_fault() -> None:
    """A poison message from minute 20 on is lost at minute 35: an alarm that still fires then detects the loss at once."""
    lost = Label("lost", "q", ms(2100), None, ms(2100), "m", cause_ms=ms(1200))
    assert score(Alarming([alarm(1500)]), run(lost)).detected_s == 0
    over = score(Alarming([alarm(1500, 1600)]), run(lost))
    assert (over.detected_s, over.true, over.false) == (None, 1, 0)


def test_a_healthy_run_has_only_false_alarms_except_one_while_learning() -> None:
    """One alarm is allowed while a schedule is learned; from the second cycle on each alarm is false."""
    assert score(Alarming([alarm(600, 700), alarm(1500)]), run()).false == 2
    assert score(Alarming([alarm(600, 700), alarm(1500)]), run(learning_s=1800)).false == 1
    assert score(Alarming([alarm(2000)]), run(learning_s=1800)).false == 1


def test_dead_letters_by_design_are_neither_true_nor_false() -> None:
    """A healthy run may dead-letter some messages by design; any other alarm is false."""
    healthy = run()
    healthy.recording.allowed = frozenset({"PoisonMessage", "DeadLetterArrived"})
    assert score(Alarming([alarm(60, 70, "PoisonMessage"), alarm(60, 70, "QueueStalled")]), healthy).false == 1


def test_close_alarms_of_one_kind_are_merged() -> None:
    """The merged alarm has all names; alarms of another kind, or more than a minute later, are separate."""
    merged = episodes([alarm(0, 10, "x", "a"), alarm(60, 100, "x", "b"), alarm(50, 60, "y"), alarm(161, None, "x")])
    assert [(a.what, a.to_ms, a.names) for a in merged] == [
        ("x", ms(100), frozenset({"a", "b"})),
        ("y", ms(60), frozenset()),
        ("x", None, frozenset()),
    ]


def test_spans_of_true_values_become_alarms() -> None:
    """The last one is open."""
    assert spans([1, 2, 3, 4, 5], [True, False, True, True, True]) == [(1, 2), (3, None)]


def row(detected_s: float | None, **more: Any) -> dict[str, Any]:
    """Return one judged run of a fault."""
    plain = {
        "rule": "r",
        "fault": "f",
        "minimum_s": 30.0,
        "detected_s": detected_s,
        "culprit": None,
        "true": detected_s is not None,
    }
    return plain | {"unrelated": 0, "false": 0, "false_pages": 0, "quiet_s": 1200.0, "limit_s": None} | more


def test_figures_of_a_few_runs() -> None:
    """Figures are recall of faults, precision of alarms, p95 by nearest rank, and pages per quiet queue-day."""
    rows = [row(60.0, culprit=True), row(90.0, culprit=False), row(None), row(600.0, minimum_s=1.0)]
    rows.append(row(None, fault=None, minimum_s=None, false=2, false_pages=1, quiet_s=86_400 - 4800.0))
    found = figures(rows)
    assert found["faults"] == 4
    assert found["recall"] == 0.75
    assert found["precision"] == 0.6
    assert figures([row(60.0, unrelated=3)])["precision"] == 0.25
    three_kinds = figures([row(60.0, true=3, false=1)])
    assert (three_kinds["precision"], three_kinds["precision_per_fault"]) == (0.75, 0.5)
    assert (found["median_s"], found["p95_s"]) == (90, 600)
    assert (found["ratio"], found["ratios"]) == (3, 3), "2, 3, and 60: a minimum counts as at least one step of judging"
    at_once = figures([row(60.0), row(600.0, minimum_s=0.0)])
    assert (at_once["ratio"], at_once["ratios"]) == (2, 1), "a fault that can be seen at once has no ratio"
    assert (found["culprit"], found["culprits"]) == (0.5, 2)
    assert found["pages_per_1000_days"] == pytest.approx(1000)
