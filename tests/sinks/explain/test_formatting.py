"""Numbers in words."""

from __future__ import annotations

import pytest

from sinks.explain.formatting import duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"), (0.0004, "1 ms"), (0.019, "19 ms"),
        (0.42, "0.4 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.6, "1 min"), (61, "1 min 1 s"),
        (3_600, "1 h"), (3_605, "1 h"), (3_665, "1 h 1 min"), (90_000, "1 d 1 h"), (86_460, "1 d"),
        (-5, "−5 s"),
    ],
)  # fmt: skip
def test_durations_have_two_units_at_most(seconds: float, words: str) -> None:
    """Durations are precise enough to act on and short enough to read."""
    assert duration(seconds) == words
