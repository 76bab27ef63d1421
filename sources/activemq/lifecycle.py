"""What the broker's advisories really mean: advisories in, telemetry events out. No network, no clock.

`apply(advisory, now_ms)` takes them in the order they were read; `flush(now_ms)` tells the ends nothing
contradicted. `now_ms` is this machine's clock, epoch milliseconds. What makes it more than a table of names:

1.  `Consumed` says that a message was removed, and also that somebody acknowledged it in a transaction that
    may still be rolled back. It is told as `deleted` after a grace in which nothing contradicts it: a later
    dispatch, another `Consumed` (the client tried again on its own), a move to a dead-letter queue, an
    expiry. A contradiction that comes later is told all the same, as what it is.
2.  `Consumed` names no consumer: the last dispatch does. The dispatch may be read after it; which one it
    belongs to is known by the dispatch time both carry.
3.  A consumer that leaves gives back what it holds; the broker may hand a message to the next one before it
    says so.
4.  A message moved to a dead-letter queue keeps its id: everything here is keyed by queue and id.
5.  Deliveries are counted by the broker's redelivery counter, never less than what was seen before: the
    broker forgets it at a restart, and a client redelivers without telling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sources.activemq.advisory import (
    Advisory,
    ConnectionClosed,
    ConnectionOpened,
    ConsumerAdded,
    ConsumerFull,
    ConsumerRemoved,
    MessageAdvisory,
    MessageBody,
    Unreadable,
)
from sources.activemq.clock import BrokerClock
from sources.activemq.consumers import Consumer, Registry
from sources.activemq.lore import QueueLore
from sources.activemq.memory import End, Memory, Message
from sources.activemq.moves import Moves, deliveries, reason_of
from sources.activemq.telling import Teller
from sources.events import Event


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait and how much to remember. Milliseconds and counts."""

    grace_ms: int = 2_000
    """How long an end waits for a contradiction."""
    max_in_flight: int = 500_000
    max_ended: int = 200_000
    keep_ended_ms: int = 600_000


