"""Track the broker's consumers, and those that left while holding messages, from its advisories and statistics.

An aborted consumer notices nothing when the broker keeps its connection: its late acknowledgements are
confirmed and dropped. So a consumer that left holding messages is reported until its connection is gone too
(`connection_open`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sources.activemq.advisory import ConsumerAdded

MAX_DEPARTED = 1_000
MAX_LEFT = 10_000
"""How many consumers that left are remembered: the dispatch to one may be read after that."""

_OVERTAKEN_MS = 1_000
"""A dispatch that is read after its consumer left carries the time of the next dispatch, at most this long after that."""


@dataclass(slots=True)
class Consumer:
    """One subscription. Times `_ms` are the broker's, `_local_ms` this machine's."""

    consumer: str
    connection: str
    session: int
    destination: str = ""
    prefetch: int | None = None
    client_id: str | None = None
    exclusive: bool = False
    network: bool = False
    since_ms: int | None = None
    whole: bool = False
    """Whether everything dispatched to it was seen: it subscribed while the collector was listening."""
    last_ack_at_ms: int | None = None
    changed_local_ms: int = 0
    """When a message was last dispatched to it or acknowledged by it."""
    named: set[str] = field(default_factory=set)
    """The queues it subscribed to by name."""
    given: dict[str, int] = field(default_factory=dict)
    """The queues from which a wildcard gave it messages -> when it did so last, by this machine's clock."""
    broker_dispatched: int | None = None
    """The broker's own count of the messages it holds; None while unknown."""
    full: bool | None = None
    """Whether the broker reports that its prefetch window is full while more messages wait."""
    removed_at_ms: int | None = None
    returned: int = 0
    """How many messages it held when it left."""
    returned_since_ms: int | None = None
    """When the oldest of these had been dispatched to it."""

    @property
    def queues(self) -> set[str]:
        """The queues from which it is known to take messages."""
        return self.named | self.given.keys()

    def attributes(self, held: int, connection_open: bool) -> dict[str, Any]:
        """Return the attributes of its `consumer_state`, without unknown ones. `held` is our own count."""
        connected = self.removed_at_ms is None
        # Only the broker's count includes messages dispatched before the collector listened.
        dispatched = held if self.whole or self.broker_dispatched is None else self.broker_dispatched
        returned = self.returned if self.whole else max(self.returned, self.broker_dispatched or 0)
        values = {
            "prefetch": self.prefetch,
            "dispatched": dispatched if connected else 0,
            "connected": connected,
            "connection_open": connection_open,
            "connected_at": self.since_ms,
            "last_ack_at": self.last_ack_at_ms,
            "client_id": self.client_id,
            "exclusive": self.exclusive,
            "network": self.network,
            "full": self.full,
            "removed_at": self.removed_at_ms,
            "returned": None if connected else returned,
            "returned_since": self.returned_since_ms,
        }
        return {name: value for name, value in values.items() if value is not None}


