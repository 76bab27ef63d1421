"""The criteria find exactly what is wrong: artificial published values are compared with a known truth."""

from __future__ import annotations

from typing import Any

import pytest

from lab import criteria
from lab.harness import Outcome
from lab.history import Counts, History, QueueHistory
from lab.recording import Label
from lab.simulation import ms
from lab.telemetry import INSTRUMENTATIONS, Instrumentation

EVERY_S = 30


def one_message_from_minute_one() -> QueueHistory:
    """One message is sent at 60 s and stays; it is in flight from 90 s to 120 s."""
    history = History()
    queue = history.of("q")
    queue.enter("m", "visible", ms(60), ms(60))
    queue.change("m", "in_flight", ms(90))
    queue.change("m", "visible", ms(120))
    history.freeze()
    return queue


def published(metric: str, label: str, values: dict[float, float]) -> Outcome:
    """An outcome with one series, by seconds, published every 30 s up to minute 10."""
    outcome = Outcome(times=[ms(s) for s in range(EVERY_S, 601, EVERY_S)])
    outcome._series[f"queuewatch_{metric}", "q", label] = {ms(s): v for s, v in values.items()}
    return outcome


def signal(at_s: float, status: str = "firing", name: str = "QueueStalled", **fields: Any) -> dict[str, Any]:
    """A signal line."""
    return {"at": ms(at_s), "signal": name, "status": status, "severity": "critical", "queue": "q"} | fields


@pytest.mark.parametrize(
    ("scope", "age_s", "excess_s"),
    [("all", 40, 0), ("all", 30, -10), ("all", 50, 10), ("visible", 40, 40), ("healthy", 41, 1)],
    ids=["true", "a lower bound", "too high", "nothing is visible", "a second too high"],
)
def test_an_age_is_compared_with_the_true_age_in_its_scope(scope: str, age_s: float, excess_s: float) -> None:
    """At 100 s the message is 40 s old and in flight."""
    outcome = published("oldest_message_age_seconds", scope, {100: age_s})
    assert list(criteria.age_excesses(one_message_from_minute_one(), outcome, "q")) == [excess_s]


@pytest.mark.parametrize(
    ("published_depth", "said", "off"),
    [(100, 100, 0), (105, 100, 0), (106, 100, 0.06), (2, 1, 0), (None, 100, None), (1, 100, 0), (0, 100, 0), (3, 1, 2.0)],
    ids=["same", "5%", "6%", "one more", "absent", "the truth", "the truth, one less", "two more of one"],
)
def test_depth_may_agree_with_the_brokers_count_or_the_truth(published_depth: int | None, said: int, off: float | None) -> None:
    """The broker's count may be late; the truth at 120 s is one message."""
    outcome = published("queue_messages", "visible", {} if published_depth is None else {120: published_depth})
    found = criteria.depth_errors(one_message_from_minute_one(), outcome, "q", {ms(120): Counts(said, 0, 0)})
    assert list(found) == [off]


def test_exact_ages_are_required_under_full_telemetry_and_where_marked() -> None:
    """19 of the 20 times have a message; a missing age is wrong only under full telemetry."""
    history = one_message_from_minute_one()
    nothing = published("oldest_message_age_seconds", "all", {})
    assert criteria.not_exact(history, nothing, "q", full=False) == 0
    assert criteria.not_exact(history, nothing, "q", full=True) == 19 + 18, "all from 60 s on; visible but at 90 s"
    bound = published("oldest_message_age_seconds", "all", {300: 200})
    bound._series["queuewatch_oldest_message_age_exact", "q", "all"] = {ms(300): 0}
    assert criteria.not_exact(history, bound, "q", full=False) == 0
    bound._series["queuewatch_oldest_message_age_exact", "q", "all"] = {ms(300): 1}
    assert criteria.not_exact(history, bound, "q", full=False) == 1


def test_a_signal_that_ends_during_the_fault_is_lost() -> None:
    """The signal fires at 200 s and is resolved from 310 s to 380 s, so it is missing at 330 s and 360 s."""
    outcome = published("x", "", {})
    outcome.signals += [signal(200), signal(310, "resolved"), signal(380)]
    assert criteria.lost(outcome, "QueueStalled", "q", ms(100)) == 2
    assert criteria.lost(outcome, "QueueStalled", "other", ms(100)) == 0


def test_a_critical_signal_must_name_what_is_labelled() -> None:
    """One that names no such thing is not judged, nor is one that nobody is notified of, nor a run whose label names nothing."""
    label = Label("poison", "q", ms(100), None, ms(120), message_id="m", group="g")
    outcome = published("x", "", {})
    outcome.signals += [
        signal(200, name="PoisonMessage", message_id="m"),
        signal(210, name="GroupStuck", group="g"),
        signal(220, name="GroupStuck", group="other"),
        signal(230, name="PoisonMessage", message_id="n", folded="QueueFailing"),
        signal(240, name="PoisonMessage", message_id="n", severity="warning"),
        signal(250, name="SlowConsumer", consumer="c"),
    ]
    assert criteria.blamed_healthy([label], outcome) == ("GroupStuck other",)
    assert criteria.blamed_healthy([Label("consumers_dead", "q", ms(100), None, ms(120))], outcome) == ()


def test_status_ok_is_wrong_only_after_the_time_to_detect() -> None:
    """After a death at 30 s, ok is wrong from 390 s on; other states are allowed."""
    outcome = published("queue_status", "ok", {360: 1, 390: 1, 420: 0, 450: 1})
    outcome._series["queuewatch_queue_status", "q", "stopped"] = {ms(420): 1}
    assert criteria.ok_while_dead(outcome, "q", ms(30)) == 2


def test_the_smallest_ratio_to_the_true_age_counts() -> None:
    """The ratio is measured from 15 minutes after the death; a gap has none."""
    history = one_message_from_minute_one()
    outcome = Outcome(times=[ms(960), ms(1060), ms(1160)])
    ages = outcome._series.setdefault(("queuewatch_oldest_message_age_seconds", "q", "all"), {})
    ages |= {ms(960): 450, ms(1060): 950, ms(1160): 1100}
    assert criteria.dead_age_ratio(history, outcome, "q", ms(60)) == 0.5
    assert criteria.dead_age_ratio(history, outcome, "q", ms(100)) == 0.95
    del ages[ms(1160)]
    assert criteria.dead_age_ratio(history, outcome, "q", ms(60)) is None


@pytest.mark.parametrize(
    ("instrumentation", "ratio", "enough"),
    [
        (INSTRUMENTATIONS["consumers"], 0.9, True),
        (INSTRUMENTATIONS["consumers"], 0.89, False),
        (INSTRUMENTATIONS["producers"], None, False),
        (INSTRUMENTATIONS["one_of_two"], None, False),
        (INSTRUMENTATIONS["sample25"], None, None),
        (INSTRUMENTATIONS["attributes"].with_counts("late"), 0.1, None),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_an_age_is_required_where_one_side_is_fully_instrumented(
    instrumentation: Instrumentation, ratio: float | None, enough: bool | None
) -> None:
    """Counts alone prove little, and a quarter of the messages may not include the oldest."""
    assert criteria._age_enough(instrumentation, ratio) is enough