class Lifecycle:
    """The state of one broker's messages and consumers. Not thread-safe."""

    def __init__(self, scope: str | None, lore: QueueLore | None = None, limits: Limits | None = None) -> None:
        """`scope` is the broker's name, None while it is not known."""
        self._limits = limits or Limits()
        self.lore = lore or QueueLore()
        self.clock = BrokerClock()
        self.memory = Memory(self._limits.max_in_flight, self._limits.max_ended, self._limits.keep_ended_ms)
        self.consumers = Registry()
        self.teller = Teller(scope, self.lore)
        self._moves = Moves(self._limits.keep_ended_ms)
        self.unreadable: dict[str, int] = {}
        """Advisories that told nothing, by reason."""
        self.bodiless = 0
        """Advisories about messages whose body was empty."""

    def apply(self, advisory: Advisory, now_ms: int) -> list[Event]:
        """The events one advisory gives, maybe none; what waits for a contradiction is told by `flush`."""
        if isinstance(advisory, MessageAdvisory):
            if advisory.body is None:
                self.bodiless += 1
            return _BY_KIND[advisory.kind](self, advisory, now_ms)
        if isinstance(advisory, ConsumerAdded):
            return self._consumer_added(advisory, now_ms)
        if isinstance(advisory, ConsumerRemoved):
            return self._consumer_removed(advisory.consumer, now_ms)
        if isinstance(advisory, ConsumerFull):
            self.consumers.of(advisory.consumer).full = True
        elif isinstance(advisory, ConnectionOpened):
            self.consumers.open_connection(advisory.connection, advisory.client_id)
        elif isinstance(advisory, ConnectionClosed):
            return self._connection_closed(advisory.connection, now_ms)
        else:
            self.unreadable[advisory.reason] = self.unreadable.get(advisory.reason, 0) + 1
        return []

    def flush(self, now_ms: int) -> list[Event]:
        """Tell the ends whose grace is over, and forget what is old."""
        events = [self._tell_end(message, now_ms) for message in self.memory.due(now_ms)]
        self.memory.expire(now_ms)
        self._moves.expire(now_ms)
        return events

    def begin_session(self) -> None:
        """The collector subscribes anew; what happened in between is not known."""
        self.consumers.begin_session()

    def end_replay(self, now_ms: int) -> list[Event]:
        """The broker has repeated its consumers: those it did not repeat are gone."""
        consumers, connections = self.consumers.end_replay()
        events: list[Event] = []
        for consumer in consumers:
            events += self._consumer_removed(consumer, now_ms)
        for connection in connections:
            events += self._connection_closed(connection, now_ms)
        return events

    # -- messages -------------------------------------------------------------------------------------------

    def _delivered(self, advisory: MessageAdvisory, now_ms: int) -> list[Event]:
        queue, message_id, body = advisory.queue, advisory.message_id, advisory.body
        if body is None:
            return [self.teller.sent(queue, message_id, self.clock.at(now_ms), None)]
        self.clock.observe(body.in_ms, now_ms)
        self.lore.learn(queue, body)
        events: list[Event] = []
        known = self.memory.find((queue, message_id))
        if known is not None and known.in_ms is not None and known.in_ms < body.in_ms:
            # It was here before and enters again: its earlier stay is over, nothing more can contradict that.
            if known.ending is not None:
                events.append(self._tell_end(known, now_ms))
            self.memory.drop(known)
        if body.origin_queue is not None and body.origin_queue != queue:
            events += self._arrived_from(body.origin_queue, advisory, body, now_ms)
        events.append(self.teller.sent(queue, message_id, body.in_ms, body))
        return events

    def _arrived_from(self, origin: str, advisory: MessageAdvisory, body: MessageBody, now_ms: int) -> list[Event]:
        """A copy of a message of `origin` arrived: by a dead-letter move, which is told next, or by hand."""
        source = (origin, advisory.message_id)
        waiting = self.memory.find(source)
        if waiting is None or waiting.ending != "dead_lettered":
            self._moves.note(source, advisory.queue, body.failure, now_ms)
            return []
        self._moved_to(waiting, advisory.queue, body.failure)
        return [self._tell_end(waiting, now_ms)]

    def _dispatched(self, advisory: MessageAdvisory, now_ms: int) -> list[Event]:
        body, consumer = advisory.body, advisory.consumer
        if consumer is None:
            return self.apply(Unreadable(advisory.queue, "bad_body"), now_ms)
        if body is not None and body.out_ms:
            self.clock.observe(body.out_ms, now_ms)
        out_ms = body.out_ms if body is not None and body.out_ms else self.clock.at(now_ms)
        message = self._at(advisory, body)
        if message.out_ms is not None and (out_ms, consumer) == (message.out_ms, message.consumer):
            return []
        if message.out_ms is not None and out_ms < message.out_ms:
            return []  # An older dispatch than the one known, read late: it says nothing new.
        self._note_delivery(consumer, advisory.queue, now_ms)
        is_over = self._belongs_to_end(message, out_ms)
        self._refresh(message, body)
        if body is not None:
            # A message taken back unread from a prefetch window was not delivered to anybody: the broker
            # does not count it either.
            gained = body.redeliveries - message.redeliveries if message.out_ms is not None else 0
            message.receive_count = max(body.redeliveries + 1, message.receive_count + max(gained, 0))
            message.redeliveries = body.redeliveries
        message.out_ms = out_ms
        if is_over and message.ended is not None:
            message.consumer = consumer
            return [self.teller.of(message, "received", out_ms)]
        at_ms = max(out_ms, message.last_at_ms + 1)
        if is_over:
            message.consumer = consumer
            message.ending_at_ms = max(message.ending_at_ms, at_ms)
        else:
            self.memory.hold(message, consumer)
        return [self.teller.of(message, "received", at_ms)]

    def _belongs_to_end(self, message: Message, out_ms: int) -> bool:
        """Whether a dispatch is the one that an end, pending or told, refers to: they were read in the wrong
        order."""
        if message.ending is None and message.ended in (None, "released"):
            return False
        if message.ending_out_ms is not None:
            return out_ms <= message.ending_out_ms
        return not message.held_at_ending  # The end came without its body.

    def _consumed(self, advisory: MessageAdvisory, now_ms: int) -> list[Event]:
        body = advisory.body
        message = self._at(advisory, body)
        if body is not None and message.in_ms is not None and body.in_ms < message.in_ms:
            return []  # The end of an earlier stay in this queue, told when the message entered again.
        if message.ended in ("dead_lettered", "expired") or message.ending in ("dead_lettered", "expired"):
            return []  # The removal that belongs to the move or the expiry.
        self._refresh(message, body)
        at_ms = max(self.clock.at(now_ms), message.last_at_ms)
        events: list[Event] = []
        if self._was_acknowledged_before(message, body):
            # The broker delivered it once: the client took it back and tried again on its own.
            message.receive_count += 1
            at_ms = max(at_ms, message.last_at_ms + 1)
            reason = "acknowledged again: the acknowledgement before was rolled back"
            events.append(self.teller.of(message, "received", at_ms, reason))
        self._note_acknowledgement(message, at_ms, now_ms)
        never_dispatched = message.out_ms is None and _dispatch_of(body) == 0
        if never_dispatched and (target := self._moves.take(message.key)) is not None:
            return [*events, self._tell_move(message, target, at_ms, now_ms)]
        purged = "removed without a delivery: purged or deleted by hand" if never_dispatched else None
        self._await_end(message, "deleted", body, at_ms, now_ms, purged)
        return events

    def _was_acknowledged_before(self, message: Message, body: MessageBody | None) -> bool:
        """Whether the same dispatch was acknowledged already."""
        if message.out_ms is None or "deleted" not in (message.ending, message.ended):
            return False
        out_ms = _dispatch_of(body)
        return out_ms is None or message.ending_out_ms is None or out_ms <= message.ending_out_ms

    def _dead_lettered(self, advisory: MessageAdvisory, now_ms: int) -> list[Event]:
        body = advisory.body
        message = self._at(advisory, body)
        if message.ended == "dead_lettered":
            return []
        self._refresh(message, body)
        at_ms = max(self.clock.at(now_ms), message.last_at_ms)
        expired = body is not None and 0 < body.expires_ms <= at_ms
        self._await_end(message, "dead_lettered", body, at_ms, now_ms, "expired" if expired else None)
        if (arrival := self._moves.take_arrival(message.key)) is not None:
            self._moved_to(message, arrival.queue, arrival.failure)
        elif (usual := self.lore.dead_letter_queue_of(message.queue)) is not None:
            message.to_queue = usual
        else:
            return []  # The copy's arrival may still be read; else the move is told without its target.
        return [self._tell_end(message, now_ms)]

    def _expired(self, advisory: MessageAdvisory, now_ms: int) -> list[Event]:
        body = advisory.body
        message = self._at(advisory, body)
        if "dead_lettered" in (message.ending, message.ended) or message.ended == "expired":
            return []  # It was moved because it expired: the move says so.
        self._refresh(message, body)
        at_ms = max(self.clock.at(now_ms), message.last_at_ms)
        self._await_end(message, "expired", body, at_ms, now_ms, "expired")
        return []

    # -- ends -----------------------------------------------------------------------------------------------

    def _await_end(
        self,
        message: Message,
        how: End,
        body: MessageBody | None,
        at_ms: int,
        now_ms: int,
        reason: str | None,
    ) -> None:
        if message.ending is None:
            message.held_at_ending = self.memory.is_held(message)
        message.ending_at_ms, message.reason = at_ms, reason
        message.ending_out_ms = _dispatch_of(body)
        self.memory.await_end(message, how, now_ms + self._limits.grace_ms)

    def _moved_to(self, message: Message, queue: str, failure: str | None) -> None:
        """Its move to the dead-letter queue `queue` is complete."""
        message.to_queue = queue
        message.reason = message.reason or reason_of(failure)
        message.receive_count = max(message.receive_count, deliveries(failure))
        self.lore.learn_move(message.queue, queue)

    def _tell_end(self, message: Message, now_ms: int) -> Event:
        how = message.ending
        assert how is not None, "only a pending end is told"
        event = self.teller.of(message, how, message.ending_at_ms, message.reason)
        if how == "dead_lettered" and message.to_queue is not None:
            event["to_queue"] = message.to_queue
        self.memory.end(message, how, now_ms)
        return event

    def _tell_move(self, message: Message, target: str, at_ms: int, now_ms: int) -> Event:
        """The message was moved to `target` by hand: out of a dead-letter queue that is a redrive."""
        if self.lore.is_dead_letter_queue(message.queue):
            event = self.teller.of(message, "redriven", at_ms)
            event["to_queue"], event["new_message_id"] = target, message.message_id
        else:
            event = self.teller.of(message, "deleted", at_ms, f"moved to {target}")
        self.memory.end(message, "deleted", now_ms)
        return event

    def settle(self, message: Message, now_ms: int, reason: str) -> Event:
        """Tell a message in flight as deleted because the broker's own counts say that it is gone."""
        at_ms = max(self.clock.at(now_ms), message.last_at_ms)
        event = self.teller.of(message, "deleted", at_ms, reason)
        message.ending_out_ms = message.out_ms
        self.memory.end(message, "deleted", now_ms)
        return event

    def reopen(self, message: Message, now_ms: int, reason: str) -> Event:
        """Tell a message that was told as deleted as in flight again, because the broker still counts it
        so."""
        assert message.consumer is not None, "only what a consumer acknowledged can be in flight at it again"
        at_ms = max(self.clock.at(now_ms), message.last_at_ms + 1)
        self.memory.hold(message, message.consumer)
        return self.teller.of(message, "received", at_ms, reason)

    # -- consumers ------------------------------------------------------------------------------------------

    def _consumer_added(self, told: ConsumerAdded, now_ms: int) -> list[Event]:
        if told.browser:
            return []  # It looks and takes nothing.
        at_ms = self.clock.at(now_ms)
        return self._consumer_state(self.consumers.add(told, at_ms), at_ms)

    def _consumer_removed(self, consumer_id: str, now_ms: int) -> list[Event]:
        at_ms = self.clock.at(now_ms)
        held = self.memory.held_by(consumer_id)
        since_ms = min((message.out_ms for message in held if message.out_ms is not None), default=None)
        consumer = self.consumers.remove(consumer_id, at_ms, len(held), since_ms)
        events = []
        for message in held:
            events.append(self.teller.of(message, "released", max(at_ms, message.last_at_ms)))
            self.memory.end(message, "released", now_ms)
        if consumer is not None:
            events += self._consumer_state(consumer, at_ms)
        return events

    def _connection_closed(self, connection: str, now_ms: int) -> list[Event]:
        events: list[Event] = []
        for consumer in self.consumers.close_connection(connection):
            events += self._consumer_state(consumer, self.clock.at(now_ms))
        return events

    def consumer_states(self, now_ms: int) -> list[Event]:
        """The present state of every consumer, and of those that left holding messages while their client
        stayed."""
        at_ms = self.clock.at(now_ms)
        events: list[Event] = []
        for consumer in (*self.consumers, *self.consumers.departed()):
            events += self._consumer_state(consumer, at_ms)
        return events

    def _consumer_state(self, consumer: Consumer, at_ms: int) -> list[Event]:
        held = self.memory.held_count(consumer.consumer)
        is_open = consumer.removed_at_ms is None or self.consumers.connection_open(consumer)
        return self.teller.consumer_state(consumer, at_ms, consumer.attributes(held, is_open))

    def _note_delivery(self, consumer_id: str, queue: str, now_ms: int) -> None:
        consumer = self.consumers.of(consumer_id)
        consumer.changed_local_ms = now_ms
        consumer.queues.add(queue)

    def _note_acknowledgement(self, message: Message, at_ms: int, now_ms: int) -> None:
        if message.consumer is not None and (consumer := self.consumers.get(message.consumer)) is not None:
            consumer.last_ack_at_ms, consumer.changed_local_ms, consumer.full = at_ms, now_ms, False

    # -- what is known of a message -------------------------------------------------------------------------

    def _at(self, advisory: MessageAdvisory, body: MessageBody | None) -> Message:
        """The message an advisory is about; a new one if it is not known or began a new stay in its queue."""
        key = (advisory.queue, advisory.message_id)
        known = self.memory.find(key)
        if known is not None and body is not None and known.in_ms is not None and known.in_ms < body.in_ms:
            self.memory.drop(known)
            known = None
        return known or Message(*key)

    def _refresh(self, message: Message, body: MessageBody | None) -> None:
        if body is None:
            return
        self.lore.learn(message.queue, body)
        message.in_ms = body.in_ms
        message.group, message.position = body.group, body.position
        message.sent_at_ms = self.teller.sent_at_ms(message.queue, body)


def _dispatch_of(body: MessageBody | None) -> int | None:
    """When the message was dispatched in this queue, 0: never; a moved copy still bears the time of its
    former queue."""
    if body is None:
        return None
    return body.out_ms if body.out_ms >= body.in_ms else 0


_BY_KIND: Mapping[str, Callable[[Lifecycle, MessageAdvisory, int], list[Event]]] = {
    "delivered": Lifecycle._delivered,
    "dispatched": Lifecycle._dispatched,
    "consumed": Lifecycle._consumed,
    "dead_lettered": Lifecycle._dead_lettered,
    "expired": Lifecycle._expired,
}
