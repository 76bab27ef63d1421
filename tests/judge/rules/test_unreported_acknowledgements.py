"""ActiveMQ without a collector and without advisories of consumed messages: nothing says that a message was acknowledged."""

from __future__ import annotations

from typing import Any

from tests.contract.replaying import ev
from tests.judge.driving import Judged, in_steps, judged

UNTIL_S = 1_500


def seen(*more: dict[str, Any]) -> Judged:
    """A message every ten seconds, received by two consumers in turn."""
    events = list(more)
    for n in range(UNTIL_S // 10):
        about = {"system": "activemq", "message_id": f"m{n}"}
        events += [ev("sent", 10 * n, **about), ev("received", 10 * n + 1, consumer=f"c{n % 2}", **about)]
    return judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, UNTIL_S))


def fired(found: Judged) -> set[str]:
    """Return the signals that fired at any time."""
    return {signal for _, signal, status, _ in found.changes_seen() if status == "firing"}


def test_consumers_are_not_blamed_for_what_nobody_reports() -> None:
    """All messages seem to be held for ever. The basis says what is missing."""
    found = seen()
    assert not fired(found)
    queue = found.snapshots[-1].queues[0]
    assert (queue.basis, queue.basis_reason) == ("partial", "deletions of q are not seen")
    assert "queuewatch doctor activemq" in queue.next_step


def test_one_acknowledgement_shows_that_they_are_reported() -> None:
    """Then consumers that finish nothing are slow."""
    assert "SlowConsumer" in fired(seen(ev("deleted", 2, system="activemq", message_id="m0", consumer="c0")))


def test_consumers_that_the_broker_counts_are_judged() -> None:
    """It would count fewer messages if they had acknowledged any."""
    state = {"prefetch": 1000, "dispatched": 75, "connected": True}
    assert "SlowConsumer" in fired(seen(ev("consumer_state", 60, system="activemq", consumer="c0", attributes=state)))
