"""The delivery that makes a message a suspect tells nobody yet, if only one of several consumers has failed it before."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.judge.findings.signals import SignalName
from tests.contract.replaying import ev
from tests.judge.driving import Judged, in_steps, judged

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]
QUEUE = "q.fifo"
RECEIVED_S = (100, 130, 160)
THIRD_S = RECEIVED_S[-1]
USUAL_S = 8
BOTH: tuple[SignalName, ...] = ("PoisonMessage", "GroupStuck")


def finished(number: int) -> Events:
    """Return so many messages, one every two seconds, that consumer `b` finishes, in groups of their own."""
    out = []
    for n in range(number):
        about = {"queue": QUEUE, "message_id": f"ok{n}", "group": f"ok{n}"}
        at = 2.0 * n
        out += [ev("sent", at, **about), ev("received", at, receive_count=1, consumer="b", **about)]
        out.append(ev("deleted", at + USUAL_S, consumer="b", **about))
    return out


def received(at_s: float, count: int, consumer: str | None) -> dict[str, Any]:
    """Return a receive of the suspect."""
    by = {"consumer": consumer} if consumer else {}
    return ev("received", at_s, QUEUE, message_id="m", group="g", receive_count=count, **by)


def tried_again(*consumers: str | None, others: int = 60) -> Events:
    """Return a queue in which a message, with one behind it, is received for the third time, and its delivery goes on.

    By default `b` receives it then, which has finished all others; before that, `a` had it.
    """
    state = ev("queue_state", 0, QUEUE, attributes={"kind": "fifo", "visibility_timeout_s": 30})
    sent = [ev("sent", 90 + n, QUEUE, message_id=name, group="g") for n, name in enumerate(("m", "next"))]
    by = consumers or ("a", "a", "b")
    return [
        state,
        *finished(others),
        *sent,
        *(received(at, n, who) for n, (at, who) in enumerate(zip(RECEIVED_S, by, strict=True), 1)),
    ]


def seen(events: Events, until_s: int = 240) -> Judged:
    """Judge every second: the snapshot of a second has its number."""
    return judged(in_steps(sorted(events, key=lambda e: e["at"]), 1, until_s))


def announced(found: Judged, signal: SignalName) -> list[float]:
    """Return when a signal was announced, in seconds."""
    began = [c for c in found.changes if c.finding.key.signal == signal and c.status == "firing" and c.finding.announced]
    return [(c.at_ms - ev("x", 0)["at"]) / 1000 for c in began]


def test_a_third_delivery_that_succeeds_is_shown_and_tells_nobody() -> None:
    """Its group has stood still for more than a minute by then, and flows again."""
    deleted = [ev("deleted", THIRD_S + 6, QUEUE, message_id=message_id, consumer="b") for message_id in ("m", "next")]
    found = seen([*tried_again(), *deleted])
    for signal in BOTH:
        assert announced(found, signal) == []
        (shown,) = (f for f in found.snapshots[THIRD_S + 3].firing if f.key.signal == signal)
        assert shown.severity == "info"
        words = "b has had it for 3 s and may succeed (99% of this queue's messages are finished within 8"
        assert "only a has failed it" in shown.summary
        assert words in shown.summary


@pytest.mark.parametrize("signal", BOTH)
@pytest.mark.parametrize("consumers", [("a", "a", "b"), ("a", "a", "a")], ids=["another consumer", "the same one"])
def test_one_that_takes_longer_than_usual_is_announced(signal: SignalName, consumers: tuple[str, ...]) -> None:
    """It may be the same consumer again, while another one finishes messages."""
    (at_s,) = announced(seen(tried_again(*consumers)), signal)
    assert THIRD_S + USUAL_S <= at_s <= THIRD_S + 1.1 * USUAL_S + 1


def test_one_that_fails_is_announced_at_once() -> None:
    """And stays announced while it is received again and again."""
    failed = ev("released", THIRD_S + 2, QUEUE, message_id="m", group="g", consumer="b")
    found = seen([*tried_again(), failed, received(THIRD_S + 3, 4, "a"), received(THIRD_S + 40, 5, "b")])
    assert announced(found, "PoisonMessage") == [THIRD_S + 2]
    assert all(f.alerting for snapshot in found.snapshots[THIRD_S + 2 :] for f in snapshot.firing)


def test_a_message_that_comes_back_at_once_is_announced_at_its_fourth_delivery() -> None:
    """It fails within a second each time, so whenever it is judged it has just been received."""
    found = seen([*tried_again(), *(received(THIRD_S + n, 3 + n, "b") for n in (1, 2, 3))])
    assert announced(found, "PoisonMessage") == [THIRD_S + 1]


def late() -> Events:
    """Return such a queue in which the deletion of the message was refused once: the work succeeds, but too late."""
    return [*tried_again(), ev("outlived", THIRD_S - 1, QUEUE, message_id="m", group="g", consumer="a")]


def failing() -> Events:
    """Return such a queue in which consumers fail other messages meanwhile."""
    others = [{"queue": QUEUE, "message_id": f"bad{n}", "group": f"bad{n}"} for n in range(30)]
    out = tried_again()
    for n, about in enumerate(others):
        at = 125.0 + n
        out += [ev("sent", at, **about), ev("received", at, receive_count=1, consumer="ab"[n % 2], **about)]
        out.append(ev("released", at + 0.5, consumer="ab"[n % 2], **about))
    return out


def test_one_in_a_queue_whose_deliveries_fail_is_not_waited_for() -> None:
    """It is held back until it is clear whether the queue fails, and then explained by that."""
    (found,) = (f for f in seen(failing()).snapshots[THIRD_S + 2].firing if f.key.signal == "PoisonMessage")
    assert (found.severity, found.alerting, found.folded) == ("warning", True, "QueueFailing")


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(tried_again("a", "b", "a"), id="two consumers failed it"),
        pytest.param(tried_again("a", "a", "a", others=40), id="nobody else works"),
        pytest.param(tried_again(None, None, None), id="consumers unknown"),
        pytest.param(tried_again("a", None, "b"), id="one unknown"),
        pytest.param(tried_again(others=9), id="few were finished"),
        pytest.param(late(), id="finished too late"),
    ],
)
def test_others_are_announced_at_their_third_delivery(events: Events) -> None:
    """More than one consumer failed the message, or that or what is usual is not known; or it is processed, but too late."""
    assert announced(seen(events), "PoisonMessage") == [THIRD_S]
