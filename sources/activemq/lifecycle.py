"""Translates the broker's advisories into telemetry events. No network, no clock.

`apply(advisory, now_ms)` processes them in the order they were read; `flush(now_ms)` reports the ends that were
not contradicted. `now_ms` is this machine's clock, epoch milliseconds. What makes it more than a lookup table:

1.  `Consumed` means that a message was removed, or that a client acknowledged it in a transaction that may
    still be rolled back. It is reported as `deleted` after a grace period in which nothing contradicts it: a
    later dispatch, another `Consumed` (the client retried by itself), a move to a dead-letter queue, an
    expiry. A later contradiction is still reported as what it is.
2.  `Consumed` names no consumer: the last dispatch does. The dispatch may be read after it; the dispatch time
    that both carry identifies the one it belongs to.
3.  A consumer that leaves returns the messages it holds; the broker may dispatch one of them to the next
    consumer before it reports that. It may even report the two dispatches in the wrong order, and both with
    the time and the redelivery counter of the second: the consumer that left does not hold the message.
4.  A message moved to a dead-letter queue keeps its id: everything here is keyed by queue and id.
5.  Deliveries are counted by the broker's redelivery counter, but never less than seen before: the broker
    resets it at a restart, and a client redelivers without notice.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
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
from sources.activemq.event_builder import EventBuilder
from sources.activemq.memory import End, Memory, Message
from sources.activemq.moves import EXPIRED, Moves, deliveries, reason_of
from sources.activemq.queue_traits import QueueTraits
from sources.events import Event


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait, and how much to remember. Milliseconds and counts."""

    grace_ms: int = 2_000
    """How long an end waits for a contradiction."""
    max_in_flight: int = 500_000
    max_ended: int = 200_000
    keep_ended_ms: int = 600_000


