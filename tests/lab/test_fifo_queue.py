"""The simulated FIFO queue keeps the order within groups, blocks groups in flight, and has a limited look-ahead."""

from __future__ import annotations

from typing import Any

from lab.history import History
from lab.simulation import Simulation
from lab.sqs import QueueSettings
from lab.sqs_fifo import FifoQueue


def queue(**settings: Any) -> FifoQueue:
    """An empty FIFO queue with a dead-letter queue and a visibility timeout of 30 s."""
    sim, history = Simulation(1, 3600), History()
    dead_letters = FifoQueue(sim, QueueSettings("dlq.fifo", retention_s=1000), history)
    return FifoQueue(sim, QueueSettings("q.fifo", dead_letter_queue="dlq.fifo", **settings), history, dead_letters)


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
