"""Every order of advisories known from a real broker: what is done, and the events that must result.

Each row is run twice: from the recorded frames in `recorded/`, and against a running broker.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sources.events import Event
from tests.sources.activemq.lab import Lab

POLICY_QUEUE = "plain.>"
"""Queues under this pattern have the broker's default dead-letter strategy: non-persistent messages are lost."""


@dataclass(frozen=True)
class Order:
    """One row; `expected` names consumers A, B… in order of appearance."""

    name: str
    do: Callable[[Lab, str], None]
    """Called with the lab and a queue's name."""
    expected: tuple[str, ...]
    why: str
    queue_prefix: str = "o"
    advisories_take_s: float = 0.5
    """The row ends when no advisory has arrived for this long."""
    may_lack: str | None = None
    """An expected line that is missing when a race in the broker makes it needless."""

    @property
    def queue(self) -> str:
        return f"{self.queue_prefix}.{self.name}"

    def is_about(self, destination: str) -> bool:
        """Return whether an advisory topic concerns this row's queue, or a queue named after it."""
        queue = destination.partition(".Queue.")[2].removeprefix("DLQ.")
        return queue.removesuffix(".moved").removesuffix(".copied") == self.queue

    def check(self, events: Sequence[Event]) -> None:
        """Compare the events with those expected. Raises `AssertionError`."""
        found = describe(events, self.queue)
        expected = [line for line in self.expected if line != self.may_lack or line in found]
        assert found == expected, f"{self.why}: {found}"


def describe(events: Sequence[Event], queue: str) -> list[str]:
    """Return the message events about a queue and queues named after it, one line each, by message, queue and time.

    Arrivals carry the broker's time, and a client's own redeliveries the time at which their advisory was read: on a busy machine
    the last of them may seem later than the move to a dead-letter queue, so the times of two queues are not compared.
    """
    names: dict[str, str] = {}
    lines = []
    about = [event for event in events if "message_id" in event]
    messages = list(dict.fromkeys(event["message_id"] for event in about))

    def place(event: Event) -> tuple[int, bool, int, int]:
        return messages.index(event["message_id"]), event["queue"] != queue, event["at"], _RANK[event["type"]]

    for event in sorted(about, key=place):
        words = [event["type"], event["queue"].replace(queue, "q")]
        if "receive_count" in event:
            words.append(f"x{event['receive_count']}")
        if "consumer" in event:
            words.append("by " + names.setdefault(event["consumer"], "ABCDEFG"[len(names)]))
        if "to_queue" in event:
            words.append("to " + event["to_queue"].replace(queue, "q"))
        lines.append(" ".join(words))
    return lines


# The order of one message's events within a millisecond: sent, received, released, settled.
_RANK = {"sent": 1, "received": 2, "released": 3, "deleted": 4, "dead_lettered": 5, "redriven": 6, "expired": 7}


def _normal(lab: Lab, queue: str) -> None:
    client = lab.client()
    client.subscribe(queue)
    client.send(queue)
    client.ack(client.receive())


def _auto_ack(lab: Lab, queue: str) -> None:
    client = lab.client()
    client.subscribe(queue, ack="auto")
    client.send(queue)
    client.receive()


def _nack(lab: Lab, queue: str) -> None:
    client = lab.client()
    client.subscribe(queue)
    client.send(queue)
    client.nack(client.receive())


def _nack_non_persistent(lab: Lab, queue: str) -> None:
    client = lab.client()
    client.subscribe(queue)
    client.send(queue, persistent="false")
    client.nack(client.receive())


def _expire(lab: Lab, queue: str) -> None:
    lab.client().send(queue, expires=str(int(time.time() * 1000) + 300))


def _expire_for_good(lab: Lab, queue: str) -> None:
    lab.client().send(queue, persistent="false", expires=str(int(time.time() * 1000) + 300))


def _expire_while_held(lab: Lab, queue: str) -> None:
    client = lab.client()
    client.subscribe(queue)
    client.send(queue, expires=str(int(time.time() * 1000) + 300))
    frame = client.receive()
    time.sleep(1.6)  # past the expiry and the broker's next check for expired messages
    client.ack(frame)


def _disconnect(lab: Lab, queue: str) -> None:
    first = lab.client()
    first.subscribe(queue)
    first.send(queue)
    first.receive()
    first.close()
    time.sleep(1.0)  # on a busy machine the broker takes a moment to notice
    second = lab.client()
    second.subscribe(queue)
    second.ack(second.receive())


def _die(lab: Lab, queue: str) -> None:
    second = lab.client()
    first = lab.client()
    first.subscribe(queue, prefetch=1)
    first.send(queue)
    first.receive()
    second.subscribe(queue, prefetch=1)
    # On a busy machine the broker takes a moment to report the first delivery, and would report the count of the second.
    time.sleep(0.3)
    first.drop()
    second.ack(second.receive())


def _stomp_commit(lab: Lab, queue: str) -> None:
    client = lab.client()
    client.subscribe(queue)
    client.send(queue)
    frame = client.receive()
    transaction = client.connection.begin()
    client.ack(frame, transaction)
    client.connection.commit(transaction)


def _stomp_abort(lab: Lab, queue: str) -> None:
    client = lab.client()
    client.subscribe(queue)
    client.send(queue)
    frame = client.receive()
    transaction = client.connection.begin()
    client.ack(frame, transaction)
    time.sleep(0.2)
    client.connection.abort(transaction)
    time.sleep(0.2)
    client.ack(frame)


def _jms(*actions: str) -> Callable[[Lab, str], None]:
    def do(lab: Lab, queue: str) -> None:
        for action in actions:
            lab.jms(action, queue)

    return do


