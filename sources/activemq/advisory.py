"""Parse one STOMP frame of an advisory topic to plain values. No network, no clock.

The broker writes an advisory's body as JSON made from its Java fields (`transformation: jms-advisory-json`).
A body may be empty (the broker lacks the libraries, or another subscriber's form won): only the headers can then
be used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

TOPIC_PREFIX: Final = "/topic/ActiveMQ.Advisory."
CONNECTION_TOPIC: Final = "Connection"

MessageKind = Literal["delivered", "dispatched", "consumed", "dead_lettered", "expired"]

MESSAGE_TOPICS: Final[Mapping[str, MessageKind]] = {
    "MessageDelivered": "delivered",
    "MessageDispatched": "dispatched",
    "MessageConsumed": "consumed",
    "MessageDLQd": "dead_lettered",
    "Expired": "expired",
}
QUEUE_TOPICS: Final = (*MESSAGE_TOPICS, "SlowConsumer", "Consumer")
"""The advisories that exist per queue: `ActiveMQ.Advisory.<one of these>.Queue.<queue>`."""


@dataclass(frozen=True, slots=True)
class MessageBody:
    """The message that an advisory is about.

    Times are epoch milliseconds of the broker's clock; 0 means never.
    """

    in_ms: int
    """When it entered this queue."""
    out_ms: int
    """When it was last dispatched, in this queue or in the one it was moved here from."""
    produced_ms: int
    """The producer's clock; kept when the message is moved to a dead-letter queue."""
    expires_ms: int
    redeliveries: int
    group: str | None
    position: int
    """Position in the broker's order of arrival; grows with every message that enters any of its queues."""
    origin_queue: str | None
    """The queue from which it was moved or copied; None for one that its producer sent to several queues at once."""
    in_dead_letter_queue: bool
    failure: str | None
    """Why it was moved to a dead-letter queue last, as the broker recorded it; kept when it is moved back."""


@dataclass(frozen=True, slots=True)
class MessageAdvisory:
    """An event of one message. `body` is None when it was empty."""

    kind: MessageKind
    queue: str
    message_id: str
    consumer: str | None
    body: MessageBody | None


@dataclass(frozen=True, slots=True)
class ConsumerAdded:
    """A consumer subscribed. When the collector subscribes, the broker repeats this for every existing consumer."""

    consumer: str
    connection: str
    session: int
    destination: str
    """As subscribed: a queue, several joined by commas, or a wildcard."""
    prefetch: int
    client_id: str | None
    exclusive: bool
    network: bool
    """Whether it forwards to another broker instead of processing messages."""
    browser: bool


@dataclass(frozen=True, slots=True)
class ConsumerRemoved:
    """A consumer closed, lost its connection, or was aborted by the broker."""

    consumer: str


@dataclass(frozen=True, slots=True)
class ConsumerFull:
    """`SlowConsumer`: the consumer's prefetch window is full while more messages wait."""

    consumer: str
    queue: str


