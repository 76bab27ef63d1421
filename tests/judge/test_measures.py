"""A value beside its limit: when its rule fires, and how near it is before."""

from __future__ import annotations

import pytest

from streaming.core.thresholds import Thresholds
from streaming.judge.measures import Measured, coverage


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
    """The same two numbers answer both."""
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
