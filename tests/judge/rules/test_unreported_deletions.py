"""Visibility windows that run out: a broken consumer, or one whose deletions are not reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.core.driving import event
from tests.judge.driving import Judged, in_steps, judged

pytestmark = pytest.mark.simulation

WINDOW_MS = 30_000
Events = list[dict[str, Any]]


def delivered(until_s: int, *, consumers: int, silent: int, sends: bool) -> Events:
    """Return a message a second, worked on for a second each; `silent` of the consumers do not report their deletions."""
    events = []
    for n in range(until_s):
        who, about = n % consumers, {"message_id": f"m{n}"}
        if sends:
            events.append(event("sent", 1000 * n, **about))
        events.append(event("received", 1000 * n + 100, receive_count=1, consumer=f"c{who}", **about))
        if who >= silent:
            events.append(event("deleted", 1000 * n + 1_100, consumer=f"c{who}", **about))
    return events


def counted(until_s: int, backlog: int) -> Events:
    """Return the collector's polls: at most a message in flight, and a backlog that does not change."""
    counts = {"visible": backlog, "in_flight": 1, "delayed": 0, "visibility_timeout_s": WINDOW_MS // 1000}
    return [event("queue_state", 1000 * at_s, attributes=counts) for at_s in range(0, until_s, 30)]


def failing(events: Events, until_s: int) -> Judged:
    """Judge the events in order of time."""
    return judged(in_steps(sorted(events, key=lambda e: int(e["at"])), 5, until_s))


@pytest.mark.parametrize("sends", [True, False], ids=["with sends", "receives only"])
@pytest.mark.parametrize(("consumers", "silent"), [(2, 2), (5, 1)], ids=["all", "one of five"])
def test_unreported_deletions_are_no_failures(consumers: int, silent: int, sends: bool) -> None:
    """The broker counts hardly any message, so those whose windows ran out are gone."""
    found = failing([*delivered(600, consumers=consumers, silent=silent, sends=sends), *counted(600, 2)], 600)
    assert not found.firing("QueueFailing")
    assert not [c for c in found.changes if c.finding.key.signal == "QueueFailing"]
    assert {s.queues[0].status for s in found.snapshots[10:]} <= {"ok", "lagging"}


def test_unreported_deletions_are_no_failures_in_a_delay_queue() -> None:
    """Hundreds of messages are delayed there. One whose window ran out would be visible."""
    counts = {"visible": 0, "in_flight": 1, "delayed": 300, "delay_s": 300, "visibility_timeout_s": 30}
    polls = [event("queue_state", 1000 * at_s, attributes=counts) for at_s in range(0, 600, 30)]
    found = failing([*delivered(600, consumers=2, silent=2, sends=False), *polls], 600)
    assert not [c for c in found.changes if c.finding.key.signal == "QueueFailing"]


@pytest.mark.parametrize("fails", [False, True], ids=["deletions are not reported", "broken from the start"])
def test_a_count_without_the_messages_in_flight_shows_that_they_left(fails: bool) -> None:
    """Cloudflare's is one of all that is not acknowledged: those whose windows ran out would be in it."""
    events = delivered(300, consumers=2, silent=2, sends=False)
    for at_s in range(0, 300, 30):
        counts = {"visible": at_s if fails else 2, "visibility_timeout_s": WINDOW_MS // 1000}
        events.append(event("queue_state", 1000 * at_s, attributes=counts))
    found = failing(events, 300)
    assert bool([c for c in found.changes if c.finding.key.signal == "QueueFailing"]) is fails


@pytest.mark.parametrize(
    "polls_s",
    [range(0, 301, 60), [*range(0, 301, 60), *range(480, 700, 60)], range(0, 700, 120), range(0, 700, 300)],
    ids=["the collector dies", "it restarts", "it polls every two minutes", "every five minutes"],
)
def test_what_counts_have_shown_of_deletions_holds_until_the_next_count(polls_s: Sequence[int]) -> None:
    """A count is older than a minute and a half where no newer one comes."""
    counts = {"visible": 0, "in_flight": 1, "delayed": 0, "visibility_timeout_s": 30}
    polls = [event("queue_state", 1000 * at_s, attributes=counts) for at_s in polls_s]
    found = failing([*delivered(700, consumers=2, silent=2, sends=False), *polls], 700)
    assert not [c for c in found.changes if c.finding.key.signal == "QueueFailing"]


@pytest.mark.parametrize("began_s", [0, 200], ids=["after deliveries that left", "before any window ended"])
def test_failures_after_the_last_count_are_announced(began_s: int) -> None:
    """They come back, or the last count says nothing about them: no window had ended when it was taken."""
    events = [e for e in delivered(500, consumers=2, silent=2, sends=False) if e["at"] >= event("x", 1000 * began_s)["at"]]
    for n in range(200, 500) if not began_s else ():
        for count in (2, 3):
            at = 1000 * n + (count - 1) * (WINDOW_MS + 1000)
            events.append(event("received", at, receive_count=count, consumer="c1", message_id=f"m{n}"))
    found = failing([*events, *counted(200, 0)], 500)
    assert found.firing("QueueFailing")


def test_the_basis_says_that_deletions_are_missing() -> None:
    """With the sends reported as well, it is not taken for complete."""
    queue = failing([*delivered(300, consumers=2, silent=2, sends=True), *counted(300, 2)], 300).snapshots[-1].queues[0]
    assert queue.basis == "partial"
    assert queue.basis_reason == "deletions of orders are not seen"
    assert "instrument the deletions" in queue.next_step


def test_where_only_sends_are_reported_and_nothing_is_counted_the_basis_says_what_to_do() -> None:
    """Nothing shows whether these messages wait or were received by consumers that do not report."""
    sent = [event("sent", 1000 * n, message_id=f"m{n}") for n in range(60)]
    queue = failing(sent, 60).snapshots[-1].queues[0]
    assert queue.basis == "messages"
    assert queue.basis_reason == "only sends are seen; no broker count contradicts that nobody has received them"
    assert queue.next_step.startswith("start a collector")


@pytest.mark.parametrize("counts", [True, False], ids=["counted", "without counts"])
def test_consumers_that_are_broken_from_the_start_are_announced(counts: bool) -> None:
    """They never reported a deletion either, but what they received is still in the queue."""
    events = delivered(200, consumers=2, silent=2, sends=True)
    found = failing([*events, *(counted(200, 150) if counts else [])], 200)
    assert found.firing("QueueFailing")


def test_messages_that_come_back_prove_failures_whatever_is_counted() -> None:
    """Every message is received again when its window has ended."""
    again = [
        event("received", 1000 * n + 100 + WINDOW_MS, receive_count=2, consumer="c1", message_id=f"m{n}") for n in range(160)
    ]
    found = failing([*delivered(200, consumers=2, silent=2, sends=True), *again, *counted(200, 2)], 200)
    assert found.firing("QueueFailing")


@pytest.mark.parametrize(
    ("worked_s", "drained"),
    [(0, False), (300, False), (300, True)],
    ids=["broken from the start", "broken by a deploy", "and a job empties the dead-letter queue"],
)
def test_messages_that_moved_unreported_prove_failures(worked_s: int, drained: bool) -> None:
    """Every first delivery fails, and SQS moves the message: the source is empty, and nobody reports the move."""
    broken = [e for e in delivered(600, consumers=2, silent=2, sends=True) if e["at"] >= event("x", 1000 * worked_s)["at"]]
    events = [*delivered(worked_s, consumers=2, silent=0, sends=True), *({**e, "consumer": "new"} for e in broken)]
    policy = {"visible": 0, "delayed": 0, "visibility_timeout_s": 30, "max_receive_count": 1, "dead_letter_queue": "dead"}
    for at_s in range(0, 600, 30):
        in_flight = min(max(at_s - worked_s, 1), 30)
        dead = {"visible": 0 if drained else max(at_s - worked_s - 30, 0), "in_flight": 0, "delayed": 0}
        events.append(event("queue_state", 1000 * at_s, attributes=policy | {"in_flight": in_flight}))
        events.append(event("queue_state", 1000 * at_s, "dead", attributes=dead))
    found = failing(events, 600)
    assert [c.status for c in found.changes if c.finding.key.signal == "QueueFailing"] == ["firing"]


@pytest.mark.parametrize("fails", [False, True], ids=["it works them off", "and fails from then on"])
def test_a_burst_of_sends_is_no_failure_where_deletions_were_never_reported(fails: bool) -> None:
    """The counts show its backlog, but what was received before had left the queue. Messages that come back prove failures."""
    sent = [*range(0, 900_000, 8_000), *range(900_000, 1_020_000, 500)]
    events, starts, free_at = [], [], 0
    for n, at in enumerate(sent):
        free_at = max(at, free_at) + 1_000
        starts.append(free_at - 1_000)
        times = (1, 2, 3) if fails and at >= 900_000 else (1,)
        for count in times:
            received_at = starts[-1] + (count - 1) * (WINDOW_MS + 1_000)
            events.append(event("received", received_at, receive_count=count, consumer="c", message_id=f"m{n}"))
    for at in range(0, 1_300_000, 30_000):
        visible = sum(came <= at < start for came, start in zip(sent, starts, strict=True))
        counts = {"visible": visible, "in_flight": 1, "delayed": 0, "visibility_timeout_s": WINDOW_MS // 1000}
        events.append(event("queue_state", at, attributes=counts))
    found = failing(events, 1_200)
    assert {c.status for c in found.changes if c.finding.key.signal == "QueueFailing"} == ({"firing"} if fails else set())


@pytest.mark.parametrize("renamed", [False, True], ids=["the same names", "new names"])
@pytest.mark.parametrize("consumers", [1, 2], ids=["all", "one of two"])
@pytest.mark.parametrize("back_of_ten", [0, 1], ids=["the messages are gone", "one in ten comes back"])
def test_a_version_that_stops_reporting_deletions_does_not_fail(back_of_ten: int, consumers: int, renamed: bool) -> None:
    """Nothing comes back, and the counts show that the messages left. Were it broken, some would, whoever finishes the others."""
    events, began_at = delivered(300, consumers=consumers, silent=0, sends=True), event("x", 300_000)["at"]
    for e in delivered(700, consumers=consumers, silent=1, sends=True):
        if e["at"] >= began_at:
            events.append({**e, "consumer": "new"} if renamed and e.get("consumer") == "c0" else e)
    ended = {e["message_id"] for e in events if e["type"] == "deleted"}
    open_ = [e for e in events if e["type"] == "received" and e["message_id"] not in ended]
    for n, e in enumerate(open_):
        if n % 10 < back_of_ten:
            events.append({**e, "at": e["at"] + WINDOW_MS + 500, "receive_count": 2})
    found = failing([*events, *counted(700, 2)], 700)
    fired = {c.finding.key.signal for c in found.changes if c.finding.severity == "critical"}
    assert fired == ({"QueueFailing"} if back_of_ten else set())


@pytest.mark.parametrize("silent", [3, 1], ids=["all", "one of three"])
@pytest.mark.parametrize("groups", [0, 12], ids=["standard", "fifo"])
@pytest.mark.parametrize("cause", ["a burst", "an outage"])
def test_a_backlog_that_takes_ten_minutes_is_no_failure_where_deletions_were_never_reported(
    groups: int, cause: str, silent: int
) -> None:
    """Counts five minutes old show this backlog as well; those of before showed that the messages leave."""
    worked = [5_000 * n for n in range(120)]
    # Sent in one moment, or received by nobody until the consumers are back.
    backlog = [1_000 * (600 if cause == "a burst" else 1_200) + 1_000 * n for n in range(600)]
    events: Events = []
    for n, at in enumerate([*worked, *backlog]):
        about = {"message_id": f"m{n}", "group": f"g{n % groups}"} if groups else {"message_id": f"m{n}"}
        events.append(event("received", at, receive_count=1, consumer=f"c{n % 3}", **about))
        if n % 3 >= silent:
            events.append(event("deleted", at + 900, consumer=f"c{n % 3}", message_id=f"m{n}"))
    for at in range(0, backlog[-1], 30_000):
        waiting = sum(received > at for received in backlog)
        visible = 0 if at < 600_000 else waiting if cause == "a burst" else min(waiting, (at - 600_000) // 1_000)
        counts = {"visible": visible, "in_flight": int(at >= backlog[0]), "delayed": 0, "visibility_timeout_s": 30}
        events.append(event("queue_state", at, attributes=counts | {"kind": "fifo" if groups else "standard"}))
    found = failing(events, backlog[-1] // 1_000)
    assert not [c for c in found.changes if c.finding.key.signal == "QueueFailing"]


@pytest.mark.parametrize("fails", [False, True], ids=["it works", "it is broken"])
def test_a_consumer_that_joins_for_a_backlog_and_never_reported_a_deletion_fails_if_its_messages_stay(fails: bool) -> None:
    """What it received is at the end of the backlog again and comes back late. The two others report their deletions."""
    joins_s, until_s, events = 300, 900, []
    for n in range(until_s):
        silent = n >= joins_s and n % 3 == 0
        events.append(event("received", 1000 * n, receive_count=1, consumer="new" if silent else f"c{n % 2}", message_id=f"m{n}"))
        if not silent:
            events.append(event("deleted", 1000 * n + 900, consumer=f"c{n % 2}", message_id=f"m{n}"))
    for at_s in range(0, until_s, 30):
        backlog = until_s - at_s if at_s >= joins_s else 0
        back = max(at_s - joins_s - WINDOW_MS // 1000, 0) // 3 if fails else 0
        counts = {"visible": backlog + back, "in_flight": 1, "delayed": 0, "visibility_timeout_s": WINDOW_MS // 1000}
        events.append(event("queue_state", 1000 * at_s, attributes=counts))
    found = failing(events, until_s)
    last = [s for s in found.snapshots[-1].firing if s.key.signal == "QueueFailing"]
    assert [s.evidence.get("consumer") for s in last] == (["new"] if fails else [])


def in_groups(until_s: int) -> Events:
    """Return two messages a second of twenty groups, each worked on for half a second; half of them end without a report."""
    events = []
    for n in range(2 * until_s):
        about, group = {"message_id": f"m{n}", "group": f"g{n % 20}"}, n % 20
        events.append(event("sent", 500 * n, **about))
        events.append(event("received", 500 * n + 10, receive_count=1, consumer=f"c{group % 4}", **about))
        if group % 4 > 1:
            events.append(event("deleted", 500 * n + 510, consumer=f"c{group % 4}", **about))
    return events


@pytest.mark.parametrize("left", [False, True], ids=["deleted unseen", "left in the queue"])
def test_groups_whose_deletions_are_not_reported_are_not_stuck(left: bool) -> None:
    """The first counts already show that the messages are gone; where they show them, their groups are stuck."""
    counts = {"in_flight": 1, "delayed": 0, "visibility_timeout_s": WINDOW_MS // 1000, "kind": "fifo"}
    polls = [event("queue_state", 1000 * s, attributes=counts | {"visible": s if left else 1}) for s in range(0, 360, 30)]
    found = failing([*in_groups(360), *polls], 360)
    critical = {c.finding.key.signal for c in found.changes if c.finding.severity == "critical"}
    assert critical == ({"GroupStuck", "QueueFailing"} if left else set())


@pytest.mark.parametrize("at_once", [1, 3])
def test_deletions_that_are_not_reported_prove_neither_a_stall_nor_an_age(at_once: int) -> None:
    """As many messages are in flight at each count as are tracked, and the backlog never falls: others leave meanwhile."""
    events = []
    for n in range(80 * at_once):
        at = 20_000 * n // at_once
        about: dict[str, Any] = {"message_id": f"m{n}", "receive_count": 1, "consumer": "c"}
        events.append(event("received", at, invisible_until=event("x", at + 20_000)["at"], **about))
    for at_s in range(5, 1600, 60):
        counts = {"visible": max(at_s - 600, 0) // 10, "in_flight": at_once, "delayed": 0, "visibility_timeout_s": 20}
        events.append(event("queue_state", 1000 * at_s, attributes=counts))
    found = failing(events, 1600)
    assert not [c for c in found.changes if c.finding.key.signal in ("QueueStalled", "QueueLagging")]
    queues = [s.queues[0] for s in found.snapshots]
    assert "stalled" not in {queue.status for queue in queues}
    assert not [queue.oldest_ms for queue in queues[500 // 5 :] if queue.oldest_ms]
