"""Parsing of frames as the broker writes them, including malformed ones, which must not break the collector."""

import json
import math
from typing import Any

import pytest

from sources.activemq.advisory import (
    ConnectionClosed,
    ConnectionOpened,
    ConsumerAdded,
    ConsumerFull,
    MessageAdvisory,
    Unreadable,
    parse,
)
from tests.sources.activemq.record import load

TOPIC = "/topic/ActiveMQ.Advisory."
MESSAGE: dict[str, Any] = {
    "messageId": {
        "producerId": {"connectionId": "ID:host-1-2:3", "sessionId": -1, "value": 1},
        "producerSequenceId": 9,
        "brokerSequenceId": 118,
    },
    "destination": {"@class": "ActiveMQQueue", "string": "orders", "null": ""},
    "expiration": 0,
    "timestamp": 1_800_000_000_000,
    "brokerInTime": 1_800_000_000_001,
    "brokerOutTime": 0,
    "groupSequence": 0,
    "redeliveryCounter": 0,
}


def message_frame(kind: str = "MessageDLQd", **changes: Any) -> MessageAdvisory:
    """Return the advisory of a frame without the header that names the message."""
    body = json.dumps({"ActiveMQTextMessage": {**MESSAGE, **changes}})
    advisory = parse({"destination": f"{TOPIC}{kind}.Queue.orders"}, body)
    assert isinstance(advisory, MessageAdvisory)
    return advisory


def test_a_message_s_id_has_the_form_clients_see() -> None:
    assert message_frame().message_id == "ID:host-1-2:3:-1:1:9"


def test_an_id_from_another_protocol_is_kept() -> None:
    """AMQP clients set ids of their own."""
    parts = {**MESSAGE["messageId"], "textView": "order-4711"}
    assert message_frame(messageId=parts).message_id == "ID:order-4711"


@pytest.mark.parametrize(
    ("written", "meant"),
    [("g", "g"), ("007", "007"), (42, "42"), (True, "true"), ("", None), (None, None)],
)
def test_a_group_survives_the_broker_s_json_conversion(written: object, meant: str | None) -> None:
    """The broker writes a string that looks like a number or a boolean as one."""
    body = message_frame(groupID=written).body
    assert body is not None
    assert body.group == meant


@pytest.mark.parametrize(
    "properties",
    [
        [{"entry": {"string": ["dlqDeliveryFailureCause", "too often"]}}],
        [{"entry": [{"string": "tries", "int": 3}, {"string": ["dlqDeliveryFailureCause", "too often"]}]}],
        {"entry": {"string": ["dlqDeliveryFailureCause", "too often"]}},
    ],
)
def test_the_cause_of_a_move_is_found_among_the_properties(properties: object) -> None:
    body = message_frame(properties=properties).body
    assert body is not None
    assert body.failure == "too often"


def test_a_dead_letter_queue_is_recognised_by_the_broker_s_mark() -> None:
    marked = {"@class": "ActiveMQQueue", "string": "x", "map": [{"entry": {"string": ["isDLQ", True]}}]}
    body = message_frame(destination=marked, properties=[""]).body
    assert body is not None
    assert body.in_dead_letter_queue


def test_a_message_sent_to_several_queues_at_once_has_no_origin_queue() -> None:
    """The broker names the composite destination, which is no queue, and longer than a name may be with twenty of them."""
    several = {"@class": "ActiveMQQueue", "string": "orders,queue://archive", "null": ""}
    body = message_frame("MessageDelivered", originalDestination=several).body
    assert body is not None
    assert body.origin_queue is None


def test_a_message_forwarded_from_a_topic_has_no_origin_queue() -> None:
    topic = {"@class": "ActiveMQTopic", "string": "VirtualTopic.Orders", "null": ""}
    body = message_frame(originalDestination=topic).body
    assert body is not None
    assert body.origin_queue is None


def test_a_recorded_consumer_is_read() -> None:
    [added] = [
        advisory for frame in load("read_one_of_two") if isinstance(advisory := parse(frame.headers, frame.body), ConsumerAdded)
    ][:1]
    assert (added.destination, added.prefetch, added.session) == ("o.read_one_of_two", 1000, 1)
    assert added.consumer == f"{added.connection}:1:1"
    assert [added.exclusive, added.network, added.browser] == [False, False, False]