@dataclass(frozen=True, slots=True)
class ConnectionOpened:
    """A client connected."""

    connection: str
    client_id: str | None


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """A client disconnected."""

    connection: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An advisory without usable content; `reason` is `empty_body`, `bad_body` or `unknown_topic`."""

    topic: str
    reason: Literal["empty_body", "bad_body", "unknown_topic"]


Advisory = MessageAdvisory | ConsumerAdded | ConsumerRemoved | ConsumerFull | ConnectionOpened | ConnectionClosed | Unreadable


def parse(headers: Mapping[str, str], body: str | bytes) -> Advisory:
    """Parse the advisory of one MESSAGE frame. Never raises: an invalid one is `Unreadable`."""
    topic = headers.get("destination", "")
    if not topic.startswith(TOPIC_PREFIX):
        return Unreadable(topic, "unknown_topic")
    name, _, queue = topic[len(TOPIC_PREFIX) :].partition(".Queue.")
    try:
        content = _content(body)
        if (kind := MESSAGE_TOPICS.get(name)) is not None:
            return _message(kind, queue, headers, content, topic)
        if name in ("SlowConsumer", "Consumer", CONNECTION_TOPIC) and content is None:
            return Unreadable(topic, "empty_body")
        assert content is not None
        if name == "Consumer":
            return _consumer(content, queue)
        if name == "SlowConsumer":
            return ConsumerFull(_consumer_id(content["consumerId"]), queue)
        if name == CONNECTION_TOPIC:
            return _connection(content)
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError, AssertionError, RecursionError):
        return Unreadable(topic, "bad_body")
    return Unreadable(topic, "unknown_topic")


def _content(body: str | bytes) -> Mapping[str, Any] | None:
    """Return the fields of the one object in the body, None when the body is empty."""
    if not body:
        return None
    document = json.loads(body)
    [content] = document.values()
    if not isinstance(content, dict):
        raise TypeError("an advisory's body holds one object")
    return content


def _message(
    kind: MessageKind, queue: str, headers: Mapping[str, str], content: Mapping[str, Any] | None, topic: str
) -> Advisory:
    # The broker misspells this header.
    message_id = headers.get("orignalMessageId")
    if message_id is None:
        if content is None:
            return Unreadable(topic, "empty_body")
        message_id = _message_id(content["messageId"])
    return MessageAdvisory(
        kind=kind,
        queue=queue,
        message_id=message_id,
        consumer=headers.get("consumerId"),
        body=None if content is None else _message_body(content),
    )


def _message_body(content: Mapping[str, Any]) -> MessageBody:
    return MessageBody(
        in_ms=int(content["brokerInTime"]),
        out_ms=int(content["brokerOutTime"]),
        produced_ms=int(content["timestamp"]),
        expires_ms=int(content["expiration"]),
        redeliveries=int(content["redeliveryCounter"]),
        group=_text(content.get("groupID")) or None,
        position=int(content["messageId"].get("brokerSequenceId", 0)),
        origin_queue=_queue(content.get("originalDestination")),
        in_dead_letter_queue=_is_dead_letter_queue(content["destination"]),
        failure=_property(content.get("properties"), "dlqDeliveryFailureCause"),
    )


def _message_id(parts: Mapping[str, Any]) -> str:
    """Format a message id as a client sees it in its `message-id` header."""
    if view := _text(parts.get("textView")):
        return view if view.startswith("ID:") else f"ID:{view}"
    producer = parts["producerId"]
    sender = f"{_text(producer['connectionId'])}:{producer['sessionId']}:{producer['value']}"
    return f"{sender}:{parts['producerSequenceId']}"


def _consumer_id(parts: Mapping[str, Any]) -> str:
    return f"{_text(parts['connectionId'])}:{parts['sessionId']}:{parts['value']}"


def _consumer(content: Mapping[str, Any], queue: str) -> Advisory:
    if "objectId" in content:
        return ConsumerRemoved(_consumer_id(content["objectId"]))
    parts, destination = content["consumerId"], content["destination"]["string"]
    return ConsumerAdded(
        consumer=_consumer_id(parts),
        connection=str(_text(parts["connectionId"])),
        session=int(parts["sessionId"]),
        # The broker's JSON makes a number of a name like `2.0`, but the name of the topic ends in it.
        destination=destination if isinstance(destination, str) else queue or str(_text(destination)),
        prefetch=int(content["prefetchSize"]),
        client_id=_text(content.get("clientId")),
        exclusive=bool(content.get("exclusive", False)),
        # A bridge to another broker lists the brokers on its path; a client has no such path.
        network=bool(content.get("brokerPath")),
        browser=bool(content.get("browser", False)),
    )


def _connection(content: Mapping[str, Any]) -> Advisory:
    if "objectId" in content:
        return ConnectionClosed(str(_text(content["objectId"]["value"])))
    return ConnectionOpened(str(_text(content["connectionId"]["value"])), _text(content.get("clientId")))


def _queue(destination: Mapping[str, Any] | None) -> str | None:
    """Return the name of a destination if it is a queue, and not several of them, joined by commas."""
    if destination is None or destination.get("@class") != "ActiveMQQueue":
        return None
    name = _text(destination["string"])
    return None if name is None or "," in name else name


def _is_dead_letter_queue(destination: Mapping[str, Any]) -> bool:
    """Whether the broker marked the queue as created for dead letters, when it moved a message there."""
    for holder in _list(destination.get("map")):
        for entry in _list(holder.get("entry")) if isinstance(holder, dict) else ():
            if _list(entry.get("string"))[:2] == ["isDLQ", True]:
                return True
    return False


def _property(properties: Any, name: str) -> str | None:
    """Return a string property of a message from the JSON form of Java's map."""
    for holder in _list(properties):
        for entry in _list(holder.get("entry")) if isinstance(holder, dict) else ():
            pair = _list(entry.get("string")) if isinstance(entry, dict) else []
            if len(pair) == 2 and pair[0] == name:
                return _text(pair[1])
    return None


def _list(value: Any) -> list[Any]:
    """Return a list unchanged, and wrap a single element, which the broker does not."""
    if value is None or value == "":
        return []
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str | None:
    """Return text, even where the broker's JSON turned `42` or `true` into a number or a boolean."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
