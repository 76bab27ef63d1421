"""The simulated ActiveMQ queue: prefetch windows, acknowledgements, closed connections, dead letters."""

from __future__ import annotations

from collections import Counter

from lab.activemq import MqConsumer, MqQueue
from lab.history import History
from lab.report import Report
from lab.simulation import Simulation


def queue() -> MqQueue:
    """An empty queue with a dead-letter queue."""
    sim, history = Simulation(1, 3600), History()
    reports: list[Report] = []
    return MqQueue(sim, "q", history, reports, MqQueue(sim, "DLQ.q", history, reports))


def consumer(q: MqQueue, name: str, prefetch: int) -> MqConsumer:
    """A consumer that takes ten seconds for each message."""
    return MqConsumer(q.sim, name, q, lambda _: 10.0, prefetch)


def test_messages_are_spread_over_the_prefetch_windows() -> None:
    """Of five messages, each of two windows gets two, and the fifth waits for the first acknowledgement."""
    q = queue()
    for name in ("a", "b"):
        consumer(q, name, 2)
    for _ in range(5):
        q.send()
    deliveries = q.history.of("q").deliveries
    assert Counter(d.consumer for d in deliveries) == {"a": 2, "b": 2}
    q.sim.run(9.9)
    assert len(deliveries) == 4
    q.sim.run(10)
    assert len(deliveries) == 5


def test_messages_of_a_lost_connection_go_to_the_next_consumer_in_order() -> None:
    """The one being read has the next count, the other none; both precede later messages, and neither was acknowledged."""
    q = queue()
    first = consumer(q, "a", 2)
    ids = [q.send().id for _ in range(3)]
    q.sim.run(5)
    first.disconnect()
    q.sim.run(20)
    assert not q.history.of("q").departures
    consumer(q, "b", 10)
    later = [(d.message_id, d.receive_count) for d in q.history.of("q").deliveries if d.consumer == "b"]
    assert later == [(ids[0], 2), (ids[1], 1), (ids[2], 1)]
    q.sim.run(60)
    assert [e.message_id for e in q.history.of("q").departures] == ids


def test_a_message_that_passes_through_several_lost_connections_was_not_read_by_them() -> None:
    """All consumers leave within one millisecond: what the first of them held is dispatched to each of the others."""
    q = queue()
    workers = [consumer(q, name, 10) for name in ("a", "b", "c")]
    one = q.send().id
    q.sim.run(5)
    for worker in workers:
        worker.disconnect()
    consumer(q, "d", 10)
    assert [(d.consumer, d.receive_count) for d in q.history.of("q").deliveries if d.message_id == one] == [
        ("a", 1),
        ("b", 2),
        ("c", 2),
        ("d", 2),
    ]


def test_a_rejected_message_is_a_dead_letter_with_the_same_id() -> None:
    """Events report the message as moved from its queue and as sent to the dead-letter queue."""
    q = queue()
    one = consumer(q, "a", 1)
    bad = q.send(fails=True)
    one.change(failure="nack")
    q.sim.run(100)
    (end,) = q.history.of("q").departures
    assert (end.message_id, end.how) == (bad.id, "dead_lettered")
    kinds = [(r.event["type"], r.event["queue"]) for r in q.reports if r.message_id == bad.id]
    assert kinds == [("sent", "q"), ("received", "q"), ("dead_lettered", "q"), ("sent", "DLQ.q")]
    q.history.freeze()
    assert q.history.of("DLQ.q").counts(q.sim.now).visible == 1


def test_a_hung_consumer_keeps_its_window() -> None:
    """A hung consumer acknowledges nothing more, and the messages that it holds stay in flight."""
    q = queue()
    one = consumer(q, "a", 3)
    for _ in range(5):
        q.send()
    q.sim.run(15)
    one.change(hung=True)
    q.sim.run(600)
    q.history.freeze()
    assert q.history.of("q").counts(q.sim.now)[:2] == (1, 3)
