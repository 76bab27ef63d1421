"""QueueSilent where only consumers report: that nothing is received may be due to them, and only the counts tell."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import Judged, in_steps, judged

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]
GONE_S, UNTIL_S = 2_400, 2_760


def received(until_s: int = GONE_S) -> Events:
    """Return the reports of consumers that receive a message a second and finish it at once."""
    return [
        event
        for at in range(until_s)
        for event in (
            ev("received", at, message_id=f"m{at}", receive_count=1, consumer="w", sent_at=T0 + at * 1000),
            ev("deleted", at + 0.5, message_id=f"m{at}", consumer="w"),
        )
    ]


def counted(visible: dict[int, int]) -> Events:
    """Return a poll a minute: no message, except from some seconds on."""
    polls = []
    for at in range(30, UNTIL_S, 60):
        waiting = max((n for since, n in visible.items() if since <= at), default=0)
        polls.append(ev("queue_state", at, attributes={"visible": waiting, "in_flight": 0, "visibility_timeout_s": 30}))
    return polls


def silent(events: Events) -> list[tuple[float, str]]:
    """Return when QueueSilent fired, in seconds, and its words."""
    found: Judged = judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, UNTIL_S))
    changes = [c for c in found.changes if c.finding.key.signal == "QueueSilent" and c.status == "firing"]
    return [((c.at_ms - T0) / 1000, c.finding.evidence["summary"]) for c in changes]


def test_consumers_that_are_replaced_do_not_make_a_queue_silent() -> None:
    """A deployment of two minutes: the first count after it began is a minute late, and shows nothing that waits."""
    back = [{**event, "at": event["at"] + 120_000 + GONE_S * 1000} for event in received(60)]
    for event in back:
        event["message_id"] += "-later"
    assert silent([*received(), *counted({GONE_S + 90: 90, GONE_S + 150: 0}), *back]) == []


def test_a_queue_is_silent_once_the_counts_show_that_nothing_waits() -> None:
    """A count that may be 90 s late shows that nothing came in the minute after the last message."""
    ((at, words),) = silent([*received(), *counted({})])
    assert GONE_S + 150 <= at <= GONE_S + 220
    assert words.endswith("Check its producers.")


def test_without_counts_the_consumers_may_be_the_reason() -> None:
    """Nothing shows whether messages wait: the words name both."""
    ((at, words),) = silent(received())
    assert at <= GONE_S + 70
    assert words.endswith("check its producers and its consumers.")