def _retry(lab: Lab, queue: str) -> None:
    client = lab.client()
    subscription = client.subscribe(queue)
    client.send(queue)
    client.nack(client.receive())
    time.sleep(0.3)
    client.connection.unsubscribe(subscription)
    lab.jms("retry", f"DLQ.{queue}")


def _retry_given_up(lab: Lab, queue: str) -> None:
    lab.jms("send", queue)
    lab.jms("recover", queue)
    time.sleep(0.3)
    lab.jms("retry", f"DLQ.{queue}")
    client = lab.client()
    client.subscribe(queue)
    client.ack(client.receive())


ORDERS: tuple[Order, ...] = (
    Order("normal", _normal, ("sent q", "received q x1 by A", "deleted q x1 by A"), "the plain way"),
    Order(
        "auto_ack",
        _auto_ack,
        ("sent q", "received q x1 by A", "deleted q x1 by A"),
        "the acknowledgement may be reported before the dispatch it belongs to",
    ),
    Order(
        "nack",
        _nack,
        ("sent q", "received q x1 by A", "dead_lettered q x1 by A to DLQ.q", "sent DLQ.q"),
        "a STOMP NACK goes straight to the dead-letter queue, where the message keeps its id",
    ),
    Order(
        "nack_non_persistent",
        _nack_non_persistent,
        ("sent q", "received q x1 by A", "deleted q x1 by A"),
        "without a dead-letter queue for non-persistent messages a NACK looks like an acknowledgement",
        queue_prefix="plain",
    ),
    Order(
        "expire",
        _expire,
        ("sent q", "dead_lettered q to DLQ.q", "sent DLQ.q"),
        "the move is reported first, then the expiry, then a removal: one event",
        advisories_take_s=2.0,
    ),
    Order(
        "expire_for_good",
        _expire_for_good,
        ("sent q", "expired q"),
        "nothing is kept of an expired message that no dead-letter queue takes",
        queue_prefix="plain",
        advisories_take_s=2.0,
    ),
    Order(
        "expire_while_held",
        _expire_while_held,
        ("sent q", "received q x1 by A", "deleted q x1 by A"),
        "a message that expires at its consumer is never reported",
    ),
    Order(
        "disconnect",
        _disconnect,
        (
            "sent q",
            "received q x1 by A",
            "released q x1 by A",
            "received q x2 by B",
            "deleted q x2 by B",
        ),
        "what a consumer held when it left is delivered again",
    ),
    Order(
        "die",
        _die,
        (
            "sent q",
            "received q x1 by A",
            "released q x1 by A",
            "received q x2 by B",
            "deleted q x2 by B",
        ),
        "the next dispatch may be reported before the consumer's end",
        may_lack="released q x1 by A",
    ),
    Order(
        "recover",
        _jms("send", "recover"),
        ("sent q", "received q x1 by A", "dead_lettered q x3 by A to DLQ.q", "sent DLQ.q"),
        "a client's own redeliveries are invisible, but the broker records how many there were",
    ),
    Order(
        "rollback",
        _jms("send", "rollback"),
        (
            "sent q",
            "received q x1 by A",
            "received q x2 by A",
            "received q x3 by A",
            "dead_lettered q x3 by A to DLQ.q",
            "sent DLQ.q",
        ),
        "each attempt is reported as an acknowledgement; the next one proves it wrong",
    ),
    Order(
        "commit",
        _jms("send", "commit"),
        ("sent q", "received q x1 by A", "deleted q x1 by A"),
        "an acknowledgement in a transaction is reported before the commit",
    ),
    Order(
        "close_uncommitted",
        _jms("send", "close_uncommitted", "commit"),
        ("sent q", "received q x1 by A", "received q x2 by B", "deleted q x2 by B"),
        "a transaction that ends with its connection is rolled back: the next dispatch proves it",
    ),
    Order(
        "read_one_of_two",
        _jms("send2", "read_one_of_two", "read_one_of_two"),
        (
            "sent q",
            "received q x1 by A",
            "deleted q x1 by A",
            "sent q",
            "received q x1 by A",
            "released q x1 by A",
            "received q x1 by B",
            "deleted q x1 by B",
        ),
        "a message given back unread from a prefetch window was never delivered to anybody",
    ),
    Order(
        "stomp_commit",
        _stomp_commit,
        ("sent q", "received q x1 by A", "deleted q x1 by A"),
        "BEGIN and ACK are reported, COMMIT is not",
    ),
    Order(
        "stomp_abort",
        _stomp_abort,
        ("sent q", "received q x1 by A", "received q x2 by A", "deleted q x2 by A"),
        "ABORT is never reported; the second acknowledgement proves the first one wrong",
    ),
    Order(
        "purge",
        _jms("send2", "purge"),
        ("sent q", "deleted q", "sent q", "deleted q"),
        "a purge is reported as one removal after another, by no consumer",
    ),
    Order(
        "move",
        _jms("send", "move"),
        ("sent q", "deleted q", "sent q.moved"),
        "a message moved by hand arrives in the other queue before it is removed here",
    ),
    Order("copy", _jms("send", "copy"), ("sent q", "sent q.copied"), "a copy removes nothing"),
    Order(
        "retry",
        _retry,
        (
            "sent q",
            "received q x1 by A",
            "dead_lettered q x1 by A to DLQ.q",
            "sent q",
            "sent DLQ.q",
            "redriven DLQ.q to q",
        ),
        "retryMessages brings a dead letter back under its old id",
    ),
    Order(
        "retry_given_up",
        _retry_given_up,
        (
            "sent q",
            "received q x1 by A",
            "dead_lettered q x3 by A to DLQ.q",
            "sent q",
            "received q x1 by B",
            "deleted q x1 by B",
            "sent DLQ.q",
            "redriven DLQ.q to q",
        ),
        "a dead letter keeps the cause of its move when it is back in its queue",
    ),
)
