"""The earliest observation that tells a fault from health, by the simulation's own parameters."""

from __future__ import annotations

import random

import pytest

from lab.consumer import lognormal
from lab.earliest import (
    first_failure,
    first_long_turn,
    first_long_work,
    first_pause,
    first_rush,
    first_sign_of_failing,
    longest_pause_s,
    longest_work_s,
)
from lab.history import NEVER, Delivery, Outcome
from lab.scenarios.activemq import mq_hung
from lab.scenarios.incidents import broken_deploy
from lab.simulation import ms


def held(begin_s: float, end_s: float | None, outcome: Outcome = "deleted", consumer: str = "a") -> Delivery:
    """A delivery from one second to another; None: it never ends."""
    return Delivery("q", "m", consumer, 1, ms(begin_s), NEVER if end_s is None else ms(end_s), outcome)


@pytest.mark.parametrize("mean_s", [0.7, 4.0])
def test_one_lognormal_time_in_a_thousand_is_longer(mean_s: float) -> None:
    """The mean of a lognormal time is more than its median, of which the 999th of a thousand is a multiple."""
    draw, source = lognormal(mean_s), random.Random(1)
    longer = sum(draw(source) > longest_work_s(mean_s) for _ in range(100_000))
    assert 80 <= longer <= 120


def test_one_pause_in_a_thousand_is_longer() -> None:
    """Pauses between random events last longer than this in one case of a thousand."""
    source = random.Random(1)
    longer = sum(source.expovariate(2.0) > longest_pause_s(2.0) for _ in range(100_000))
    assert 80 <= longer <= 120


def test_a_pause_counts_from_the_fault() -> None:
    """What was silent before the fault was healthy, and the last pause never ends."""
    assert first_pause([ms(90), ms(101)], ms(100), 5.0) == ms(106)
    assert first_pause([ms(90)], ms(100), 5.0) == ms(105)
    assert first_pause([ms(101), ms(107), ms(108)], ms(100), 5.0) == ms(106)


def test_failures_and_long_holds_count_from_the_fault() -> None:
    """A delivery that began before the fault was received by a healthy consumer."""
    assert first_failure([held(80, 90, "released"), held(95, 101), held(90, 120, "timed_out")], ms(100)) == ms(120)
    assert first_failure([held(95, 101)], ms(100)) == NEVER
    assert first_long_work([held(95, None), held(101, 103), held(102, 108)], ms(100), 5.0) == ms(107)


def test_a_prefetched_message_is_in_work_once_the_one_before_is_done() -> None:
    """Its wait in the window is healthy; its own turn is not longer than the work."""
    waited = [held(90, 96), held(90, 101), held(90, 106), held(90, None)]
    assert first_long_turn(waited, ms(100), 8.0) == ms(114)
    assert first_long_turn(waited[:3], ms(100), 8.0) == NEVER
    assert first_long_turn([held(90, 101)], ms(100), 8.0) == ms(100), "it took too long before the fault, too"


def test_a_rush_is_more_than_chance_explains() -> None:
    """At one a second, four within 0.4 s happen in eight cases of ten thousand, three within 0.3 s in four of a thousand."""
    assert first_rush([ms(99.9), *(ms(100 + n / 10) for n in range(1, 7))], ms(100), 1.0) == ms(100.4)
    assert first_rush([ms(100 + n) for n in range(1, 1_000)], ms(100), 1.0) == NEVER


def test_failing_shows_first_in_whatever_health_does_not_have() -> None:
    """The consumer that stops deleting shows before its first window ends, if others go on."""
    others = [held(at, at + 1, consumer="b") for at in range(60, 160)]
    failing = [held(at, at + 30, "timed_out") for at in range(100, 130)]
    assert first_sign_of_failing([*others, *failing], ms(100), 1.0, 2, 40.0) == ms(100 + longest_pause_s(0.5))
    assert first_sign_of_failing([*others, *failing], ms(100), 1.0, 2, 5.0) == ms(105)
    assert first_sign_of_failing([*others, held(100, 101, "released")], ms(100), 1.0, 2, 5.0) == ms(101)


def test_labels_do_not_wait_for_what_a_rule_waits_for() -> None:
    """A broken deploy shows by the pause in deletions, half a minute before the first visibility timeout ends."""
    (label,) = broken_deploy("standard", 1).labels
    assert 3 <= (label.detectable_ms - label.from_ms) / 1000 <= 10
    (label,) = mq_hung("standard", 1).labels
    assert 5 <= (label.detectable_ms - label.from_ms) / 1000 <= 10
