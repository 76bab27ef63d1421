"""Numbers in words."""

from __future__ import annotations

import pytest

from sinks.explain.formatting import duration, evidence_words


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


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("last_received_at", 1_795_671_530_524, "2026-11-26T05:38:50Z"),
        ("invisible_until", 1_795_872_357_769, "2026-11-28T13:25:57Z"),
        ("failing_since", 1_795_872_357_769, "2026-11-28T13:25:57Z"),
        ("arrived_at", 10**18, "1000000000000000000"),
        ("final_attempt", False, "no"),
        ("age_s", 159.0, "159.0"),
        ("reason", "held_head", "held_head"),
    ],
)
def test_times_in_the_evidence_can_be_compared_with_a_log(name: str, value: object, words: str) -> None:
    """Nobody reads milliseconds since 1970 at night; a time beyond any calendar is shown as it is."""
    assert evidence_words(name, value) == words
