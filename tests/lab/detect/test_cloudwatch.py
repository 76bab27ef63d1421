"""CloudWatch's alarms on the examples in its guide, and its age metric on a published experiment."""

from __future__ import annotations

import pytest

from lab.detect.rules.cloudwatch_alarm import Missing, State, alarm_state, firing
from lab.detect.run import Run
from lab.history import Delivery, History
from lab.recording import Recording
from lab.simulation import ms

POINTS = {"0": False, "X": True, "-": None}

# The two tables of "Configuring how CloudWatch alarms treat missing data": oldest datapoint first, M of N, and the state
# with missing data treated as missing, breaching and not breaching.
GUIDE: list[tuple[str, int, int, State, State, State]] = [
    ("0-X-X", 3, 3, "OK", "OK", "OK"),
    ("----0", 3, 3, "OK", "OK", "OK"),
    ("-----", 3, 3, "INSUFFICIENT_DATA", "ALARM", "OK"),
    ("0XX-X", 3, 3, "ALARM", "ALARM", "ALARM"),
    ("--X--", 3, 3, "ALARM", "ALARM", "OK"),
    ("0-X-X", 2, 3, "ALARM", "ALARM", "ALARM"),
    ("00X0X", 2, 3, "ALARM", "ALARM", "ALARM"),
    ("0-X--", 2, 3, "OK", "ALARM", "OK"),
    ("----0", 2, 3, "OK", "ALARM", "OK"),
    ("---X-", 2, 3, "ALARM", "ALARM", "OK"),
]


@pytest.mark.parametrize(("points", "m", "n", "missing", "breaching", "not_breaching"), GUIDE)
def test_missing_data_is_treated_as_the_guide_says(
    points: str, m: int, n: int, missing: State, breaching: State, not_breaching: State
) -> None:
    """Every row of both tables is checked under three of the four treatments (the fourth keeps the state)."""
    detected = [POINTS[p] for p in points]
    ways: tuple[Missing, ...] = ("missing", "breaching", "notBreaching")
    assert [alarm_state(detected, m, n, way) for way in ways] == [missing, breaching, not_breaching]


def test_three_of_five_fires_after_three_minutes_and_resolves_after_three_good_ones() -> None:
    """A value equal to the threshold does not exceed it."""
    ages = [0, 301, 301, 300, 301, 0, 0, 0, 0]
    assert firing([float(a) for a in ages], 300, 3, 5) == [False, False, False, False, True, True, False, False, False]


def received_every_two_minutes(receives: int, queue: str = "orders") -> Run:
    """The published experiment: one message, received again whenever its visibility timeout of two minutes ends."""
    history = History()
    log = history.of(queue)
    log.enter("poison", "visible", ms(0), ms(0))
    for n in range(receives):
        log.deliveries.append(Delivery(queue, "poison", "c", n + 1, ms(120 * n), ms(120 * (n + 1)), "timed_out"))
    if receives == 6:
        log.leave("poison", "dead_lettered", ms(720))
        history.of("orders-dlq").enter("poison", "visible", ms(0), ms(720))
    history.freeze()
    settings = {queue: {"dead_letter_queue": "orders-dlq"}, "orders-dlq": {}}
    return Run("experiment", "standard", Recording("experiment", 1, 1800.0, [], history, settings))


def test_the_age_restarts_as_in_the_published_experiment() -> None:
    """The age restarts when the third and sixth receives end; the dead-letter queue counts from the move."""
    run = received_every_two_minutes(6)
    minutes = [ms(60 * n) for n in range(1, 15)]
    assert [age / 60 for age in run.cloudwatch_age_s("orders", minutes)] == [1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 0, 0]
    assert [age / 60 for age in run.cloudwatch_age_s("orders-dlq", minutes)][-3:] == [0, 1, 2]
    endless = received_every_two_minutes(15)
    ages = endless.cloudwatch_age_s("orders", [ms(60 * n) for n in range(1, 30)])
    assert max(ages) == 300, "the alarm over 5 min never goes off"


def test_a_fifo_queue_does_not_reorder_and_its_age_does_not_restart() -> None:
    """The head keeps its age."""
    run = received_every_two_minutes(9, "orders.fifo")
    assert run.cloudwatch_age_s("orders.fifo", [ms(900)]) == [900]
