"""Build telemetry events of the contract from the known messages and consumers."""

from __future__ import annotations

from typing import Any

from sources.activemq.advisory import MessageBody
from sources.activemq.consumers import Consumer
from sources.activemq.memory import Message
from sources.activemq.queue_traits import QueueTraits
from sources.events import EARLIEST_MS, WIRE_VERSION, Event

SYSTEM = "activemq"


class EventBuilder:
    """Builds events for one broker. `scope` is the broker's name, None while it is not known."""

    def __init__(self, scope: str | None, traits: QueueTraits) -> None:
        self.scope = scope
        self._traits = traits

    def sent(self, queue: str, message_id: str, at_ms: int, body: MessageBody | None) -> Event:
        """Build the event of a message that entered `queue`."""
        event = self._about(queue, message_id, "sent", at_ms)
        if body is None:
            if self._traits.is_ordered(queue):
                event["ordered"] = True
            return event
        event["sent_at"] = self.sent_at_ms(queue, body)
        self._order(event, queue, body.group, body.position)
        if body.origin_queue is not None and body.origin_queue != queue:
            event["from_queue"] = body.origin_queue
        return event

    def of(self, message: Message, kind: str, at_ms: int, reason: str | None = None) -> Event:
        """Build an event of a message that was dispatched, or that ended without a dispatch."""
        event = self._about(message.queue, message.message_id, kind, at_ms)
        self._order(event, message.queue, message.group, message.position)
        if message.sent_at_ms:
            event["sent_at"] = message.sent_at_ms
        if message.receive_count:
            event["receive_count"] = message.receive_count
        if message.consumer is not None:
            event["consumer"] = message.consumer
        if reason is not None:
            event["reason"] = reason
        message.last_at_ms = max(message.last_at_ms, at_ms)
        return event

    def redriven(self, message: Message, target: str, at_ms: int) -> Event:
        """Build the event of a message that moved from its dead-letter queue to `target`, under its old id."""
        event = self.of(message, "redriven", at_ms)
        event["new_message_id"] = message.message_id
        if not self._traits.is_ordered(target):
            event["to_queue"] = target
            return event
        # `ordered` is about the event's own queue, and without it the message would start in another shard than its queue.
        event["queue"], event["from_queue"], event["ordered"] = target, message.queue, True
        if message.group is not None:
            event["group"] = message.group
        return event

    def consumer_state(self, consumer: Consumer, at_ms: int, attributes: dict[str, Any]) -> list[Event]:
        """Build one event for each queue from which the consumer is known to take messages."""
        events = []
        for queue in sorted(consumer.queues):
            event = self.about_queue(queue, "consumer_state", at_ms, attributes)
            event["consumer"] = consumer.consumer
            events.append(event)
        return events

    def about_queue(self, queue: str, kind: str, at_ms: int, attributes: dict[str, Any]) -> Event:
        """Build a state event of a queue or of one of its consumers."""
        event: Event = {"v": WIRE_VERSION, "type": kind, "at": at_ms, "system": SYSTEM, "queue": queue}
        if self.scope:
            event["scope"] = self.scope
        event["attributes"] = attributes
        return event

    def sent_at_ms(self, queue: str, body: MessageBody) -> int:
        """Return its arrival by the broker's clock, or a dead letter's original send, which its producer stamped."""
        # Producers may set any number, some set seconds; an event with such a time would be refused.
        if body.produced_ms >= EARLIEST_MS and self._traits.is_dead_letter_queue(queue):
            return min(body.produced_ms, body.in_ms)
        return body.in_ms

    def _about(self, queue: str, message_id: str, kind: str, at_ms: int) -> Event:
        event: Event = {"v": WIRE_VERSION, "type": kind, "at": at_ms, "system": SYSTEM, "queue": queue}
        if self.scope:
            event["scope"] = self.scope
        event["message_id"] = message_id
        return event

    def _order(self, event: Event, queue: str, group: str | None, position: int | None) -> None:
        if self._traits.is_ordered(queue):
            event["ordered"] = True
            if group is not None:
                event["group"] = group
                # Within a group the broker dispatches in order of arrival, whatever sequence the producer
                # set.
                event["sequence"] = str(position or 0)
