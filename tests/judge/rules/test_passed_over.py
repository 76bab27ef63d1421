"""Messages that no selector matches wait although consumers are connected and have room: the signals say so."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.judge.findings.signals import Finding, SignalName
from tests.contract.replaying import ev
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

UNTIL_S = 1_500
PASSED = "1 consumer is connected and has free prefetch capacity, but the broker dispatches nothing to it"


def unmatched(
    *, prefetch: int = 10, connected: bool = True, states_until_s: int = UNTIL_S, one_per_s: float = 0.0, held: int = 0
) -> list[dict[str, Any]]:
    """A consumer takes one kind of message, `one_per_s` after the first minute. A message of another kind comes every 10 s."""
    out = [
        ev("consumer_state", at, consumer="c1", attributes={"connected": True, "prefetch": prefetch}) for at in range(0, 120, 30)
    ]
    state = {"connected": connected, "prefetch": prefetch}
    out += [ev("consumer_state", at, consumer="c1", attributes=state) for at in range(120, states_until_s, 30)]
    times = [2.0 * i for i in range(30)] + [60 + i / one_per_s for i in range(int(1_440 * one_per_s))]
    for i, at in enumerate(times):
        about = {"message_id": f"m{i}"}
        out += [ev("sent", at, **about), ev("received", at, consumer="c1", receive_count=1, **about)]
        out.append(ev("deleted", at + 1, consumer="c1", **about))
    for i in range(held):
        about = {"message_id": f"h{i}"}
        out += [ev("sent", 70, **about), ev("received", 70, consumer="c1", receive_count=1, **about)]
    out += [ev("sent", at, message_id=f"x{at}") for at in range(60, UNTIL_S, 10)]
    return [event | {"system": "activemq"} for event in sorted(out, key=lambda event: event["at"])]


def fired(signal: SignalName, events: list[dict[str, Any]]) -> Finding:
    """Return the finding at the end."""
    [found] = judged(in_steps(events, 30, UNTIL_S)).firing(signal)
    return found


def test_a_stall_of_messages_that_no_selector_matches_says_so() -> None:
    """The consumers need not be started: they are there, and may not have these messages."""
    found = fired("QueueStalled", unmatched())
    assert PASSED in found.evidence["summary"]
    assert "selector" in found.evidence["summary"]
    assert (found.evidence["reason"], found.evidence["consumers_passed_over"]) == ("no_receives", 1)


@pytest.mark.parametrize(
    "why",
    [{"connected": False}, {"prefetch": 1, "held": 1}, {"states_until_s": 150}],
    ids=["it left", "it has no room", "it is no longer reported"],
)
def test_a_stall_for_another_reason_does_not(why: dict[str, Any]) -> None:
    found = fired("QueueStalled", unmatched(**why))
    assert "selector" not in found.evidence["summary"]
    assert "consumers_passed_over" not in found.evidence


def test_a_queue_that_lags_by_messages_that_no_selector_matches_says_so() -> None:
    """Its consumer finishes one a second and is not slow."""
    found = fired("QueueLagging", unmatched(one_per_s=0.5))
    assert found.evidence["cause"] == "1 consumer has free prefetch capacity, but no selector matches the waiting messages"
    assert found.evidence["consumers_passed_over"] == 1


def test_where_receives_are_not_reported_nothing_is_said_of_selectors() -> None:
    """The broker counts ten messages in flight: the window is full, and its consumer hangs. No dispatch advisory says so."""
    events = [event for event in unmatched() if event["type"] != "received"]
    for at in range(0, UNTIL_S, 30):
        waiting = max(0, at - 60) // 10
        counted = {"visible": max(0, waiting - 10), "in_flight": min(10, waiting)}
        events.append(ev("queue_state", at, attributes=counted) | {"system": "activemq"})
    found = fired("QueueStalled", sorted(events, key=lambda event: event["at"]))
    assert "selector" not in found.evidence["summary"]
    assert "consumers_passed_over" not in found.evidence
