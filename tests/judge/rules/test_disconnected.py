"""A consumer that disconnects gives back what it held: that is no failing consumer, however its releases are reported."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

MQ = {"system": "activemq", "queue": "work"}
HELD = 30
LEFT_S = 300.0


def mq(kind: str, at_s: float, message: str, consumer: str, count: int = 1) -> dict[str, Any]:
    """Build an event of one message of the queue."""
    event = {**ev(kind, at_s, message_id=message, consumer=consumer), **MQ}
    return event | {"receive_count": count} if kind == "received" else event


def others(until_s: float) -> list[dict[str, Any]]:
    """Two consumers finish a message every two seconds."""
    events = []
    for n in range(int(until_s)):
        name, who = f"m{n}", f"w{n % 2}"
        events += [mq("sent", n, name, "p"), mq("received", n + 0.1, name, who), mq("deleted", n + 0.9, name, who)]
    return events


def fired(events: list[dict[str, Any]], until_s: int) -> set[str]:
    """Return the names of the signals that fired."""
    steps = in_steps(sorted(events, key=lambda e: e["at"]), 5, until_s)
    return {c.finding.key.signal for c in judged(steps).changes if c.status == "firing"}


def given_back() -> list[dict[str, Any]]:
    """A consumer with a full prefetch window disconnects; what it gives back is reported over eight seconds.

    Another one failed once before, so that results are compared with those in the middle of that.
    """
    events = [mq("received", 286, "m286", "w0"), mq("released", 287, "m286", "w0"), mq("received", 288, "m286", "w1", 2)]
    for n in range(HELD):
        name, left_s = f"held{n}", LEFT_S + 8 * n / HELD
        events += [mq("sent", LEFT_S - 20, name, "p"), mq("received", LEFT_S - 20 + n / 10, name, "gone")]
        events += [mq("released", left_s, name, "gone"), mq("received", left_s + 0.5, name, f"w{n % 2}", 2)]
        events.append(mq("deleted", left_s + 1, name, f"w{n % 2}"))
    return events


def test_a_disconnected_consumer_does_not_page() -> None:
    """It failed all of its deliveries within seconds, and none after that."""
    assert "QueueFailing" not in fired(others(400) + given_back(), 400)


def test_a_consumer_that_goes_on_failing_pages() -> None:
    """It releases every message that it receives, two seconds later, and the others finish theirs."""
    events = others(400)
    for n in range(70):
        name, at_s = f"bad{n}", LEFT_S + n
        events += [mq("sent", at_s, name, "p"), mq("received", at_s, name, "broken"), mq("released", at_s + 2, name, "broken")]
        events += [mq("received", at_s + 2.5, name, f"w{n % 2}", 2), mq("deleted", at_s + 3, name, f"w{n % 2}")]
    assert "QueueFailing" in fired(events, 380)


def test_what_a_consumer_gave_back_unread_is_not_held_against_it_minutes_later() -> None:
    """Of its other deliveries fewer are looked at by then. The telemetry says of it no more than that it is gone."""
    state: dict[str, Any] = {"prefetch": 100, "connected": False, "dispatched": 0}
    events: list[dict[str, Any]] = [{**ev("consumer_state", 600, consumer="gone", attributes=state), **MQ}]
    held_s, returned = 80, 0
    for n in range(1_000):
        name, who, end_s = f"m{n}", "gone" if n % 2 == 0 and n < 600 else "stays", n + held_s
        events += [mq("sent", n, name, "p"), mq("received", n + 0.1, name, who)]
        if who == "gone" and end_s >= 600:
            returned += 1
            again_s = 600 + 0.7 * returned
            events += [mq("released", 600, name, who), mq("received", again_s, name, "stays")]
            who, end_s = "stays", end_s + 20
        # A few dead letters keep the results of the minutes before.
        events.append(mq("dead_lettered" if n in (420, 460, 480, 600, 660, 720) else "deleted", end_s, name, who))
    assert "QueueFailing" not in fired([e | {"to_queue": "dead"} if e["type"] == "dead_lettered" else e for e in events], 1_000)


WINDOW = 100
Wire = dict[str, Any]


def killed(times: int, every_s: int = 60) -> list[Wire]:
    """A consumer takes a backlog into its prefetch window, finishes two messages and is killed; the last one finishes the rest.

    The broker counts a delivery of each message that it held.
    """
    names = [f"m{n}" for n in range(WINDOW)]
    events = [mq("sent", n / 1_000, name, "p") for n, name in enumerate(names)]
    for life in range(times + 1):
        began_s, who = 1 + life * every_s, f"ID:app-{life}:1:1"
        state: Wire = {"connected": True, "prefetch": 1_000, "connected_at": T0 + began_s * 1000}
        events += [mq("received", began_s, name, who, life + 1) for name in names]
        finished = 2 if life < times else len(names)
        events += [mq("deleted", began_s + 2 * (n + 1), name, who) for n, name in enumerate(names[:finished])]
        names = names[finished:]
        events.append({**ev("consumer_state", began_s, consumer=who, attributes=state), **MQ})
        if life < times:
            left_s = began_s + 30
            events += [mq("released", left_s, name, who) for name in names]
            left: Wire = {"connected": False, "removed_at": T0 + left_s * 1000, "returned": len(names)}
            events.append({**ev("consumer_state", left_s, consumer=who, attributes=state | left), **MQ})
    return events


def test_a_window_that_is_given_back_was_not_failed() -> None:
    """A hundred messages come back, and two were finished: still only one was worked on."""
    assert "QueueFailing" not in fired(killed(1), 300)


def test_of_a_window_that_came_back_again_and_again_the_first_message_is_suspect() -> None:
    """The consumer is killed three times; the others were never worked on, and are finished in the end."""
    steps = in_steps(sorted(killed(3), key=lambda e: e["at"]), 5, 500)
    changes = [c for c in judged(steps).changes if c.status == "firing"]
    assert "QueueFailing" not in {c.finding.key.signal for c in changes}
    suspects = [c.finding for c in changes if c.finding.key.signal == "PoisonMessage"]
    announced = {finding.key.message_id for finding in suspects if finding.folded is None}
    assert announced
    assert announced <= {"m4", "m6"}
    assert {finding.folded for finding in suspects if finding.key.message_id not in announced} == {"PoisonMessage"}
