"""Parse replies of StatisticsBrokerPlugin: the broker's own counts per queue and per subscription, as plain values.

A request is a message to one of the plugin's destinations, with `reply-to`; each reply is a map written as
JSON by `transformation: jms-json`. Requests on one connection are answered in order, so the reply to a final
request with a correlation id marks the end of a poll.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

QUEUES: Final = "/queue/ActiveMQ.Statistics.Destination."
"""Followed by a queue or a wildcard. Without the plugin, a message sent there would remain there."""
SUBSCRIPTIONS: Final = "/queue/ActiveMQ.Statistics.Subscription"
BROKER: Final = "/topic/ActiveMQ.Statistics.Broker"
"""A topic, so that a request leaves nothing behind on a broker without the plugin."""
WITH_OLDEST: Final = {"ActiveMQ.Statistics.Destination.Include.First.Message.Timestamp": "true"}

SubscriptionKey = tuple[str, int, str]
"""(connection, session, `name_in_json` of the destination): the plugin does not name the consumer itself."""


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The broker's counts of one queue: current (`size`, `in_flight`, `consumers`, `producers`) and since its start."""

    queue: str
    size: int
    in_flight: int
    consumers: int
    producers: int
    enqueued: int
    dequeued: int
    dispatched: int
    memory_percent: int
    oldest_in_ms: int | None
    """When the first message entered, by the broker's clock; None: empty, or not requested."""

    def attributes(self) -> dict[str, Any]:
        """Return them as attributes of a `queue_state`."""
        values = {
            "visible": max(self.size - self.in_flight, 0),
            "in_flight": min(self.in_flight, self.size),
            "consumers": self.consumers,
            "producers": self.producers,
            "memory_percent": self.memory_percent,
            "oldest_sent_at": self.oldest_in_ms,
        }
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class SubscriptionCounts:
    """The broker's counts of one subscription."""

    key: SubscriptionKey
    dispatched: int
    """Messages dispatched to it and not acknowledged (`dispatchedQueueSize`)."""
    prefetch: int
    full: bool
    """`slowConsumer`: its prefetch window is full while more messages wait."""
    client_id: str = ""
    undispatched: int = 0
    """Messages for it that were never dispatched: they wait for room in its prefetch window, or were discarded."""


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """The broker's name; its reply ends a poll."""

    name: str


Reply = QueueCounts | SubscriptionCounts | BrokerStatistics


def parse_reply(body: str | bytes) -> Reply | None:
    """Parse one reply; None for one about a topic, or an unreadable one."""
    try:
        values = _values(body)
        if "dispatchedQueueSize" in values:
            return _subscription(values)
        if "destinationName" in values:
            return _queue(values)
        return BrokerStatistics(str(values["brokerName"]))
    except (ValueError, OverflowError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _queue(values: Mapping[str, Any]) -> QueueCounts | None:
    name = str(values["destinationName"])
    if not name.startswith("queue://"):
        return None
    oldest = values.get("firstMessageTimestamp")
    return QueueCounts(
        queue=name.removeprefix("queue://"),
        size=int(values["size"]),
        in_flight=int(values["inflightCount"]),
        consumers=int(values["consumerCount"]),
        producers=int(values["producerCount"]),
        enqueued=int(values["enqueueCount"]),
        dequeued=int(values["dequeueCount"]),
        dispatched=int(values["dispatchCount"]),
        memory_percent=int(values["memoryPercentUsage"]),
        oldest_in_ms=int(oldest) if oldest else None,
    )


def _subscription(values: Mapping[str, Any]) -> SubscriptionCounts:
    key = (str(values["connectionId"]), int(values["sessionId"]), name_in_json(values["destinationName"]))
    return SubscriptionCounts(
        key=key,
        dispatched=int(values["dispatchedQueueSize"]),
        prefetch=int(values["prefetchSize"]),
        full=bool(values["slowConsumer"]),
        client_id=str(values.get("clientId", "")),
        undispatched=int(values.get("enqueueCounter", 0)) - int(values.get("dispatchedCounter", 0)),
    )


def name_in_json(name: object) -> str:
    """Return the name of a destination so that it is equal to what the broker's JSON made of it: `2.0` becomes the number 2."""
    text = str(name)
    try:
        return repr(float(text))
    except ValueError:
        return text.lower() if text.lower() in ("true", "false") else text


def _values(body: str | bytes) -> dict[str, Any]:
    """Parse the map's entries: `{"string": "size", "long": 3}` is a number, `{"string": ["name", "value"]}` a string."""
    entries = json.loads(body)["map"]["entry"]
    values: dict[str, Any] = {}
    for entry in entries if isinstance(entries, list) else [entries]:
        name = entry["string"]
        if isinstance(name, list):
            values[str(name[0])] = name[1]
        else:
            [values[str(name)]] = [value for kind, value in entry.items() if kind != "string"]
    return values