class Lifecycle:
    """The state of one broker's messages and consumers. Not thread-safe."""

    def __init__(self, scope: str | None, traits: QueueTraits | None = None, limits: Limits | None = None) -> None:
        """`scope` is the broker's name, None while it is not known."""
        self._limits = limits or Limits()
        self.traits = traits or QueueTraits()
        self.builder = EventBuilder(scope, self.traits)
        self._forget()
        self.unreadable: dict[str, int] = {}
        """Advisories without usable content, by reason."""
        self.bodiless = 0
        """Advisories about messages with an empty body."""

    def apply(self, advisory: Advisory, now_ms: int) -> list[Event]:
        """Return the events of one advisory, if any; an end that may be contradicted is reported by `flush`."""
        if isinstance(advisory, MessageAdvisory):
            if advisory.body is None:
                self.bodiless += 1
            return _BY_KIND[advisory.kind](self, advisory, now_ms)
        if isinstance(advisory, ConsumerAdded):
            return self._consumer_added(advisory, now_ms)
        if isinstance(advisory, ConsumerRemoved):
            return self._consumer_removed(advisory.consumer, now_ms)
        if isinstance(advisory, ConsumerFull):
            # One that has left, of which this is read late, must not seem to exist again.
            if (consumer := self.consumers.get(advisory.consumer)) is not None:
                consumer.full = True
        elif isinstance(advisory, ConnectionOpened):
            self.consumers.open_connection(advisory.connection, advisory.client_id)
        elif isinstance(advisory, ConnectionClosed):
            return self._connection_closed(advisory.connection, now_ms)
        else:
            self.unreadable[advisory.reason] = self.unreadable.get(advisory.reason, 0) + 1
        return []

    def flush(self, now_ms: int) -> list[Event]:
        """Report the ends whose grace period is over, and forget old ones."""
        events = [self._end_event(message, now_ms) for message in self.memory.due(now_ms, self._limits.grace_ms)]
        self.memory.expire(now_ms)
        self._moves.expire(now_ms)
        return events

    def _forget(self) -> None:
        self.clock = BrokerClock()
        self.memory = Memory(self._limits.max_in_flight, self._limits.max_ended, self._limits.keep_ended_ms)
        self.consumers = Registry()
        self._moves = Moves(self._limits.keep_ended_ms)

    def change_broker(self, scope: str, now_ms: int) -> list[Event]:
        """Start anew with another broker: forget the one before; return the ends of its messages that were pending."""
        events = self.flush(now_ms + self._limits.grace_ms)
        self._forget()
        self.builder.scope = scope
        return events

    def begin_session(self) -> None:
        """Start a session; events since the last one are unknown."""
        self.consumers.begin_session()

    def end_replay(self, now_ms: int) -> list[Event]:
        """End the repetition of the broker's consumers: those not repeated are gone."""
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
            return [self.builder.sent(queue, message_id, self.clock.at(now_ms), None)]
        self.clock.observe(body.in_ms, now_ms)
        self.traits.learn(queue, body)
        events: list[Event] = []
        known = self.memory.find((queue, message_id))
        if known is not None and known.in_ms is not None and known.in_ms < body.in_ms:
            # It re-enters: its earlier stay is over, and nothing can contradict that any more.
            if known.ending is not None:
                events.append(self._end_event(known, now_ms))
            self.memory.drop(known)
        if body.origin_queue is not None and body.origin_queue != queue:
            events += self._arrived_from(body.origin_queue, advisory, body, now_ms)
        events.append(self.builder.sent(queue, message_id, body.in_ms, body))
        return events

    def _arrived_from(self, origin: str, advisory: MessageAdvisory, body: MessageBody, now_ms: int) -> list[Event]:
        """Handle the arrival of a copy of a message of `origin`: by a dead-letter move, reported next, or by hand."""
        source = (origin, advisory.message_id)
        waiting = self.memory.find(source)
        if waiting is None or waiting.ending != "dead_lettered":
            self._moves.note(source, advisory.queue, body.failure, now_ms)
            return []
        self._moved_to(waiting, advisory.queue, body.failure)
        return [self._end_event(waiting, now_ms)]

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
            return []  # An older dispatch than the known one, read late: it adds nothing.
        has_left = self.consumers.had_left(consumer, out_ms)
        if has_left and out_ms == message.out_ms:
            return []  # The next dispatch was read before, and both carry its time.
        if not has_left:
            self._note_delivery(consumer, advisory.queue, now_ms)
        message.rival = message.consumer if out_ms == message.out_ms and self.memory.is_held(message) else None
        is_over = self._belongs_to_end(message, out_ms)
        self._refresh(message, body)
        if body is not None:
            # A message returned unread from a prefetch window was not delivered: the broker does not
            # count it either.
            gained = body.redeliveries - message.redeliveries if message.out_ms is not None else 0
            message.receive_count = max(body.redeliveries + 1, message.receive_count + max(gained, 0))
            message.redeliveries = body.redeliveries
        message.out_ms = out_ms
        if is_over:
            message.consumer = consumer
            if message.reason != EXPIRED:
                self._note_acknowledgement(message, message.ending_at_ms, now_ms)
        if is_over and message.ended is not None:
            return [self.builder.of(message, "received", out_ms)]
        at_ms = max(out_ms, message.last_at_ms + 1)
        if is_over:
            message.ending_at_ms = max(message.ending_at_ms, at_ms)
        else:
            self.memory.hold(message, consumer)
        received = self.builder.of(message, "received", at_ms)
        if is_over or not has_left:
            return [received]
        self.memory.end(message, "released", now_ms)
        return [received, self.builder.of(message, "released", at_ms)]

    def _belongs_to_end(self, message: Message, out_ms: int) -> bool:
        """Whether an end, pending or reported, belongs to this dispatch: they were read in the wrong order."""
        if message.ending is None and message.ended in (None, "released"):
            return False
        if message.ending_out_ms is not None:
            return out_ms <= message.ending_out_ms
        return not message.held_at_ending  # The end came without its body.

    def _consumed(self, advisory: MessageAdvisory, now_ms: int) -> list[Event]:
        body = advisory.body
        message = self._at(advisory, body)
        if body is not None and message.in_ms is not None and body.in_ms < message.in_ms:
            return []  # The end of an earlier stay in this queue, reported when the message re-entered.
        if message.ended in ("dead_lettered", "expired") or message.ending in ("dead_lettered", "expired"):
            return []  # The removal that is part of the move or the expiry.
        self._refresh(message, body)
        at_ms = max(self.clock.at(now_ms), message.last_at_ms)
        events: list[Event] = []
        if self._was_acknowledged_before(message, body):
            # The broker delivered it once: the client took it back and retried by itself.
            message.receive_count += 1
            at_ms = max(at_ms, message.last_at_ms + 1)
            reason = "acknowledged again: the acknowledgement before was rolled back"
            events.append(self.builder.of(message, "received", at_ms, reason))
        self._note_acknowledgement(message, at_ms, now_ms)
        never_dispatched = message.out_ms is None and _dispatch_of(body) == 0
        if never_dispatched and (target := self._moves.take(message.key)) is not None:
            return [*events, self._move_event(message, target, at_ms, now_ms)]
        purged = "removed without a delivery: purged or deleted by hand" if never_dispatched else None
        self._await_end(message, "deleted", body, at_ms, now_ms, purged)
        return events

    def _was_acknowledged_before(self, message: Message, body: MessageBody | None) -> bool:
        """Whether the same dispatch was already acknowledged."""
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
        arrival, failure = self._moves.take_arrival(message.key), None
        reason = EXPIRED if body is not None and 0 < body.expires_ms <= at_ms else None
        if arrival is not None:
            # Only this tells the rejection of a message that is past its expiry from the expiry itself. One that expired and was
            # moved back has no expiry any more, and kept the cause of that move.
            has_kept = body is not None and not body.expires_ms and reason_of(arrival.failure) == EXPIRED
            failure = None if has_kept else arrival.failure
            reason = reason_of(failure)
        self._await_end(message, "dead_lettered", body, at_ms, now_ms, reason)
        if reason != EXPIRED:
            # Its consumer rejected it, which the broker counts as an acknowledgement.
            self._note_acknowledgement(message, at_ms, now_ms)
        if arrival is not None:
            self._moved_to(message, arrival.queue, failure)
        elif (usual := self.traits.dead_letter_queue_of(message.queue)) is not None:
            message.to_queue = usual
        else:
            return []  # The copy's arrival may still be read; otherwise the move is reported without its target.
        return [self._end_event(message, now_ms)]

    def _expired(self, advisory: MessageAdvisory, now_ms: int) -> list[Event]:
        body = advisory.body
        message = self._at(advisory, body)
        if "dead_lettered" in (message.ending, message.ended) or message.ended == "expired":
            return []  # It was moved because it expired: the move reports that.
        self._refresh(message, body)
        at_ms = max(self.clock.at(now_ms), message.last_at_ms)
        self._await_end(message, "expired", body, at_ms, now_ms, EXPIRED)
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
        """Complete its move to the dead-letter queue `queue`."""
        message.to_queue = queue
        message.reason = reason_of(failure)
        message.receive_count = max(message.receive_count, deliveries(failure))
        self.traits.learn_move(message.queue, queue)

    def _end_event(self, message: Message, now_ms: int) -> Event:
        how = message.ending
        assert how is not None, "only a pending end is reported"
        event = self.builder.of(message, how, message.ending_at_ms, message.reason)
        if how == "dead_lettered" and message.to_queue is not None:
            event["to_queue"] = message.to_queue
        self.memory.end(message, how, now_ms)
        return event

    def _move_event(self, message: Message, target: str, at_ms: int, now_ms: int) -> Event:
        """Report a message moved to `target` by hand: from a dead-letter queue, that is a redrive."""
        if self.traits.is_dead_letter_queue(message.queue):
            event = self.builder.redriven(message, target, at_ms)
        else:
            event = self.builder.of(message, "deleted", at_ms, f"moved to {target}")
        self.memory.end(message, "deleted", now_ms)
        return event

    def settle(self, message: Message, now_ms: int, reason: str) -> Event:
        """Report a message in flight as deleted because it is missing from the broker's own counts."""
        at_ms = max(self.clock.at(now_ms), message.last_at_ms)
        event = self.builder.of(message, "deleted", at_ms, reason)
        message.ending_out_ms = message.out_ms
        self.memory.end(message, "deleted", now_ms)
        return event

    def reopen(self, message: Message, now_ms: int, reason: str) -> Event:
        """Report a deleted message as in flight again, because the broker still counts it as such."""
        assert message.consumer is not None, "only what a consumer acknowledged can be in flight at it again"
        at_ms = max(self.clock.at(now_ms), message.last_at_ms + 1)
        self.memory.hold(message, message.consumer)
        return self.builder.of(message, "received", at_ms, reason)

    # -- consumers ------------------------------------------------------------------------------------------

    def _consumer_added(self, added: ConsumerAdded, now_ms: int) -> list[Event]:
        if added.browser:
            return []  # A browser, which takes no messages.
        at_ms = self.clock.at(now_ms)
        return self._consumer_state(self.consumers.add(added, at_ms), at_ms)

    def _consumer_removed(self, consumer_id: str, now_ms: int) -> list[Event]:
        at_ms = self.clock.at(now_ms)
        held = self.memory.held_by(consumer_id)
        elsewhere = [message for message in held if message.rival is not None and self.consumers.get(message.rival) is not None]
        events = [self._handed_over(message, at_ms) for message in elsewhere]
        held = self.memory.held_by(consumer_id)
        since_ms = min((message.out_ms for message in held if message.out_ms is not None), default=None)
        consumer = self.consumers.remove(consumer_id, at_ms, len(held), since_ms)
        for message in held:
            events.append(self.builder.of(message, "released", max(at_ms, message.last_at_ms)))
            self.memory.end(message, "released", now_ms)
        if consumer is not None:
            events += self._consumer_state(consumer, at_ms)
        return events

    def _handed_over(self, message: Message, at_ms: int) -> Event:
        """Report that its other consumer holds it: of two dispatches with the same time, this was the last."""
        assert message.rival is not None, "the caller has checked that it has another consumer"
        self.memory.hold(message, message.rival)
        message.rival = None
        return self.builder.of(message, "received", max(at_ms, message.last_at_ms + 1))

    def _connection_closed(self, connection: str, now_ms: int) -> list[Event]:
        events: list[Event] = []
        for consumer in self.consumers.close_connection(connection):
            events += self._consumer_state(consumer, self.clock.at(now_ms))
        return events

    def consumer_states(self, now_ms: int) -> list[Event]:
        """Return the state of every consumer, including those that left holding messages while their client stayed."""
        at_ms = self.clock.at(now_ms)
        events: list[Event] = []
        for consumer in (*self.consumers, *self.consumers.departed()):
            events += self._consumer_state(consumer, at_ms)
        return events

    def forget_queues(self, before_ms: int, existing: Container[str] = ()) -> None:
        """Forget which wildcards took messages from queues that are not `existing`, and held none of them.

        Only those from which none was taken since `before_ms`, by this machine's clock.
        """
        for consumer in self.consumers:
            gone = {queue for queue, at_ms in consumer.given.items() if at_ms < before_ms and queue not in existing}
            if gone:
                gone.difference_update(message.queue for message in self.memory.held_by(consumer.consumer))
            for queue in gone:
                del consumer.given[queue]

    def _consumer_state(self, consumer: Consumer, at_ms: int) -> list[Event]:
        held = self.memory.held_count(consumer.consumer)
        is_open = consumer.removed_at_ms is None or self.consumers.connection_open(consumer)
        return self.builder.consumer_state(consumer, at_ms, consumer.attributes(held, is_open))

    def _note_delivery(self, consumer_id: str, queue: str, now_ms: int) -> None:
        consumer = self.consumers.of(consumer_id)
        consumer.changed_local_ms = now_ms
        if queue not in consumer.named:
            consumer.given[queue] = now_ms

    def _note_acknowledgement(self, message: Message, at_ms: int, now_ms: int) -> None:
        if message.consumer is not None and (consumer := self.consumers.get(message.consumer)) is not None:
            consumer.last_ack_at_ms = max(at_ms, consumer.last_ack_at_ms or 0)
            consumer.changed_local_ms, consumer.full = now_ms, False

    # -- what is known of a message -------------------------------------------------------------------------

    def _at(self, advisory: MessageAdvisory, body: MessageBody | None) -> Message:
        """Return the message an advisory is about; a new one if it is unknown or began a new stay in its queue."""
        key = (advisory.queue, advisory.message_id)
        known = self.memory.find(key)
        if known is not None and body is not None and known.in_ms is not None and known.in_ms < body.in_ms:
            self.memory.drop(known)
            known = None
        return known or Message(*key)

    def _refresh(self, message: Message, body: MessageBody | None) -> None:
        if body is None:
            return
        self.traits.learn(message.queue, body)
        message.in_ms = body.in_ms
        message.group, message.position = body.group, body.position
        message.sent_at_ms = self.builder.sent_at_ms(message.queue, body)


def _dispatch_of(body: MessageBody | None) -> int | None:
    """Return when the message was dispatched in this queue, 0 for never.

    A moved copy still carries the time of its former queue.
    """
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
