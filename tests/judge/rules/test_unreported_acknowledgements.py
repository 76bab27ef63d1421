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
def test_counts_of_zero_are_no_acknowledgements() -> None:
    """They remove the messages of five minutes ago. Those since then seem to be held, as before."""
    counts = {"visible": 0, "in_flight": 0, "delayed": 0}
    found = seen(*(ev("queue_state", at, system="activemq", attributes=counts) for at in range(0, UNTIL_S, 60)))
    assert found.snapshots[-1].queues[0].totals["reconciled"]
    assert fired(found) == {"TelemetryPartial"}


@pytest.mark.simulation
def test_one_acknowledgement_shows_that_they_are_reported() -> None:
    """Then consumers that finish nothing are slow."""
    assert "SlowConsumer" in fired(seen(ev("deleted", 2, system="activemq", message_id="m0", consumer="c0")))


@pytest.mark.simulation
def test_consumers_that_the_broker_counts_are_judged() -> None:
    """It would count fewer messages if they had acknowledged any."""
    state = {"prefetch": 1000, "dispatched": 75, "connected": True}
    assert "SlowConsumer" in fired(seen(ev("consumer_state", 60, system="activemq", consumer="c0", attributes=state)))


def seldom_received(dispatched: int) -> Judged:
    """A message every two minutes; the broker counts what its consumer holds every ten seconds."""
    mq = {"system": "activemq", "consumer": "c"}
    state = {"prefetch": 1000, "dispatched": dispatched, "connected": True}
    events = [ev("received", 120 * n + 5, message_id=f"m{n}", **mq) for n in range(5)]
    events += [ev("consumer_state", 10 * n, attributes=state, **mq) for n in range(60)]
    return judged(in_steps(sorted(events, key=lambda e: e["at"]), 5, 600))


@pytest.mark.simulation
def test_a_count_of_the_broker_shows_what_was_acknowledged() -> None:
    """The first one after it: without any acknowledgement, every message of an idle consumer would be held for half a minute."""
    assert not fired(seldom_received(dispatched=0))


@pytest.mark.simulation
def test_a_first_message_that_the_broker_counts_is_held() -> None:
    """It was not acknowledged."""
    assert "SlowConsumer" in fired(seldom_received(dispatched=1))


@pytest.mark.simulation
def test_that_a_consumer_is_connected_says_nothing_of_what_it_holds() -> None:
    """Collectors of some systems report no more. What the broker's own strategies would say is shown, without an alert."""
    state = {"prefetch": 1000, "connected": True}
    found = seen(ev("consumer_state", 60, system="activemq", consumer="c0", attributes=state))
    assert not [change.finding for change in found.changes if change.finding.alerting]


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
