"""Burrow's rules on Burrow's own cases: `tests` of core/internal/evaluator/caching_test.go, with their numbers there."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from lab.detect.rules import burrow
from lab.detect.rules.burrow import Commit


class Case(NamedTuple):
    """Offsets with times in ms and lags, and the expected result of each rule and of all together."""

    number: int
    offsets: list[tuple[int, int, int | None]]
    broker: list[int]
    lag: int
    now_s: int
    allowed: int
    always_behind: bool
    rewound: int
    stopped: bool
    stalled: bool
    not_catching_up: bool
    recently_zero: bool
    status: str


def at_100s(*points: tuple[int, int]) -> list[tuple[int, int, int | None]]:
    """Return offsets and lags at 100 s, 200 s and so on."""
    return [(offset, 100_000 * n, lag) for n, (offset, lag) in enumerate(points, start=1)]


GROWING = at_100s((1000, 0), (2000, 50), (3000, 100), (4000, 150), (5000, 200))
BEHIND = at_100s((1000, 50), (2000, 100), (3000, 150), (4000, 200), (5000, 250))
STUCK_FROM_ZERO = at_100s((1000, 0), (1000, 50), (1000, 100), (1000, 150), (1000, 200))
STUCK = at_100s((1000, 100), (1000, 150), (1000, 200), (1000, 250), (1000, 300))
RECOVERED = at_100s((1000, 100), (2000, 150), (3000, 200), (2000, 1250), (4000, 300))
BACK = at_100s((1000, 100), (2000, 150), (3000, 200), (2000, 1250), (2500, 300))
STAMPS = (618356, 619362, 620366, 621367, 622370, 623373, 624378, 625379, 626383, 627383, 628383, 629388, 630391, 631394, 632397)
CAUGHT_UP: list[tuple[int, int, int | None]] = [(792748079 + n, 1512224000000 + at, 0) for n, at in enumerate(STAMPS)]
GAPS: list[tuple[int, int, int | None]] = [
    (500 * n, 50_000 * n, None if n % 2 else 50 * (n // 2 - 1)) for n in range(2, 12)
]  # fmt: skip
AHEAD = [792749024, 792749000, 792748800, 792748600, 792748500]
RECENT = [792748094, 792748093, 792748093, 792748093]

CASES = [
    Case(0, GROWING, [5200], 200, 600, 0, False, -1, False, False, True, False, "OK"),
    Case(1, GROWING, [5200], 200, 900, 0, False, -1, False, False, True, False, "OK"),
    Case(2, GROWING, [5200], 200, 1000, 0, False, -1, True, False, True, False, "STOP"),
    Case(3, BEHIND, [5250], 250, 1000, 0, True, -1, True, False, True, False, "STOP"),
    Case(4, STUCK_FROM_ZERO, [1200], 200, 600, 0, False, -1, False, True, True, False, "OK"),
    Case(5, STUCK, [1300], 300, 600, 0, True, -1, False, True, True, False, "STALL"),
    Case(6, at_100s(*[(1000, 100)] * 5), [1100], 100, 600, 0, True, -1, False, True, True, False, "STALL"),
    Case(7, RECOVERED, [4300], 300, 600, 0, True, 3, False, False, False, False, "OK"),
    Case(8, BEHIND, [5250], 0, 1000, 0, True, -1, True, False, True, False, "OK"),
    Case(9, CAUGHT_UP, AHEAD, 931, 1512224650, 0, False, -1, True, False, True, False, "STOP"),
    Case(10, CAUGHT_UP, RECENT, 1, 1512224650, 0, False, -1, True, False, True, True, "OK"),
    Case(11, GAPS, [5700], 200, 600, 0, False, -1, False, False, True, False, "OK"),
    Case(12, at_100s((1000, 2), (2000, 1), (2000, 1)), [2001], 1, 550, 1, False, -1, True, False, False, False, "OK"),
    Case(13, STUCK, [1300], 300, 600, 99, True, -1, False, True, True, False, "STALL"),
    Case(14, RECOVERED, [4300], 300, 600, 99, True, 3, False, False, False, False, "OK"),
    Case(15, BACK, [4300], 300, 600, 0, True, 3, False, False, False, False, "REWIND"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"case {case.number}")
def test_every_rule_agrees_with_burrow(case: Case) -> None:
    """Each rule alone and the status from all rules in order agree."""
    commits = [Commit(*point) for point in case.offsets]
    assert burrow.always_behind(commits, case.allowed) == case.always_behind
    assert burrow.rewound(commits) == case.rewound
    assert burrow.stopped(commits, case.now_s) == case.stopped
    assert burrow.stalled(commits) == case.stalled
    assert burrow.not_catching_up(commits) == case.not_catching_up
    assert burrow.recently_zero(commits, case.broker) == case.recently_zero
    assert burrow.status(commits, case.broker, case.lag, case.now_s, case.allowed) == case.status