class Registry:
    """The current consumers and connections, and consumers that left recently."""

    def __init__(self) -> None:
        self._consumers: dict[str, Consumer] = {}
        self._connections: dict[str, str | None] = {}
        self._departed: OrderedDict[str, Consumer] = OrderedDict()
        self._left: OrderedDict[str, int] = OrderedDict()
        """Consumer -> when it left, by the broker's clock."""
        self._unconfirmed: set[str] = set()
        self._unconfirmed_connections: set[str] = set()
        self.replaying = True
        """Whether the broker is still repeating its existing consumers: those announced now need not be new."""

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._consumers.values())

    def get(self, consumer: str) -> Consumer | None:
        """Return the consumer, if it exists."""
        return self._consumers.get(consumer)

    def of(self, consumer: str) -> Consumer:
        """Return the consumer; one that holds messages exists even if it was never announced."""
        found = self._consumers.get(consumer)
        if found is None:
            connection, session = split_consumer_id(consumer)
            found = self._consumers[consumer] = Consumer(consumer, connection, session)
        return found

    def add(self, added: ConsumerAdded, at_ms: int) -> Consumer:
        """Record an announced consumer; an announcement repeated in a new session confirms it."""
        consumer = self.of(added.consumer)
        self._left.pop(added.consumer, None)
        is_first = not consumer.destination  # It may have been given a message before it was announced.
        self._unconfirmed.discard(added.consumer)
        consumer.destination = added.destination
        consumer.prefetch = added.prefetch
        consumer.client_id = added.client_id or self._connections.get(added.connection)
        consumer.exclusive, consumer.network = added.exclusive, added.network
        consumer.named.update(named_queues(added.destination))
        for queue in consumer.named:
            consumer.given.pop(queue, None)
        if is_first and not self.replaying:
            consumer.since_ms, consumer.whole = at_ms, True
        return consumer

    def remove(self, consumer: str, at_ms: int, returned: int, returned_since_ms: int | None) -> Consumer | None:
        """Record that a consumer left and returned `returned` messages; returns None when it was unknown."""
        self._unconfirmed.discard(consumer)
        self._left[consumer] = at_ms
        self._left.move_to_end(consumer)
        while len(self._left) > MAX_LEFT:
            self._left.popitem(last=False)
        found = self._consumers.pop(consumer, None)
        if found is None:
            return None
        found.removed_at_ms, found.returned, found.returned_since_ms = at_ms, returned, returned_since_ms
        if returned and self.connection_open(found):
            self._departed[consumer] = found
            while len(self._departed) > MAX_DEPARTED:
                self._departed.popitem(last=False)
        return found

    def had_left(self, consumer: str, at_ms: int) -> bool:
        """Whether a dispatch to the consumer that carries `at_ms` (the broker's clock) was before the consumer left.

        A client that reconnects keeps its consumers' ids, and a dispatch may be read before the consumer is announced again.
        """
        left_at_ms = self._left.get(consumer)
        return left_at_ms is not None and at_ms <= left_at_ms + _OVERTAKEN_MS

    def open_connection(self, connection: str, client_id: str | None) -> None:
        """Record that a client connected."""
        self._connections[connection] = client_id
        self._unconfirmed_connections.discard(connection)

    def close_connection(self, connection: str) -> list[Consumer]:
        """Record that a client disconnected; return the consumers that had left before while holding messages."""
        self._connections.pop(connection, None)
        self._unconfirmed_connections.discard(connection)
        gone = [consumer for consumer in self._departed.values() if consumer.connection == connection]
        for consumer in gone:
            del self._departed[consumer.consumer]
        return gone

    def connection_open(self, consumer: Consumer) -> bool:
        """Whether the consumer's client is still connected."""
        return consumer.connection in self._connections

    def departed(self) -> list[Consumer]:
        """Consumers that left holding messages while their client stayed."""
        return list(self._departed.values())

    def begin_session(self) -> None:
        """Start a session: the broker is about to repeat what exists, anything else is gone."""
        self.replaying = True
        self._unconfirmed = set(self._consumers)
        self._unconfirmed_connections = set(self._connections)
        for consumer in self._consumers.values():
            consumer.whole = False

    def end_replay(self) -> tuple[list[str], list[str]]:
        """End the repetition; return the consumers and connections that no longer exist."""
        self.replaying = False
        return sorted(self._unconfirmed), sorted(self._unconfirmed_connections)


def split_consumer_id(consumer: str) -> tuple[str, int]:
    """Return the connection and session of a consumer id, which has the form `connection:session:number`.

    An id of another form is taken for that of a connection, with session 0.
    """
    session_id, _, _ = consumer.rpartition(":")
    connection, _, session = session_id.rpartition(":")
    try:
        return connection, int(session)
    except ValueError:
        return consumer, 0


def named_queues(destination: str) -> list[str]:
    """Return the queues that a destination names in full: `a,queue://b` names two, `a.>` none."""
    names = (part.strip().removeprefix("queue://") for part in destination.split(","))
    return [name for name in names if name and not is_wildcard(name) and "://" not in name]


def is_wildcard(queue: str) -> bool:
    """Whether an element of the name is one of the broker's wildcards."""
    return any(element in ("*", ">") for element in queue.split("."))
