"""The simulated FIFO queue keeps order only within groups, blocks groups in flight, and has a limited look-ahead."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lab.history import History
from lab.simulation import Simulation
from lab.sqs import QueueSettings
from lab.sqs_fifo import FifoQueue


def queue(seed: int = 1, *, groups_in_order: bool = True, **settings: Any) -> FifoQueue:
    """An empty FIFO queue with a dead-letter queue and a visibility timeout of 30 s."""
    sim, history = Simulation(seed, 3600), History()
    dead_letters = FifoQueue(sim, QueueSettings("dlq.fifo", retention_s=1000), history)
    chosen = QueueSettings("q.fifo", dead_letter_queue="dlq.fifo", groups_in_order=groups_in_order, **settings)
    return FifoQueue(sim, chosen, history, dead_letters)


def received(q: FifoQueue, most: int = 1) -> list[tuple[str | None, int, int]]:
    """Return group, sequence and receive count of received messages."""
    return [(r.message.group, r.message.sequence, r.receive_count) for r in q.receive("c", most)]


def test_a_message_in_flight_blocks_its_group_and_no_other() -> None:
    """With two messages of group a and one of b, only b's can be received while the first of a is in flight."""
    q = queue()
    for group in ("a", "a", "b"):
        q.send(group=group)
    assert received(q) == [("a", 1, 1)]
    assert received(q) == [("b", 3, 1)]
    assert received(q) == []


def test_one_receive_prefers_one_group_in_order() -> None:
    """A batch takes as many messages of the first open group as it can, then those of the next."""
    q = queue()
    for group in ("a", "b", "a", "b"):
        q.send(group=group)
    assert received(q, 3) == [("a", 1, 1), ("a", 3, 1), ("b", 2, 1)]


def test_a_failed_head_comes_back_before_the_messages_behind_it() -> None:
    """The order within the group survives a window that ends by time."""
    q = queue(visibility_timeout_s=30)
    q.send(group="a")
    q.send(group="a")
    assert received(q) == [("a", 1, 1)]
    q.sim.run(30)
    assert received(q, 2) == [("a", 1, 2), ("a", 2, 1)]


def test_settling_the_head_opens_the_group() -> None:
    """A waiting long poll returns as well."""
    q = queue()
    q.send(group="a")
    q.send(group="a")
    (first,) = q.receive("c", 1)
    woken: list[object] = []
    q.wait(lambda: woken.append(received(q)))
    q.sim.run(5)
    assert woken == []
    q.delete(first)
    q.sim.run(6)
    assert woken == [[("a", 2, 1)]]


def test_a_dead_letter_frees_its_group_and_restarts_its_retention() -> None:
    """With maxReceiveCount 1, the next receive moves the head and returns the message behind it."""
    q = queue(max_receive_count=1)
    bad = q.send(group="a")
    q.send(group="a")
    received(q)
    q.sim.run(30)
    assert received(q) == [("a", 2, 1)]
    assert q.dead_letters is not None
    assert list(q.dead_letters.messages) == [bad.id]
    q.sim.run(1029)
    assert list(q.dead_letters.messages) == [bad.id], "1000 s from its arrival at 30 s"
    q.sim.run(1030)
    assert not q.dead_letters.messages


def test_an_expired_handle_does_not_delete() -> None:
    """Unlike on a standard queue, the call fails and the message stays."""
    q = queue(visibility_timeout_s=30)
    q.send(group="a")
    (late,) = q.receive("c", 1)
    q.sim.run(31)
    assert not q.delete(late)
    assert received(q) == [("a", 1, 2)]


def test_groups_beyond_the_look_ahead_are_hidden() -> None:
    """Three messages of a blocked group fill the look-ahead, so b waits until one of them is settled."""
    q = queue(look_ahead=3)
    for group in ("a", "a", "a", "b"):
        q.send(group=group)
    (head,) = q.receive("c", 1)
    assert received(q) == []
    q.delete(head)
    assert received(q) == [("a", 2, 1)]
    assert received(q) == [("b", 4, 1)], "one fewer ahead of it"


def order_of(seed: int, groups: str = "abcdefgh", **settings: Any) -> str:
    """Return the groups in the order in which their only messages are received."""
    q = queue(seed, groups_in_order=False, **settings)
    for group in groups:
        q.send(group=group)
    return "".join(str(group) for _ in groups for group, _, _ in received(q))


def test_there_is_no_order_between_groups() -> None:
    """SQS promises none. The same seed gives the same order."""
    assert not QueueSettings("q.fifo").groups_in_order, "as in SQS"
    orders = [order_of(seed) for seed in range(1, 6)]
    assert orders == [order_of(seed) for seed in range(1, 6)]
    assert len(set(orders)) == 5
    assert {"".join(sorted(order)) for order in orders} == {"abcdefgh"}


def test_every_open_group_is_as_likely_to_be_next() -> None:
    """Of 800 queues with eight groups, each group comes first in about a hundred."""
    first = Counter(order_of(seed)[0] for seed in range(800))
    assert len(first) == 8
    assert all(60 <= count <= 145 for count in first.values())


def test_order_within_a_group_is_kept_whatever_comes_between() -> None:
    """Messages of four groups that fail now and then: of each group, no message is received before an older one is deleted."""
    q = queue(groups_in_order=False, max_receive_count=None, visibility_timeout_s=10)
    for n in range(200):
        q.send(group="abcd"[n * 7 % 4])
    done: dict[str | None, list[int]] = {}
    for turn in range(1_000):
        q.sim.run(turn)
        for receipt in q.receive("c", 3):
            if turn % 3:
                q.delete(receipt)
                done.setdefault(receipt.message.group, []).append(receipt.message.sequence)
    assert sum(map(len, done.values())) == 200
    assert all(sequences == sorted(sequences) for sequences in done.values())


def test_any_group_within_the_look_ahead_may_be_next_and_none_beyond() -> None:
    """With a look-ahead of five, the first is one of five; each settled message brings one more within reach."""
    firsts, seconds = set(), set()
    for seed in range(60):
        q = queue(seed, groups_in_order=False, look_ahead=5)
        for group in "abcdefgh":
            q.send(group=group)
        (first,) = q.receive("c", 1)
        q.delete(first)
        firsts.add(first.message.group)
        ((second, _, _),) = received(q)
        seconds.add(second)
    assert firsts == set("abcde")
    assert seconds == set("abcdef")


@pytest.mark.parametrize("groups_in_order", [True, False])
def test_all_of_a_backlog_beyond_the_look_ahead_is_received(groups_in_order: bool) -> None:
    """300 groups with ten messages each come within reach of a look-ahead of 250 one after the other."""
    q = queue(groups_in_order=groups_in_order, look_ahead=250)
    for n in range(3_000):
        q.send(group=str(n % 300))
    seen = 0
    while receipts := q.receive("c", 10):
        seen += len(receipts)
        for receipt in receipts:
            q.delete(receipt)
    assert seen == 3_000
