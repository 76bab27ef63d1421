"""Pauses between the attempts of something that keeps failing."""

from __future__ import annotations

import pytest

from queuewatch.backoff import Backoff


@pytest.mark.parametrize(("chance", "pauses_s"), [(1.0, [1, 2, 4, 5, 5]), (0.5, [0.5, 1, 2, 2.5, 2.5])])
def test_pauses_double_up_to_the_limit(monkeypatch: pytest.MonkeyPatch, chance: float, pauses_s: list[float]) -> None:
    """Each is shortened by up to a half, whatever the others were shortened by."""
    monkeypatch.setattr("random.uniform", lambda low, high: min(max(chance, low), high))
    backoff = Backoff(1.0, 5.0)
    assert [backoff.pause_s() for _ in pauses_s] == pauses_s
    backoff.reset()
    assert backoff.pause_s() == pauses_s[0]
