"""Compare the messages that the lifecycle tracks at each consumer with the broker's own count.

No network, no clock.

The two can differ permanently: advisories were missed while disconnected, or an acknowledgement was reported as
final and then rolled back without notice (a STOMP `ABORT`, a transaction left open). A difference counts only
when two polls show it:

-   the broker holds nothing at either, and we hold the same dispatch of a message at both: it is gone, reported as
    `deleted`, whatever else the consumer did meanwhile;
-   the broker holds more than we do, at a consumer seen from its first message at which nothing happened between
    the polls: the latest acknowledgements were rolled back, and their messages are reported as delivered again. A
    consumer of several queues may hold messages of one that is not followed instead, so the counts of the queues
    must agree.

Anything else is left alone: the counts do not show which messages differ.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from sources.activemq.consumers import Consumer, is_wildcard
from sources.activemq.lifecycle import Lifecycle
from sources.activemq.memory import Key, Message
from sources.activemq.statistics import QueueCounts, SubscriptionCounts, SubscriptionKey, name_in_json
from sources.events import Event

Dispatch = tuple[Key, int | None]
"""A message, and when it was dispatched."""

GONE = "reconciled: the broker reports nothing in flight at the consumer"
NOT_GONE = "the broker still reports it in flight: the acknowledgement did not stand"


class Reconciler:
    """Remembers one poll for comparison with the next."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._last_poll_ms: int | None = None
        self._last: dict[SubscriptionKey, int] = {}
        self._doubted: set[Dispatch] = set()
        """What we held at the last poll at consumers at which the broker counted nothing."""

    def observe(
        self, polled: Iterable[SubscriptionCounts], asked_ms: int, now_ms: int, queues: Iterable[QueueCounts] = ()
    ) -> list[Event]:
        """Process one complete poll, requested at `asked_ms` (local time); return the events that correct the state.

        `queues` are the counts of the same poll.
        """
        in_flight = {counted.queue: counted.in_flight for counted in queues}
        counts: defaultdict[SubscriptionKey, int] = defaultdict(int)
        full: defaultdict[SubscriptionKey, bool] = defaultdict(bool)
        for subscription in polled:
            counts[subscription.key] += subscription.dispatched
            full[subscription.key] |= subscription.full
        events: list[Event] = []
        doubted: set[Dispatch] = set()
        for key, consumers in self._by_subscription().items():
            if key not in counts:
                continue
            if len(consumers) == 1:
                consumers[0].broker_dispatched, consumers[0].full = counts[key], full[key]
            held = self._held(consumers)
            was, quiet = self._last.get(key), self._quiet(consumers)
            if counts[key] == 0:
                gone = [message for message in held if _dispatch(message) in self._doubted]
                events += [self._lifecycle.settle(message, now_ms, GONE) for message in gone]
                doubted.update(_dispatch(message) for message in held)
            elif quiet and was == counts[key]:
                events += self._reopened(consumers, counts[key] - len(held), in_flight, now_ms)
        self._last_poll_ms, self._last, self._doubted = asked_ms, dict(counts), doubted
        return events

    def _by_subscription(self) -> dict[SubscriptionKey, list[Consumer]]:
        found: defaultdict[SubscriptionKey, list[Consumer]] = defaultdict(list)
        for consumer in self._lifecycle.consumers:
            found[(consumer.connection, consumer.session, name_in_json(consumer.destination))].append(consumer)
        return found

    def _quiet(self, consumers: list[Consumer]) -> bool:
        """Whether nothing has happened at them since before the last poll was requested."""
        last = self._last_poll_ms
        return last is not None and all(consumer.changed_local_ms < last for consumer in consumers)

    def _held(self, consumers: list[Consumer]) -> list[Message]:
        memory = self._lifecycle.memory
        return [message for consumer in consumers for message in memory.held_by(consumer.consumer)]

    def _reopened(self, consumers: list[Consumer], missing: int, in_flight: dict[str, int], now_ms: int) -> list[Event]:
        if missing <= 0 or len(consumers) != 1 or not consumers[0].whole:
            return []
        again = self._lifecycle.memory.lately_deleted_by(consumers[0].consumer, missing)
        if len(again) < missing:
            return []
        destination = consumers[0].destination
        if ("," in destination or is_wildcard(destination)) and not self._are_in_flight(again, in_flight):
            return []
        # Oldest first, in their order of dispatch.
        return [self._lifecycle.reopen(message, now_ms, NOT_GONE) for message in reversed(again)]

    def _are_in_flight(self, messages: Sequence[Message], in_flight: dict[str, int]) -> bool:
        """Whether in the queue of each, by its own count, that many more are in flight than we hold."""
        held = Counter(message.queue for consumer in self._lifecycle.consumers for message in self._held([consumer]))
        held.update(message.queue for message in messages)
        return all(held[message.queue] <= in_flight.get(message.queue, 0) for message in messages)


def _dispatch(message: Message) -> Dispatch:
    return message.key, message.out_ms
