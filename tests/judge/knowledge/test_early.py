"""In a queue's first minutes a few counts agree with anything, so order must show whether there are other consumers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streaming.core.state.queues import NEVER
from streaming.judge.history.window import COLUMN, FIELDS, Window
from streaming.judge.knowledge.basis import passed_over
from streaming.judge.knowledge.evidence import Claim, Evidence
from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import Judged, in_steps, judged

Events = list[dict[str, Any]]


def shared(until_s: int, *, unseen: bool) -> Events:
    """A message per second, received in order by two consumers in turn; the second may be unseen."""
    out: Events = []
    for i in range(until_s):
        sent = ev("sent", i, message_id=f"m{i}")
        out.append(sent)
        if i % 2 and unseen:
            continue
        out.append(ev("received", i + 0.5, message_id=f"m{i}", receive_count=1, consumer=f"w{i % 2}", sent_at=sent["at"]))
        out.append(ev("deleted", i + 8.5, message_id=f"m{i}", consumer=f"w{i % 2}"))
    return out


def counted(n: list[int]) -> Events:
    """Add a poll every 30 s."""
    return [
        ev("queue_state", 30 * i, attributes={"visibility_timeout_s": 30, "visible": 0, "in_flight": k, "delayed": 0})
        for i, k in enumerate(n)
    ]


def seen(events: Events, until_s: int) -> Judged:
    """Judge every ten seconds."""
    return judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, until_s))


@pytest.mark.parametrize(("unseen", "basis"), [(False, "messages"), (True, "partial")], ids=["both seen", "one unseen"])
def test_messages_that_were_passed_over_are_not_called_known(unseen: bool, basis: str) -> None:
    """The first count is that of the empty start, and contradicts nothing."""
    last = seen([*shared(30, unseen=unseen), *counted([0])], 30).snapshots[-1]
    assert last.queues[0].basis == basis
    oldest = last.queues[0].oldest_ms.get("all")
    assert oldest is None or last.at_ms - oldest < 10_000, "nothing is there for longer than nine seconds"


@pytest.mark.parametrize(("received", "passed"), [(13, True), (12, False)], ids=["five passed", "four may be chance"])
def test_half_a_minute_after_the_start_a_few_messages_that_passed_are_enough(received: int, passed: bool) -> None:
    """Seven messages were sent in the ten seconds in which the oldest waiting one was, so up to eight may be older than it."""
    values = np.zeros((4, len(FIELDS)), dtype=np.int64)
    values[:, COLUMN["sent"]] = 0, 7, 17, 25
    values[:, COLUMN["touched"]] = 0, 4, 9, received
    values[:, COLUMN["oldest_visible_at"]] = T0 + 6_481
    past = Window(T0 + np.array([0, 10_000, 20_000, 30_000]), values)
    assert passed_over(past, NEVER, late_ms=365) == passed


def in_order(until_s: int, *, unseen: bool) -> Events:
    """A message per second in five ordering groups, one after the other within its group.

    Every other round goes to another consumer, which may be unseen.
    """
    out: Events = []
    for i in range(until_s):
        about = {"message_id": f"m{i}", "group": f"g{i % 5}", "sequence": str(i)}
        sent = ev("sent", i, "q.fifo", **about)
        out.append(sent)
        if i // 5 % 2 and unseen:
            continue
        got = ev("received", i + 0.5, "q.fifo", receive_count=1, consumer=f"w{i // 5 % 2}", sent_at=sent["at"], **about)
        out += [got, ev("deleted", i + 4.5, "q.fifo", consumer=f"w{i // 5 % 2}", **about)]
    return out


@pytest.mark.parametrize(("unseen", "basis"), [(False, "messages"), (True, "partial")], ids=["both seen", "one unseen"])
def test_a_head_that_its_group_passed_over_was_somebodys(unseen: bool, basis: str) -> None:
    """A younger message of the group is in flight, so its head is gone, even if the empty first count agrees."""
    counts = {"visibility_timeout_s": 30, "visible": 0, "in_flight": 0, "delayed": 0, "kind": "fifo"}
    events = [*in_order(24, unseen=unseen), ev("queue_state", 0, "q.fifo", attributes=counts)]
    last = judged(in_steps(sorted(events, key=lambda e: e["at"]), 2, 24)).snapshots[-1]
    assert last.queues[0].basis == basis
    oldest = last.queues[0].oldest_ms.get("all")
    assert oldest is None or last.at_ms - oldest < 10_000, "nothing is there for longer than five seconds"


def by_group(until_s: int, *, unseen: bool) -> Events:
    """A message per second, each in a group of its own: every second group goes to another consumer, which may be unseen."""
    out: Events = []
    for i in range(until_s):
        about = {"message_id": f"m{i}", "group": f"g{i}", "sequence": str(i)}
        sent = ev("sent", i, "q.fifo", **about)
        out.append(sent)
        if i % 2 and unseen:
            continue
        got = ev("received", i + 0.5, "q.fifo", receive_count=1, consumer=f"w{i % 2}", sent_at=sent["at"], **about)
        out += [got, ev("deleted", i + 4.5, "q.fifo", consumer=f"w{i % 2}", **about)]
    return out


@pytest.mark.parametrize(("unseen", "basis"), [(False, "messages"), (True, "partial")], ids=["both seen", "one unseen"])
def test_heads_that_other_groups_passed_over_were_somebodys(unseen: bool, basis: str) -> None:
    """No group is passed over by its own messages, and a count that is a minute late agrees with anything."""
    counts = {"visibility_timeout_s": 30, "visible": 0, "in_flight": 0, "delayed": 0, "kind": "fifo"}
    polls = [ev("queue_state", at, "q.fifo", attributes=counts) for at in (0, 30)]
    events = sorted([*by_group(60, unseen=unseen), *polls], key=lambda e: e["at"])
    found = judged(in_steps(events, 10, 60))
    assert found.snapshots[-1].queues[0].basis == basis
    assert not [s for s in found.changes if s.finding.key.signal == "GroupStuck"]


def test_half_of_the_messages_is_not_all_of_them_by_chance() -> None:
    """Nine counted and five tracked twice may agree, but no age is called exact on that."""
    half, all_of_them = Evidence(tracked=Claim(1, 3), seen_at=9), Evidence(tracked=Claim(1, 3), seen_at=9)
    half.counted_sum = all_of_them.counted_sum = 21.0
    half.tracked_sum = half.tracked_sum_soon = 12.0
    all_of_them.tracked_sum = all_of_them.tracked_sum_soon = 18.5
    assert not half.is_sure(60_000)
    assert all_of_them.is_sure(60_000)


@pytest.mark.parametrize(("in_flight", "sure"), [(32.0, False), (47.0, True)])
def test_the_number_in_flight_must_agree_too(in_flight: float, sure: bool) -> None:
    """With half of the messages reported, a backlog that goes up and down may agree for minutes, one count after the other."""
    e = Evidence(tracked=Claim(1, 12), seen_at=600_000, counted_sum=64.0, tracked_sum=54.0, tracked_sum_soon=54.0)
    e.in_flight_sum, e.tracked_in_flight_sum, e.tracked_in_flight_sum_soon = 49.0, in_flight, in_flight
    assert e.is_sure(600_000) is sure
    assert e.is_established(600_000) is sure


def test_a_first_count_far_below_what_is_tracked_is_heard_at_once() -> None:
    """It is compared ten seconds later, when reports of its time have arrived; ages are not published meanwhile."""
    sent = [ev("sent", i, "q.fifo", message_id=f"m{i}", group=f"g{i}", sequence=str(i)) for i in range(30)]
    taken = [
        ev(what, i + after, "q.fifo", message_id=f"m{i}", group=f"g{i}", consumer="w", receive_count=1)
        for i in range(0, 26, 2)
        for what, after in (("received", 0.5), ("deleted", 3.5))
    ]
    counts = [
        ev("queue_state", at, "q.fifo", attributes={"visible": 0, "in_flight": n, "delayed": 0, "visibility_timeout_s": 30})
        for at, n in ((0, 0), (30, 3))
    ]
    last = judged(in_steps(sorted([*sent, *taken, *counts], key=lambda e: e["at"]), 10, 30)).snapshots[-1]
    assert last.queues[0].basis == "partial"
    oldest = last.queues[0].oldest_ms.get("all")
    assert oldest is None or last.at_ms - oldest < 10_000


def test_ages_are_called_exact_once_agreement_is_more_than_chance() -> None:
    """Two counts with twenty messages in total, or five minutes; before that the same ages are lower bounds."""
    found = seen([*shared(200, unseen=False), *counted([0, *[9] * 7])], 200)
    exact = {(s.at_ms - T0) // 1000: bool(s.queues[0].exact_ages) for s in found.snapshots if s.at_ms > T0}
    assert not exact[20]
    assert exact[160]


def test_only_counts_of_messages_can_say_that_a_group_is_really_stuck() -> None:
    """Heads that were passed over are gone until it has counted any, or while it counts clearly fewer than are tracked."""
    counted = [Evidence(counted_sum=n, tracked_sum=10.0, tracked_sum_soon=10.0).counts_are_below() for n in (0.0, 7.0, 9.0)]
    assert [Evidence().counts_are_below(), *counted] == [True, True, True, False]


def now_and_then(sent_s: int) -> Events:
    """A quiet queue that is known well, and then a message that is received unseen."""
    events = [ev("queue_state", at, attributes={"visible": 0, "in_flight": 0, "delayed": 0}) for at in range(0, 900, 30)]
    for at in (60, 240, 420):
        about = {"message_id": f"m{at}"}
        events += [ev("sent", at, **about), ev("received", at + 1, receive_count=1, **about), ev("deleted", at + 5, **about)]
    return [*events, ev("sent", sent_s, message_id="unseen")]


@pytest.mark.simulation
def test_counts_of_zero_for_longer_than_they_may_be_late_show_that_a_message_was_received_unseen() -> None:
    """However inexact, they are not those of a queue that holds a message."""
    snapshots = seen(now_and_then(600), 800).snapshots
    bases = {(s.at_ms - T0) // 1_000: s.queues[0].basis for s in snapshots}
    assert (bases[690], bases[740]) == ("messages", "partial")
    assert "all" not in snapshots[-1].queues[0].oldest_ms


@pytest.mark.simulation
def test_an_age_is_not_called_exact_before_a_count_shows_the_message() -> None:
    """The latest count says that the queue is empty: it may be a minute old, or the message was received unseen."""
    snapshots = {(s.at_ms - T0) // 1_000: s.queues[0] for s in seen(now_and_then(605), 640).snapshots}
    assert [at for at, queue in snapshots.items() if at > 600 and "all" in queue.oldest_ms] == [610, 620]
    assert not any(queue.exact_ages for at, queue in snapshots.items() if at > 600)


def prompt(until_s: int) -> Events:
    """Return a message every ten seconds that is received and deleted at once."""
    out: Events = []
    for at in range(10, until_s, 10):
        sent = ev("sent", at, message_id=f"p{at}")
        got = ev("received", at + 0.2, message_id=f"p{at}", receive_count=1, consumer="w", sent_at=sent["at"])
        out += [sent, got, ev("deleted", at + 0.7, message_id=f"p{at}", consumer="w")]
    return out


def test_a_message_that_was_delayed_was_not_passed_over() -> None:
    """It was sent first, has just become visible, and waits for its turn: what came meanwhile did not overtake it."""
    counts = {"visibility_timeout_s": 30, "visible": 0, "in_flight": 0, "delayed": 1}
    polls = [ev("queue_state", at, attributes=counts) for at in range(25, 235, 30)]
    events = [ev("sent", 1, message_id="late", visible_at=ev("x", 235)["at"]), *prompt(240), *polls]
    queue = seen(events, 240).snapshots[-1].queues[0]
    assert queue.tracked_states["visible"] == 1
    assert queue.basis == "messages"
