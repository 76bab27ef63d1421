"""Requests are spread evenly, and none are sent while the API asks to wait."""

from __future__ import annotations

import pytest

from sources.cloudflare.budget import DEFAULT_PAUSE_S, WINDOW_S, Budget
from sources.cloudflare.watched import LONGEST_BACKOFF_S, backoff_s


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock at zero."""
    return Clock()


def spent(budget: Budget) -> int:
    """Return how many requests can be made right now."""
    count = 0
    while budget.take():
        count += 1
    return count


def test_a_burst_and_then_an_even_rate(clock: Clock) -> None:
    """A budget of 300 in five minutes allows 30 at once, then one a second."""
    budget = Budget(300, clock)
    assert spent(budget) == 30
    assert budget.wait_s() == pytest.approx(1.0)
    clock.now = 10
    assert spent(budget) == 10


def test_no_window_exceeds_its_budget_by_more_than_the_burst(clock: Clock) -> None:
    """The burst of 30 is the only excess over 300 per window."""
    budget = Budget(300, clock)
    total = 0
    while clock.now < WINDOW_S:
        total += spent(budget)
        clock.now += 0.5
    assert 300 <= total <= 330


def test_a_pause_is_kept(clock: Clock) -> None:
    """A shorter pause does not end a longer one, an unspecified one takes the default, and none is longer than a window."""
    budget = Budget(3_000, clock)
    budget.pause(20)
    budget.pause(5)
    assert budget.wait_s() == pytest.approx(20)
    clock.now = 20
    assert budget.take()
    budget.pause(None)
    assert budget.wait_s() == pytest.approx(DEFAULT_PAUSE_S)
    budget.pause(1e9)
    assert budget.wait_s() == pytest.approx(WINDOW_S)


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ('"default";r=50;t=30', 0),
        ('"default";r=5;t=30', 30),
        ('"default";r=0;t=12', 12),
        ("nonsense", 0),
        ("", 0),
    ],
)
def test_the_ratelimit_header_is_respected(clock: Clock, header: str, wait_s: float) -> None:
    """When few requests are left, the budget waits for the API's next window."""
    budget = Budget(3_000, clock)
    budget.learn({"ratelimit": header})
    assert budget.wait_s() == pytest.approx(wait_s)


def test_retries_back_off() -> None:
    """Retries back off exponentially with jitter, up to the limit."""
    waits = [backoff_s(30, failures) for failures in range(40)]
    assert 22.5 <= waits[0] <= 30
    assert 45 <= waits[1] <= 60
    assert max(waits) <= LONGEST_BACKOFF_S
    assert min(waits[6:]) >= 0.75 * LONGEST_BACKOFF_S
