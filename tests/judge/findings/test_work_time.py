"""How long work takes is written in the unit that people would use."""

import pytest

from streaming.judge.findings.words import per_second, work_time


@pytest.mark.parametrize(
    ("milliseconds", "written"),
    [(0, "0 ms"), (13.4, "13 ms"), (999, "999 ms"), (1_000, "1 s"), (4_249, "4.25 s"), (119_999, "120 s"), (120_000, "2 min")],
)
def test_work_time(milliseconds: float, written: str) -> None:
    """Milliseconds below a second, seconds below two minutes."""
    assert work_time(milliseconds) == written


@pytest.mark.parametrize(("rate", "written"), [(0.00541, "0.0054"), (8.33, "8.3"), (9.97, "10"), (150.2, "150"), (2800, "2800")])
def test_a_rate_has_no_exponent(rate: float, written: str) -> None:
    """150 messages a second are not written as 1.5e+02."""
    assert per_second(rate) == written
