"""Durations and times of the command line."""

from __future__ import annotations

import pytest

from streaming.replay.times import parse_duration_ms


@pytest.mark.parametrize("text", ["1.001s", "1.001", "0.0166835m", "1s0.001s"])
def test_a_fraction_of_a_duration_is_exact_to_the_millisecond(text: str) -> None:
    """The product of a fraction may be a little less than the whole number it stands for."""
    assert parse_duration_ms(text) == 1_001


def test_a_part_of_a_millisecond_does_not_count() -> None:
    assert parse_duration_ms("1.9ms") == 1
