"""A queue in which a delivery failed a while ago is judged every few seconds, not in every step, until that no longer counts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.driving import event
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

UNTIL_S = 2_400
FAILED_AT_S = 1_210


def work(at_s: int, *, failed: bool) -> list[dict[str, Any]]:
    """A message is processed, at the second delivery if the first one failed."""
    at, about = 1_000 * at_s, {"message_id": f"m{at_s}", "consumer": "w"}
    first = event("received", at + 100, receive_count=1, **about)
    again = [event("released", at + 200, **about), event("received", at + 300, receive_count=2, **about)] if failed else []
    return [event("sent", at, message_id=f"m{at_s}"), first, *again, event("deleted", at + 400, **about)]


def test_it_is_judged_as_often_as_samples_are_taken(evaluated: list[tuple[int, str]]) -> None:
    """A message a minute. Once the failure has left all windows, the longest of fifteen minutes, it is judged as before."""
    events = [one for at_s in range(10, UNTIL_S, 60) for one in work(at_s, failed=at_s == FAILED_AT_S)]
    said = judged(in_steps(events, 1, UNTIL_S))
    assert said.changes_seen() == []
    before, after, later = (
        sum(begin <= at < begin + 240_000 for at, _ in evaluated) for begin in (900_000, 1_000 * FAILED_AT_S, 2_150_000)
    )
    assert before == later <= 30
    assert after <= 90
