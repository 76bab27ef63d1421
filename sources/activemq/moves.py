"""Copies of messages that arrived in another queue, kept until the advisory about their source explains them."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from sources.activemq.memory import Key

EXPIRED: Final = "expired"
"""The reason of a message that the broker removed because it had expired."""

_MAX_NOTED = 50_000
_FAILED_DELIVERY = re.compile(r"Delivery\[(\d+)\]")
_MAX_REASON_CHARS = 200


@dataclass(frozen=True, slots=True)
class Arrival:
    """Where a copy arrived, and why the broker put it there, if reported."""

    queue: str
    failure: str | None
    noted_ms: int


class Moves:
    """Arrivals by (source queue, message id); bounded in number and age."""

    def __init__(self, keep_ms: int) -> None:
        self._keep_ms = keep_ms
        self._arrivals: OrderedDict[Key, Arrival] = OrderedDict()

    def note(self, source: Key, queue: str, failure: str | None, now_ms: int) -> None:
        """Record that a copy of `source` arrived in `queue`."""
        self._arrivals[source] = Arrival(queue, failure, now_ms)
        self._arrivals.move_to_end(source)
        while len(self._arrivals) > _MAX_NOTED:
            self._arrivals.popitem(last=False)

    def take_arrival(self, source: Key) -> Arrival | None:
        """Return the arrival of a copy of `source`, once."""
        return self._arrivals.pop(source, None)

    def take(self, source: Key) -> str | None:
        """Return the queue in which a copy of `source` arrived, once."""
        arrival = self._arrivals.pop(source, None)
        return None if arrival is None else arrival.queue

    def expire(self, now_ms: int) -> None:
        """Forget unexplained arrivals: they are copies, not moves."""
        while self._arrivals:
            source, arrival = next(iter(self._arrivals.items()))
            if now_ms - arrival.noted_ms <= self._keep_ms:
                break
            del self._arrivals[source]


def deliveries(failure: str | None) -> int:
    """Return how many deliveries the client had counted when it gave up; 0 when the broker does not report it."""
    found = _FAILED_DELIVERY.search(failure or "")
    return int(found.group(1)) if found else 0


def reason_of(failure: str | None) -> str:
    """Return why a message was moved to a dead-letter queue, in a few words."""
    if not failure:
        return "rejected by the consumer"
    if "Message Expired" in failure:
        return EXPIRED
    return failure.removeprefix("java.lang.Throwable: ").split(":RedeliveryPolicy", 1)[0][:_MAX_REASON_CHARS]
