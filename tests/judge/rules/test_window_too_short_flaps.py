"""WindowTooShort while the deliveries that outlive their window are near its limits."""

from __future__ import annotations

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import in_steps, judged

HOUR_S = 3_600


def changes(every_s: int, bad_every: int, bad_until_s: int, until_s: int) -> list[tuple[int, str]]:
    """A message every so often; one in `bad_every` is worked on for 45 s, beyond its window of 10 s, until a time."""
    events = []
    for n, at in enumerate(range(0, until_s - 60, every_s)):
        about = {"message_id": f"m{n}", "consumer": "w"}
        events += [ev("sent", at, message_id=about["message_id"])]
        events += [ev("received", at + 0.5, receive_count=1, invisible_until=T0 + at * 1000 + 10_500, **about)]
        events += [ev("deleted", at + (45 if n % bad_every == 0 and at < bad_until_s else 3), **about)]
    found = judged(in_steps(events, 10, until_s))
    return [(at // 1000, status) for at, signal, status, _ in found.changes_seen() if signal == "WindowTooShort"]


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("every_s", "bad_every"),
    [pytest.param(20, 11, id="four or five of 45"), pytest.param(4, 49, id="now and then a fiftieth")],
)
def test_it_fires_once_while_deliveries_are_near_the_limit(every_s: int, bad_every: int) -> None:
    """It lasts until clearly fewer outlive their window, and ends when none does any more."""
    seen = changes(every_s, bad_every, HOUR_S, 2 * HOUR_S)
    assert [status for _, status in seen] == ["firing", "resolved"], seen
    assert HOUR_S < seen[1][0] <= HOUR_S + 900 + 60


@pytest.mark.simulation
def test_four_deliveries_are_too_few_to_fire() -> None:
    """Fewer are enough only once it fires."""
    assert changes(20, 14, HOUR_S, HOUR_S) == []
