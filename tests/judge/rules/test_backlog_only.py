"""Evidence of gone consumers where a broker counts its backlog but does not report what is in flight (Cloudflare)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import Judged, in_steps, judged

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]
CF = {"system": "cloudflare_queues"}
GONE_S = 300


def counted(backlog: list[int], **more: Any) -> Events:
    """A poll every 30 s."""
    return [
        ev("queue_state", 30 * i, attributes={"visible": n, "in_flight": None if n else 0, **more}, **CF)
        for i, n in enumerate(backlog)
    ]


def worked(until_s: int, every_s: int = 5) -> Events:
    """Return the reports of an instrumented Worker: deliveries and acknowledgements, no sends."""
    out = []
    for i in range(until_s // every_s):
        about = {"message_id": f"m{i}", "consumer": "worker", **CF}
        sent_at = ev("x", every_s * i)["at"]
        out.append(ev("received", every_s * i + 1, receive_count=1, sent_at=sent_at, invisible_until=sent_at + 900_000, **about))
        out.append(ev("deleted", every_s * i + 2, **about))
    return out


def seen(events: Events, until_s: int = 900) -> Judged:
    """Judged every ten seconds."""
    return judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, until_s))


def stalled(found: Judged) -> list[float]:
    """Return when QueueStalled fired, in seconds."""
    return [at / 1000 for at, signal, status, _ in found.changes_seen() if (signal, status) == ("QueueStalled", "firing")]


GROWING = [1] * 10 + [1 + 6 * i for i in range(21)]


def test_consumers_that_are_gone_fire_within_six_minutes() -> None:
    """Batches and acknowledgements stop, and the backlog grows; the signal ends when they resume."""
    found = seen([*worked(GONE_S), *counted(GROWING)])
    (reported,) = stalled(found)
    assert GONE_S + 240 < reported <= GONE_S + 360
    assert found.snapshots[-1].queues[0].status == "stopped"
    back = ev("received", 890, message_id="m99", receive_count=1, consumer="worker", **CF)
    again = seen([*worked(GONE_S), *counted(GROWING), back])
    assert [s for at, name, s, _ in again.changes_seen() if name == "QueueStalled"] == ["firing", "resolved"]


def delayed_retries() -> Events:
    """Three messages wait an hour for their retry."""
    return [
        e
        for i in range(3)
        for e in (
            ev("received", 290, message_id=f"r{i}", receive_count=1, consumer="worker", **CF),
            ev("released", 295, message_id=f"r{i}", visible_at=T0 + 3_900_000, **CF),
        )
    ]


def with_oldest(backlog: list[int], oldest_s: list[int | None]) -> Events:
    """Return polls that also report when the oldest message was sent, in seconds from the start."""
    events = counted(backlog)
    for event, at_s in zip(events, oldest_s, strict=True):
        event["attributes"]["oldest_sent_at"] = None if at_s is None else T0 + 1000 * at_s
    return events


OVERLOADED = [max(25 * i, 0) for i in range(31)]
"""The send time of the oldest message at each poll: consumers fall behind by a sixth, and go on."""


def test_a_worker_that_reports_no_more_but_takes_the_oldest_messages_is_not_gone() -> None:
    """Deployed without its wrapper, or with a wrong token: the backlog grows, but its oldest message leaves between polls."""
    assert stalled(seen([*worked(GONE_S), *with_oldest(GROWING, [*OVERLOADED])])) == []
    standing = [min(at, OVERLOADED[10]) for at in OVERLOADED]
    (reported,) = stalled(seen([*worked(GONE_S), *with_oldest(GROWING, [*standing])]))
    assert reported <= GONE_S + 360


def test_messages_that_expire_are_not_taken() -> None:
    """The consumers have been gone for longer than the retention: the oldest messages expire."""
    events = [*worked(GONE_S), *with_oldest([1] * 10 + [200 + i for i in range(21)], [*OVERLOADED])]
    for event in events:
        if event["type"] == "queue_state":
            event["attributes"]["retention_s"] = 60
    assert stalled(seen(events))


def test_consumers_have_time_to_begin_after_a_pause() -> None:
    """Deliveries are reported half a minute after the collector reads that the queue is resumed."""
    growing = [1] * 10 + [1 + 6 * i for i in range(51)]
    polls = counted(growing)
    for event in polls[12:]:
        event["attributes"]["paused"] = event["at"] < T0 + 1_200_000
    resumed = [{**e, "at": e["at"] + 1_230_000} for e in worked(GONE_S)]
    assert stalled(seen([*worked(GONE_S), *polls, *resumed], 1500)) == []
    (reported,) = stalled(seen([*worked(GONE_S), *polls], 1800))
    assert 1200 + 240 < reported <= 1200 + 360


def test_where_only_a_backlog_is_counted_the_basis_is_the_counts() -> None:
    """A queue without instrumentation was empty once, and has had a backlog for half an hour."""
    found = seen(with_oldest([0] * 10 + [1 + 6 * i for i in range(61)], [None] * 10 + [30 * i for i in range(61)]), 2100)
    (queue,) = found.snapshots[-1].queues
    assert (queue.basis, queue.status) == ("counts", "ok")


def test_a_backlog_of_which_nothing_is_taken_is_not_ok() -> None:
    """Nobody reports deliveries, and the oldest message stays: consumers may be gone, or it is delayed."""
    found = seen(with_oldest([0] * 10 + [1 + 6 * i for i in range(61)], [None] * 10 + [300] * 61), 2100)
    (queue,) = found.snapshots[-1].queues
    assert (queue.basis, queue.status) == ("counts", "unknown")
    assert found.firing("QueueStalled") == []


def dead_letters(depths: list[int]) -> Events:
    """Return the polls of a queue and of its dead-letter queue, of which nobody else reports."""
    source = counted([0] * len(depths), kind="standard", dead_letter_queue="orders-dlq")
    return source + [{**e, "queue": "orders-dlq"} for e in counted(depths, kind="standard")]


@pytest.mark.parametrize("reported", [False, True], ids=["counted", "reported"])
def test_dead_letters_that_only_the_depth_shows_are_announced_once(reported: bool) -> None:
    """The depth of the dead-letter queue rises by three; their moves may be reported too."""
    about: dict[str, Any] = {"queue": "orders", "to_queue": "orders-dlq", "receive_count": 4, **CF}
    moves = [ev("dead_lettered", 290, message_id=f"d{i}", **about) for i in range(3)] if reported else []
    found = [c for c in seen(dead_letters([0] * 10 + [3] * 21) + moves).changes if c.finding.key.signal == "DeadLetterArrived"]
    fired = [c.finding.evidence.get("at_least", 1) for c in found if c.status == "firing"]
    assert fired == ([1, 1, 1] if reported else [3])
    assert [c.status for c in found].count("resolved") == len(fired)


def test_a_queue_whose_messages_only_its_broker_sees_is_not_silent() -> None:
    """A Worker that reports no more: its deliveries stop, but every poll counts messages that nobody reported."""
    gone_s, until_s = 2400, 3600
    polls = counted([2 + i % 3 for i in range(until_s // 30)])
    assert [c for c in seen([*worked(gone_s), *polls], until_s).changes_seen() if c[1] == "QueueSilent"] == []
    empty = counted([1] * (gone_s // 30) + [0] * ((until_s - gone_s) // 30))
    found = seen([*worked(gone_s), *empty], until_s).changes_seen()
    assert [status for _, signal, status, _ in found if signal == "QueueSilent"] == ["firing"]


@pytest.mark.parametrize(
    "events",
    [
        [*worked(900), *counted(GROWING)],
        [*worked(GONE_S), *counted([1] * 10 + [0] * 21)],
        [*worked(GONE_S), *counted([1] * 10 + [8] * 21)],
        [*worked(GONE_S), *delayed_retries(), *counted([1] * 10 + [3] * 21)],
        [*worked(GONE_S), *counted(GROWING, paused=True)],
        [*worked(GONE_S), *counted(GROWING, delivery_delay_s=600)],
        [*worked(GONE_S, 60), *worked(900, 150), *counted(GROWING)],
        counted(GROWING),
    ],
    ids=[
        "a burst that is worked on",
        "idle",
        "what waits may be delayed sends",
        "retries that are delayed",
        "paused",
        "a delay queue",
        "a batch every two minutes and a half",
        "nobody ever reported a delivery",
    ],
)
def test_what_only_looks_like_it_pages_nobody(events: Events) -> None:
    """Healthy, or unknown."""
    assert stalled(seen(events)) == []
