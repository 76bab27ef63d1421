"""The judgement does not depend on the number of shards: what only one shard knows must decide nothing."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.judge.metrics import samples
from tests.core.driving import T0, event
from tests.judge.driving import in_steps, judged
from tests.judge.memory.test_memory import everything

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]


def counted(at_ms: int, visible: int, in_flight: int) -> dict[str, Any]:
    """Return the broker's counts of the queue."""
    return event("queue_state", at_ms, attributes={"visible": visible, "in_flight": in_flight, "delayed": 0})


def used_up(n: int) -> Events:
    """Return messages with all receives used up, and never deleted; their windows end at 160 s at the latest."""
    events = [
        event("queue_state", 0, attributes={"visibility_timeout_s": 30, "max_receive_count": 4, "dead_letter_queue": "dead"})
    ]
    for i in range(n):
        about = {"message_id": f"bad{i}"}
        events.append(event("sent", 100 * i, **about))
        events += [event("received", 10_000 + 40_000 * c + i, receive_count=c + 1, **about) for c in range(4)]
    return [*events, counted(130_000, 0, n)]


def others(n: int) -> Events:
    """Return messages that come and go after that."""
    about = [{"message_id": f"good{i}"} for i in range(n)]
    events = [event("sent", 200_000 + 1_000 * i, **a) for i, a in enumerate(about)]
    events += [event("received", 201_000 + 1_000 * i, receive_count=1, **a) for i, a in enumerate(about)]
    return events + [event("deleted", 202_000 + 1_000 * i, **a) for i, a in enumerate(about)]


def seen_in_dead(queue: str, dead: str, n: int) -> Events:
    """Return messages of three groups that reappear in the dead-letter queue; some name their source, some moves are reported."""
    events = [event("queue_state", 0, queue, attributes={"dead_letter_queue": dead, "max_receive_count": 3})]
    for i in range(n):
        about = {"message_id": f"m{i}", "group": f"g{i % 3}"}
        events.append(event("sent", 1_000 * i, queue, sequence=str(i), **about))
        events.append(event("received", 20_000 + 1_000 * i, queue, receive_count=3, **about))
        if i % 3:
            events.append(event("dead_lettered", 60_000 + 1_000 * i, queue, to_queue=dead, **about))
        else:
            source = {"from_queue": queue} if i % 2 else {}
            events.append(event("received", 90_000 + 1_000 * i, dead, receive_count=4, **about, **source))
    return events


def inferred_in_fifo(n: int) -> Events:
    """Return messages of a FIFO queue whose receives are used up, and counts that show that they left."""
    policy = {"visibility_timeout_s": 30, "max_receive_count": 2, "dead_letter_queue": "d.fifo"}
    events = [event("queue_state", 0, "q.fifo", attributes=policy)]
    events.append(event("queue_state", 0, "d.fifo", attributes={"retention_s": 86_400}))
    for i in range(n):
        about = {"message_id": f"bad{i}", "group": f"g{i}"}
        events.append(event("sent", 100 * i, "q.fifo", **about))
        events += [event("received", 10_000 + 40_000 * c + i, "q.fifo", receive_count=c + 1, **about) for c in range(2)]
    for at, left in ((75_000, n), (100_000, 0), (130_000, 0)):
        for queue, visible in (("q.fifo", left), ("d.fifo", n - left)):
            events.append(event("queue_state", at, queue, attributes={"visible": visible, "in_flight": 0, "delayed": 0}))
    return events


def found_in_dead(n: int) -> Events:
    """Return what happens to them later: received from the dead-letter queue, some deleted there, some moved back."""
    events: Events = []
    for i in range(n):
        about = {"message_id": f"bad{i}", "group": f"g{i}"}
        if i % 3 < 2:
            events.append(event("received", 300_000 + i, "d.fifo", receive_count=3, from_queue="q.fifo", **about))
        if i % 3 == 0:
            events.append(event("deleted", 310_000 + i, "d.fifo", **about))
        elif i % 3 == 2:
            again = {"to_queue": "q.fifo", "new_message_id": f"bad{i}"}
            events.append(event("redriven", 320_000 + i, "d.fifo", **again, **about))
    return events


SCENARIOS: dict[str, Events] = {
    "moves nobody reported": [*used_up(12), *others(9), counted(230_000, 0, 0)],
    "used up and nobody receives": [*used_up(12), counted(230_000, 12, 0), counted(290_000, 12, 0)],
    "dead letters": seen_in_dead("orders", "dead", 12),
    "dead letters of a fifo queue": seen_in_dead("q.fifo", "dead.fifo", 12),
    "dead letters of a fifo queue in a standard one": seen_in_dead("q.fifo", "dead", 12),
    "moves of a fifo queue nobody reported": [*inferred_in_fifo(6)],
    "moves of a fifo queue that are seen later": [*inferred_in_fifo(6), *found_in_dead(6)],
    "a purge": [event("sent", 1_000 * n, message_id=f"m{n}") for n in range(20)] + [event("purged", 9_500)],
}


@pytest.mark.parametrize("events", SCENARIOS.values(), ids=list(SCENARIOS))
def test_the_same_in_one_shard_and_in_three(events: Events) -> None:
    """Return every change and every metric of every step."""
    steps = in_steps(events, 20, 700)
    one, three = judged(steps), judged(steps, shards=3, restart=True)
    assert three.changes == one.changes
    for a, b in zip(one.snapshots, three.snapshots, strict=True):
        assert list(samples(b, b.at_ms)) == list(samples(a, a.at_ms))


def test_everything_at_once_in_one_shard_and_in_five() -> None:
    """Return half an hour with all kinds of signals."""
    one, five = judged(everything()), judged(everything(), shards=5)
    assert five.changes == one.changes
    last = T0 + 1_800_000
    assert list(samples(five.snapshots[-1], last)) == list(samples(one.snapshots[-1], last))


def arrivals(scenario: str) -> set[str | None]:
    """Return the messages announced as dead letters."""
    changes = judged(in_steps(SCENARIOS[scenario], 20, 700)).changes
    return {c.finding.key.message_id for c in changes if c.finding.key.signal == "DeadLetterArrived"}


def test_a_move_is_inferred_only_when_somebody_received_since() -> None:
    """Used-up receives alone move nothing: SQS does that at the next receive."""
    assert arrivals("moves nobody reported") == {f"bad{i}" for i in range(12)}
    assert arrivals("used up and nobody receives") == set()


def test_groups_of_a_standard_queue_are_the_same_with_any_number_of_shards() -> None:
    """One shard has the message that waits, another one the latest that was settled: which, depends on their ids."""
    events: Events = []
    for i in range(30):
        about = {"message_id": f"m{i}", "group": f"g{i % 3}"}
        events.append(event("sent", 1_000 * i, **about))
        if i % 10:
            events.append(event("received", 1_000 * i + 500, receive_count=1, **about))
            events.append(event("deleted", 1_000 * i + 900, **about))
    one, three = (judged(in_steps(events, 10, 60), shards=shards).snapshots for shards in (1, 3))
    for a, b in zip(one, three, strict=True):
        assert [queue.top_groups for queue in a.queues] == [queue.top_groups for queue in b.queues]
