"""How long consumers with a prefetch window take to finish the next message."""

from __future__ import annotations

from streaming.judge.turns import TURNS_KEPT_MS, longest_turn_ms, turns_with

NOW = 1_000_000


def test_a_turn_ends_when_its_consumer_finishes_a_message() -> None:
    """Of three consumers at work, one has finished nothing since, and one never did."""
    turns = turns_with({}, {"a": NOW - 4_000, "b": NOW - 9_000, "c": NOW}, {"a": NOW, "b": NOW - 10_000}, NOW)
    assert list(turns.values()) == [NOW]
    longest = longest_turn_ms(turns)
    assert longest is not None
    assert 4_000 <= longest <= 6_000


def test_the_longest_of_a_day_counts() -> None:
    """An earlier one is forgotten."""
    turns = turns_with({}, {"a": NOW - 60_000}, {"a": NOW}, NOW)
    later = NOW + TURNS_KEPT_MS // 2
    turns = turns_with(turns, {"a": later - 1_000}, {"a": later}, later)
    assert (longest_turn_ms(turns) or 0) >= 60_000
    assert (longest_turn_ms(turns_with(turns, {}, {}, NOW + TURNS_KEPT_MS)) or 0) < 2_000
    assert longest_turn_ms(turns_with(turns, {}, {}, NOW + 2 * TURNS_KEPT_MS)) is None
