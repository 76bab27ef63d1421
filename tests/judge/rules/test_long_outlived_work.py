"""Work that outlasts its window may take longer than the period over which WindowTooShort counts deliveries."""

from __future__ import annotations

from tests.contract.replaying import ev
from tests.judge.driving import SETTINGS, judged


def test_deliveries_that_began_before_the_period_count() -> None:
    """Six messages are worked on for twenty minutes, with a window of two, and nothing else is received."""
    began = [ev("queue_state", 0, attributes={"visibility_timeout_s": 120})]
    for n in range(6):
        began += [ev("sent", n, message_id=f"m{n}"), ev("received", 10 + n, message_id=f"m{n}", receive_count=1, consumer="w")]
    ended = [ev("deleted", 1_210 + n, message_id=f"m{n}", consumer="w") for n in range(6)]
    (found,) = judged([(20_000, began), (1_190_000, []), (1_220_000, ended), (1_221_000, [])], SETTINGS).firing("WindowTooShort")
    assert (found.evidence["outlived_deliveries"], found.evidence["deliveries"]) == (6, 6)
    assert found.evidence["outlived_ratio"] == 1