def test_a_bridge_to_another_broker_is_not_a_client() -> None:
    body = {
        "ConsumerInfo": {
            "consumerId": {"connectionId": "ID:b", "sessionId": 1, "value": 1},
            "destination": {"@class": "ActiveMQQueue", "string": "orders", "null": ""},
            "prefetchSize": 1000,
            "brokerPath": [{"value": "ID:other"}],
        }
    }
    added = parse({"destination": f"{TOPIC}Consumer.Queue.orders"}, json.dumps(body))
    assert isinstance(added, ConsumerAdded)
    assert added.network


@pytest.mark.parametrize(("queue", "written"), [("2.0", 2), ("007", 7), ("1e3", 1000), ("TRUE", True), ("orders", "orders")])
def test_the_queue_of_a_consumer_keeps_its_name(queue: str, written: object) -> None:
    """The broker's JSON makes a number of a name that reads like one: the consumer of `2.0` was shown at a queue `2`."""
    body = {
        "ConsumerInfo": {
            "consumerId": {"connectionId": "ID:b", "sessionId": 1, "value": 1},
            "destination": {"@class": "ActiveMQQueue", "string": written},
            "prefetchSize": 1000,
        }
    }
    added = parse({"destination": f"{TOPIC}Consumer.Queue.{queue}"}, json.dumps(body))
    assert isinstance(added, ConsumerAdded)
    assert added.destination == queue


def test_connections_come_and_go() -> None:
    headers = {"destination": f"{TOPIC}Connection"}
    opened = {"ConnectionInfo": {"connectionId": {"value": "ID:c"}, "clientId": "billing"}}
    closed = {"RemoveInfo": {"objectId": {"@class": "ConnectionId", "value": "ID:c"}}}
    assert parse(headers, json.dumps(opened)) == ConnectionOpened("ID:c", "billing")
    assert parse(headers, json.dumps(closed)) == ConnectionClosed("ID:c")


def test_a_full_consumer_is_identified() -> None:
    body = {"ConsumerInfo": {"consumerId": {"connectionId": "ID:c", "sessionId": 1, "value": 2}}}
    found = parse({"destination": f"{TOPIC}SlowConsumer.Queue.a.b"}, json.dumps(body))
    assert found == ConsumerFull("ID:c:1:2", "a.b")


def test_an_empty_body_leaves_the_facts_of_the_headers() -> None:
    headers = {
        "destination": f"{TOPIC}MessageDispatched.Queue.orders",
        "orignalMessageId": "ID:m",
        "consumerId": "ID:c:1:1",
    }
    assert parse(headers, b"") == MessageAdvisory("dispatched", "orders", "ID:m", "ID:c:1:1", None)


@pytest.mark.parametrize(
    ("destination", "body", "reason"),
    [
        (f"{TOPIC}MessageDLQd.Queue.orders", "", "empty_body"),
        (f"{TOPIC}Consumer.Queue.orders", "", "empty_body"),
        (f"{TOPIC}MessageDLQd.Queue.orders", "{", "bad_body"),
        (f"{TOPIC}MessageDLQd.Queue.orders", "[]", "bad_body"),
        (f"{TOPIC}MessageDLQd.Queue.orders", '{"a": 1}', "bad_body"),
        (f"{TOPIC}MessageDLQd.Queue.orders", '{"ActiveMQMessage": {}}', "bad_body"),
        (f"{TOPIC}MessageDLQd.Queue.orders", b"\xff\xfe", "bad_body"),
        (f"{TOPIC}MessageDLQd.Queue.orders", json.dumps({"ActiveMQMessage": MESSAGE | {"expiration": math.inf}}), "bad_body"),
        pytest.param(f"{TOPIC}MessageDLQd.Queue.orders", '{"a":' * 100_000, "bad_body", id="nested without end"),
        (f"{TOPIC}FastProducer.Queue.orders", '{"a": {}}', "unknown_topic"),
        ("/queue/orders", "{}", "unknown_topic"),
        ("", "", "unknown_topic"),
    ],
)
def test_an_unreadable_frame_has_a_reason_and_never_raises(destination: str, body: str | bytes, reason: str) -> None:
    found = parse({"destination": destination}, body)
    assert isinstance(found, Unreadable)
    assert found.reason == reason
