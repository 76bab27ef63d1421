"""Compares what the lifecycle believes each consumer holds with the broker's own count. No network, no
clock.

The two can differ for good: advisories were missed while disconnected, or an acknowledgement was told as
final and then rolled back without another word (a STOMP `ABORT`, a transaction left open). A difference
counts only when nothing happened at the consumer between two polls; then

-   the broker holds nothing and we do: it is gone, told as `deleted`;
-   the broker holds more than we do, at a consumer seen from its first message: the latest acknowledgements
    did not stand, their messages are told as delivered again.

Anything else is left alone: the counts do not say which messages differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from sources.activemq.consumers import Consumer
from sources.activemq.lifecycle import Lifecycle
from sources.activemq.statistics import SubscriptionCounts, SubscriptionKey
from sources.events import Event

GONE = "reconciled: the broker reports nothing in flight at the consumer"
NOT_GONE = "the broker still reports it in flight: the acknowledgement did not stand"


class Reconciler:
    """Remembers one poll to compare the next one with."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._last_poll_ms: int | None = None
        self._last: dict[SubscriptionKey, int] = {}
        self.settled = 0
        self.reopened = 0

    def observe(self, polled: Iterable[SubscriptionCounts], asked_ms: int, now_ms: int) -> list[Event]:
        """Take one whole poll, asked for at `asked_ms` (local clock); answer the events that set things
        right."""
        counts: defaultdict[SubscriptionKey, int] = defaultdict(int)
        full: defaultdict[SubscriptionKey, bool] = defaultdict(bool)
        for subscription in polled:
            counts[subscription.key] += subscription.dispatched
            full[subscription.key] |= subscription.full
        events: list[Event] = []
        for key, consumers in self._by_subscription().items():
            if key not in counts:
                continue
            if len(consumers) == 1:
                consumers[0].broker_dispatched, consumers[0].full = counts[key], full[key]
            was, quiet = self._last.get(key), self._quiet(consumers)
            if quiet and was == counts[key]:
                events += self._compare(consumers, counts[key], now_ms)
        self._last_poll_ms, self._last = asked_ms, dict(counts)
        return events

    def forget(self) -> None:
        """A new session: the next poll has nothing to be compared with."""
        self._last_poll_ms, self._last = None, {}

    def _by_subscription(self) -> dict[SubscriptionKey, list[Consumer]]:
        found: defaultdict[SubscriptionKey, list[Consumer]] = defaultdict(list)
        for consumer in self._lifecycle.consumers:
            found[(consumer.connection, consumer.session, consumer.destination)].append(consumer)
        return found

    def _quiet(self, consumers: list[Consumer]) -> bool:
        """Whether nothing happened at them since before the last poll was asked for."""
        last = self._last_poll_ms
        return last is not None and all(consumer.changed_local_ms < last for consumer in consumers)

    def _compare(self, consumers: list[Consumer], broker: int, now_ms: int) -> list[Event]:
        memory = self._lifecycle.memory
        held = [message for consumer in consumers for message in memory.held_by(consumer.consumer)]
        if broker == 0 and held:
            self.settled += len(held)
            return [self._lifecycle.settle(message, now_ms, GONE) for message in held]
        missing = broker - len(held)
        if missing <= 0 or len(consumers) != 1 or not consumers[0].whole:
            return []
        again = memory.lately_deleted_by(consumers[0].consumer, missing)
        if len(again) < missing:
            return []
        self.reopened += len(again)
        # Oldest first, as they had been dispatched.
        return [self._lifecycle.reopen(message, now_ms, NOT_GONE) for message in reversed(again)]
