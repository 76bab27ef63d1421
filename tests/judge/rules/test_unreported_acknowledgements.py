"""ActiveMQ without a collector and without advisories of consumed messages: nothing says that a message was acknowledged."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.core.driving import run_steps
from tests.judge.driving import SETTINGS, Judged, in_steps, judged, judged_reports

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


@pytest.mark.simulation
def test_one_acknowledgement_shows_that_they_are_reported() -> None:
    """Then consumers that finish nothing are slow."""
    assert "SlowConsumer" in fired(seen(ev("deleted", 2, system="activemq", message_id="m0", consumer="c0")))


@pytest.mark.simulation
def test_consumers_that_the_broker_counts_are_judged() -> None:
    """It would count fewer messages if they had acknowledged any."""
    state = {"prefetch": 1000, "dispatched": 75, "connected": True}
    assert "SlowConsumer" in fired(seen(ev("consumer_state", 60, system="activemq", consumer="c0", attributes=state)))


def test_it_is_noticed_as_soon_where_nothing_follows() -> None:
    """A minute after the twentieth receive, though no event arrives by then."""
    events = []
    for n in range(25):
        about = {"system": "activemq", "message_id": f"m{n}"}
        events += [ev("sent", 4 * n, **about), ev("received", 4 * n + 1, consumer="c", **about)]
    tracked = run_steps(in_steps(events, 10, 400), SETTINGS)
    seldom, always = judged_reports(tracked), judged_reports(tracked, every_queue=True)
    bases = [[q.basis for s in found.snapshots for q in s.queues] for found in (seldom, always)]
    assert bases[0] == bases[1]
    assert bases[0].index("partial") == 14
