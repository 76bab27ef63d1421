"""The simulated standard queue has the semantics of SQS."""

from __future__ import annotations

from typing import Any

from lab.history import History
from lab.simulation import Simulation, ms
from lab.sqs import QueueSettings
from lab.sqs_standard import StandardQueue


def queue(duration_s: float = 3600.0, **settings: Any) -> StandardQueue:
    """An empty queue with a dead-letter queue and messages in strict order."""
    sim, history = Simulation(1, duration_s), History()
    dead_letters = StandardQueue(sim, QueueSettings("dlq"), history)
    return StandardQueue(sim, QueueSettings("q", dead_letter_queue="dlq", order_window=1, **settings), history, dead_letters)


def test_a_window_that_ends_makes_the_message_visible_again() -> None:
    """A message is invisible until the visibility timeout ends, and is then received with the next count."""
    q = queue(visibility_timeout_s=30)
    q.send()
    assert [r.receive_count for r in q.receive("a", 10)] == [1]
    q.sim.run(29.9)
    assert q.receive("a", 10) == []
    q.sim.run(30)
    assert [r.receive_count for r in q.receive("a", 10)] == [2]


def test_the_receive_that_would_exceed_the_limit_moves_the_message() -> None:
    """With maxReceiveCount 2 there are two deliveries.

    The message stays visible until the third receive, which moves it with its id, send time and receive count.
    """
    q = queue(max_receive_count=2)
    message = q.send()
    for _ in range(2):
        assert len(q.receive("a", 1)) == 1
        q.sim.run((message.window_ends_at - message.sent_at) / 1000)
    q.sim.run(300)
    assert list(q.messages) == [message.id]
    assert q.receive("a", 1) == []
    assert q.dead_letters is not None
    assert q.messages == {}
    (moved,) = q.dead_letters.messages.values()
    assert (moved.id, moved.sent_at, moved.receive_count) == (message.id, message.sent_at, 2)
    assert [r.receive_count for r in q.dead_letters.receive("b", 1)] == [3]


def test_a_long_poll_returns_when_a_message_is_sent() -> None:
    """A waiter is called once, at the send."""
    q = queue()
    calls: list[int] = []
    q.wait(lambda: calls.append(q.sim.now))
    q.sim.at_s(7, q.send)
    q.sim.at_s(9, q.send)
    q.sim.run(10)
    assert calls == [ms(7)]


def test_an_extension_replaces_the_window_and_a_release_ends_it() -> None:
    """The time in ChangeMessageVisibility counts from the call; 0 makes the message visible at once."""
    q = queue(visibility_timeout_s=30)
    q.send()
    (receipt,) = q.receive("a", 1)
    q.sim.run(20)
    assert q.change_visibility(receipt, 30)
    q.sim.run(49)
    assert q.receive("b", 1) == []
    assert q.change_visibility(receipt, 0)
    assert [r.receive_count for r in q.receive("b", 1)] == [2]
    assert not q.change_visibility(receipt, 30), "its delivery is over"


def test_retention_counts_from_the_send_in_the_dead_letter_queue_too() -> None:
    """A dead letter of a standard queue does not get a new retention period."""
    q = queue(max_receive_count=1, retention_s=500)
    assert q.dead_letters is not None
    q.dead_letters.settings = QueueSettings("dlq", retention_s=600)
    q.send()
    q.receive("a", 1)
    q.sim.run(100)
    q.receive("a", 1)
    q.sim.run(599.9)
    assert len(q.dead_letters.messages) == 1
    q.sim.run(600)
    assert q.dead_letters.messages == {}
    kept = queue(retention_s=500)
    kept.send()
    kept.sim.run(499.9)
    assert len(kept.messages) == 1
    kept.sim.run(500)
    assert kept.messages == {}
    assert [e.how for e in kept.history.of("q").departures] == ["expired"]


def test_a_late_delete_still_deletes() -> None:
    """After the window has ended and another consumer has the message, the first consumer's delete still removes it."""
    q = queue(visibility_timeout_s=30)
    q.send()
    (first,) = q.receive("slow", 1)
    q.sim.run(31)
    (second,) = q.receive("fast", 1)
    assert q.delete(first)
    assert q.messages == {}
    assert q.delete(second), "a second delete of the same message is no error"
