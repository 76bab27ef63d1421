"""A value and its limit: when the rule fires, and how near it is before."""

from __future__ import annotations

from math import inf

import pytest

from streaming.core.thresholds import Thresholds
from streaming.judge.findings.measured import Measured
from streaming.judge.findings.measures import collapse, coverage, failing, outlived, retries, silence

LIMITS = Thresholds()


@pytest.mark.parametrize(
    ("measured", "reached", "nearness", "why"),
    [
        (Measured(240, 300, "milliseconds"), False, 0.8, "below"),
        (Measured(300, 300, "milliseconds"), True, 1.0, "at the limit"),
        (Measured(300, 300, "milliseconds", at_limit=False), False, 1.0, "a rule that asks for more than its limit"),
        (Measured(900, 300, "milliseconds"), True, 1.0, "beyond"),
        (Measured(-5, 300, "milliseconds"), False, 0.0, "a clock that ran back"),
        (Measured(0, 0, "milliseconds"), True, 1.0, "no limit at all"),
        (Measured(50, 20, "milliseconds", falling=True, healthy=100), False, 0.625, "what is left falls"),
        (Measured(20, 20, "milliseconds", falling=True, healthy=100), False, 1.0, "as much left as the limit is enough"),
        (Measured(19, 20, "milliseconds", falling=True, healthy=100), True, 1.0, "less is not"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_reached_and_near(measured: Measured, reached: bool, nearness: float, why: str) -> None:
    """The same two numbers answer both questions."""
    assert measured.reached is reached, why
    assert measured.nearness == pytest.approx(nearness), why


@pytest.mark.parametrize(
    ("ratio", "reached", "nearness"),
    [(0.89, True, 1), (0.9, False, 1), (0.95, False, 0.5), (1.0, False, 0), (1.05, False, 0.5), (1.1, False, 1), (1.11, True, 1)],
)
def test_coverage_has_a_limit_on_either_side(ratio: float, reached: bool, nearness: float) -> None:
    """Less than 90 % or more than 110 %, not at them."""
    measured = coverage(ratio, Thresholds())
    assert measured.reached is reached
    assert measured.nearness == pytest.approx(nearness)


@pytest.mark.parametrize(
    ("measured", "shown", "reached", "why"),
    [
        (failing(20, 0.5, 0.5, LIMITS), (0.5, 0.5), True, "twenty ended, half of them without a settlement"),
        (failing(20, 0.45, 0.5, LIMITS), (0.45, 0.5), False, "fewer than half"),
        (failing(19, 0.9, 0.5, LIMITS), (19, 20), False, "too few to tell"),
        (outlived(5, 250, LIMITS), (0.02, 0.02), True, "five, and a fiftieth"),
        (outlived(4, 100, LIMITS), (4, 5), False, "too few to tell"),
        (outlived(6, 400, LIMITS), (0.015, 0.02), False, "few of many"),
        (outlived(5, 0, LIMITS), (0, 0.02), False, "nothing was delivered in the window"),
        (retries(5, 10, LIMITS), (0.5, 0.5), True, "half of ten"),
        (retries(4, 10, LIMITS), (0.4, 0.5), False, "fewer than half"),
        (retries(8, 9, LIMITS), (9, 10), False, "too few to tell"),
        (silence(0, 1000, 20, LIMITS), (1000, 1000), True, "twenty were due"),
        (silence(0, 1000, 10, LIMITS), (1000, 2000), False, "ten were due: as long again"),
        (silence(0, 1000, 0, LIMITS), (1000, inf), False, "none was due"),
        (collapse(0, 300_000, LIMITS), (300_000, 300_000), True, "five minutes"),
        (collapse(0, 299_999, LIMITS), (299_999, 300_000), False, "not yet"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_of_several_conditions_the_farthest_is_measured(
    measured: Measured, shown: tuple[float, float], reached: bool, why: str
) -> None:
    """A rule fires when all its conditions hold, so the one farthest from its limit determines how near it is."""
    assert (measured.value, measured.limit) == shown, why
    assert measured.reached is reached, why
