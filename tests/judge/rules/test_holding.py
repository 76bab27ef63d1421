"""Consumers that hold messages: unusual holds, holds too long anywhere, and one notification for a hung consumer."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import QueueName
from streaming.judge.findings.signals import Finding
from tests.contract.replaying import ev
from tests.core.driving import run_steps
from tests.judge.driving import Judged, in_steps, judged

Events = list[dict[str, Any]]
QUEUE = ev("queue_state", 0, attributes={"visibility_timeout_s": 30})


def usual(n: int, work_s: float, prefix: str = "u", consumer: str = "quick") -> Events:
    """Return `n` messages, one every five seconds, each held for `work_s`."""
    out = []
    for i in range(n):
        about, at = {"message_id": f"{prefix}{i}", "consumer": consumer}, 5.0 * i
        out += [ev("sent", at, message_id=f"{prefix}{i}"), ev("received", at + 1, receive_count=1, **about)]
        out.append(ev("deleted", at + 1 + work_s, **about))
    return out


def held(message_id: str, from_s: float, until_s: float, consumer: str = "w") -> Events:
    """Return a message whose window of 30 s is extended every 20 s."""
    about = {"message_id": message_id, "consumer": consumer}
    out = [ev("sent", from_s, message_id=message_id), ev("received", from_s, receive_count=1, **about)]
    for i in range(1, int((until_s - from_s) // 20) + 1):
        at = from_s + 20 * i
        out.append(ev("extended", at, invisible_until=ev("x", at + 30)["at"], **about))
    return out


def seen(events: Events, until_s: int) -> Judged:
    """Judge every twenty seconds."""
    return judged(in_steps(sorted([QUEUE, *events], key=lambda e: e["at"]), 20, until_s))


def loud(found: list[Finding]) -> list[str]:
    """Return the messages that are announced individually."""
    return sorted(f.key.message_id or "" for f in found if f.announced)


@pytest.mark.parametrize(("finished", "fires"), [(0, False), (9, False), (10, True)], ids=["nothing finished yet", "nine", "ten"])
def test_an_extended_hold_is_compared_once_enough_was_finished(finished: int, fires: bool) -> None:
    """Two minutes of work, extended throughout: slow only where the usual time is known."""
    judged_ = seen([*usual(finished, 2), *held("long", 60, 180)], 180)
    assert bool(judged_.firing("SlowConsumer")) is fires


@pytest.mark.parametrize("finished", [0, 9, 10])
@pytest.mark.parametrize("extended", [False, True], ids=["never extended", "extended"])
def test_a_long_window_of_the_receive_is_no_extension(finished: int, extended: bool) -> None:
    """It asked for ten minutes where the queue gives half a minute: it says nothing while it works, or hangs, for five."""
    until = {"invisible_until": ev("x", 660)["at"]}
    about = {"message_id": "long", "consumer": "w"}
    long = [ev("sent", 60, message_id="long"), ev("received", 60, receive_count=1, **about, **until)]
    if extended:
        long.append(ev("extended", 300, **about, **until))
    found = seen([*usual(finished, 2), *long], 360).firing("SlowConsumer")
    assert [f.key.consumer for f in found] == ["w"] * (not extended or finished >= 10)
    assert [f.evidence["extended"] for f in found] == [extended] * len(found)


@pytest.mark.parametrize("oldest_extended", [False, True])
@pytest.mark.parametrize("shards", [1, 4])
def test_of_several_messages_the_oldest_counts_in_any_number_of_shards(oldest_extended: bool, shards: int) -> None:
    """The others are extended where it is not, and the other way round."""
    events = [QUEUE]
    for n in range(9):
        about = {"message_id": f"m{n}", "consumer": "w", "invisible_until": ev("x", 900)["at"]}
        events.append(ev("received", 10 + n, receive_count=1, **about))
        if oldest_extended is (n == 0):
            events.append(ev("extended", 30 + n, **about))
    (held_by,) = run_steps([(120_000, events)], shards=shards)[-1].queues[QueueName("aws_sqs", "", "q")].consumers
    assert held_by[:-1] == ("w", 9, ev("x", 10)["at"], "m0", None, oldest_extended, 0)


@pytest.mark.parametrize(("held_s", "fires"), [(170, False), (280, True)], ids=["within twice the slowest", "beyond"])
def test_an_extended_hold_is_compared_with_the_slowest_of_the_queue(held_s: int, fires: bool) -> None:
    """One message in ten takes 100 s here: half a minute is usual, five minutes are not. That is the limit which is stated."""
    slow = [
        e
        for i in range(4)
        for e in (*held(f"slow{i}", 10 + 30 * i, 110 + 30 * i), ev("deleted", 110 + 30 * i, message_id=f"slow{i}"))
    ]
    judged_ = seen([*usual(40, 2), *slow, *held("long", 220, 220 + held_s)], 220 + held_s)
    found, near = judged_.firing("SlowConsumer"), judged_.snapshots[-1].queues[0].near["SlowConsumer"]
    assert (bool(found), near.reached) == (fires, fires)
    assert all(200 <= limit_s < 280 for limit_s in (near.limit / 1_000, *(f.evidence["limit_s"] for f in found)))


@pytest.mark.parametrize(("dead", "consumers"), [(True, []), (False, ["person"])], ids=["dead letters", "messages"])
def test_who_looks_into_a_dead_letter_queue_is_no_slow_consumer(dead: bool, consumers: list[str]) -> None:
    """They hold what they look at until its window ends."""
    events: Events = [ev("queue_state", 0, "source", attributes={"dead_letter_queue": "q"})] * dead
    for n in range(3):
        about: dict[str, Any] = {"message_id": f"m{n}"}
        moved = ev("dead_lettered", 1 + n, "source", to_queue="q", **about) if dead else ev("sent", 1 + n, **about)
        until = ev("x", 620)["at"]
        events += [moved, ev("received", 20, consumer="person", invisible_until=until, **about)]
    assert [f.key.consumer for f in seen(events, 300).firing("SlowConsumer")] == consumers


@pytest.mark.simulation
def test_a_consumer_that_hangs_with_many_messages_is_one_notification() -> None:
    """One consumer holds five too long: SlowConsumer names it and their number, each message is listed and folded."""
    events = usual(60, 2) + [e for i in range(5) for e in held(f"h{i:02d}", 60 + i, 1_000, "hung")]
    judged_ = seen(events, 1_000)
    (slow,) = judged_.firing("SlowConsumer")
    assert slow.announced
    assert (slow.key.consumer, slow.evidence["held_messages"], slow.evidence["finished_meanwhile"]) == ("hung", 5, False)
    assert "; the usual hold on this queue is 1.83 s; " in slow.evidence["summary"]
    assert loud(judged_.firing("MessageHeldTooLong")) == []
    assert len(judged_.firing("MessageHeldTooLong")) == 5
    assert {c.finding.folded for c in judged_.changes if c.finding.key.signal == "MessageHeldTooLong"} == {"SlowConsumer"}


@pytest.mark.parametrize("client_id", ["billing", None])
def test_a_slow_consumer_is_named_with_its_client_id(client_id: str | None) -> None:
    """ActiveMQ's consumer ids are the connection's; the client id is the name that its team gave it."""
    attributes = {"prefetch": 1} | ({"client_id": client_id} if client_id else {})
    state = ev("consumer_state", 100, consumer="hung", attributes=attributes)
    events = [*usual(60, 2), state, *(e for i in range(5) for e in held(f"h{i:02d}", 60 + i, 500, "hung"))]
    (slow,) = [f for f in seen(events, 500).firing("SlowConsumer") if f.announced]
    assert slow.evidence.get("client_id") == client_id
    assert ("Consumer hung (client billing) of" in slow.evidence["summary"]) == (client_id is not None)


@pytest.mark.simulation
def test_single_messages_held_too_long_are_as_loud_as_ever() -> None:
    """One thread of a consumer that otherwise works hangs, and one of another: both are reported."""
    events = [*usual(60, 2, consumer="w"), *held("a", 60, 1_000, "w"), *held("b", 60, 1_000, "v")]
    assert loud(seen(events, 1_000).firing("MessageHeldTooLong")) == ["a", "b"]


@pytest.mark.simulation
@pytest.mark.parametrize(("hung", "reported"), [(2, ["h0", "h1"]), (3, [])], ids=["two of its messages", "three"])
def test_from_three_on_the_consumer_is_what_hangs(hung: int, reported: list[str]) -> None:
    """It finishes others meanwhile."""
    events = usual(60, 2, consumer="w") + [e for i in range(hung) for e in held(f"h{i}", 60, 1_000, "w")]
    assert loud(seen(events, 1_000).firing("MessageHeldTooLong")) == reported


@pytest.mark.parametrize("crowded", [True, False])
def test_a_slow_consumer_among_a_noisy_groups_jobs_names_the_group(crowded: bool) -> None:
    """A tenant's long jobs fill the consumers of a fair queue: the tenant is where to look, not the consumer."""
    jobs = [
        {**e, "group": "tenant-07" if crowded else f"tenant-{i:02d}"}
        for i in range(40)
        for e in held(f"j{i:02d}", 100 + i / 10, 160, f"w{i % 2}")
    ]
    other = [{**e, "group": f"tenant-{e['message_id']}"} for e in usual(36, 2)]
    slow = [f for f in seen([*other, *jobs], 160).firing("SlowConsumer") if f.announced]
    assert len(slow) == 2
    assert {f.evidence.get("noisy_group") for f in slow} == {"tenant-07" if crowded else None}
    assert all(("Group tenant-07 crowds the queue." in f.evidence["summary"]) == crowded for f in slow)


def test_a_hold_whose_receive_is_not_reported_began_at_the_extension_that_shows_it() -> None:
    """The message waited for two hours before: that is its age, not its hold."""
    events = [QUEUE, ev("sent", 0, message_id="m"), ev("extended", 7_200, message_id="m", invisible_until=ev("x", 9_000)["at"])]
    (found,) = judged([(7_200_000, events), (8_101_000, [])]).firing("MessageHeldTooLong")
    assert (found.evidence["held_s"], found.since_ms) == (901, ev("x", 7_200)["at"])
    assert found.summary.startswith("Message m has been held for 15 min (1 extension)")
