"""What the hooks remember: receipt handles, queues' places, and lineage ids across a redrive."""

from __future__ import annotations

from typing import Any

import pytest

from queuewatch.events import built
from queuewatch.handles import HandleMap
from queuewatch.lineage import Lineage
from queuewatch.places import Place, place_of_arn, place_of_url
from queuewatch.sqs_events import Call, Translator

ORDERS = Place("1/eu-west-1", "orders")
DLQ = Place("1/eu-west-1", "orders-dlq")


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_handles_are_bounded_in_number_and_age() -> None:
    """The oldest handles are removed first; only those that could still be used count as evicted."""
    clock = Clock()
    handles = HandleMap(3, clock_s=clock)
    for n in range(4):
        handles.remember(f"h{n}", f"m{n}", None)
    assert handles.look_up("h0") is None
    assert handles.look_up("h1") == ("m1", None)
    assert (len(handles), handles.evicted) == (3, 1)
    clock.now_s = 12 * 3600 + 1
    handles.remember("h9", "m9", "g")
    assert (len(handles), handles.evicted) == (1, 1)
    assert handles.forget("h9") == ("m9", "g")
    assert handles.forget("h9") is None
    assert len(handles) == 0


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://sqs.eu-west-1.amazonaws.com/1/orders", ORDERS),
        ("https://sqs-fips.us-gov-west-1.amazonaws.com/1/q", Place("1/us-gov-west-1", "q")),
        ("https://sqs.eusc-de-east-1.amazonaws.eu/1/q", Place("1/eusc-de-east-1", "q")),
        ("https://vpce-0a.sqs.eu-west-1.vpce.amazonaws.com/1/q", Place("1/eu-west-1", "q")),
        ("https://eu-west-1.queue.amazonaws.com/1/q.fifo", Place("1/eu-west-1", "q.fifo")),
        ("http://localhost:4566/1/q", Place("1/client-region", "q")),
        ("http://localhost:4566/queue/q", Place("queue/client-region", "q")),
        ("q", Place(None, "q")),
    ],
)
def test_a_queue_url_gives_its_place(url: str, place: Place) -> None:
    """The place has account and region as in the ARN, which is what a collector uses."""
    assert place_of_url(url, "client-region") == place


def test_a_queue_that_is_called_by_its_name_is_a_warning_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account is not guessed. A scope that is given says all that is missing."""
    monkeypatch.setattr("queuewatch.sqs_events._called_by_name", [])
    places = {}
    for scope in ("1/eu-west-1", None):
        translator = Translator(HandleMap(), lambda: "c", scope=scope)
        for url in ("https://sqs.eu-west-1.amazonaws.com/1/orders", "orders", "orders", "payments"):
            [sent] = translator.observe(Call("SendMessage", {"QueueUrl": url}, "eu-west-1", 1), {"MessageId": "m"})
            event = built(sent)
            places[scope, url] = (event.get("scope"), event["queue"])
        assert len(caplog.messages) == (0 if scope else 1)
    assert "'orders'" in caplog.text
    assert "QUEUEWATCH_SCOPE" in caplog.text
    assert places["1/eu-west-1", "orders"] == ("1/eu-west-1", "orders")
    assert places[None, "orders"] == (None, "orders")
    assert places[None, "https://sqs.eu-west-1.amazonaws.com/1/orders"] == ("1/eu-west-1", "orders")


def test_an_arn_gives_its_place() -> None:
    """ARN and queue URL give the same place."""
    assert place_of_arn("arn:aws:sqs:eu-west-1:1:orders") == ORDERS
    assert place_of_arn("orders") == Place(None, "orders")


def received(message_id: str, count: int, own_id: str, source: str | None = None) -> dict[str, Any]:
    """Return a message as in a response of ReceiveMessage."""
    attributes = {"ApproximateReceiveCount": str(count)}
    if source:
        attributes["DeadLetterQueueSourceArn"] = source
    return {
        "MessageId": message_id,
        "ReceiptHandle": f"{message_id}-{count}",
        "Attributes": attributes,
        "MessageAttributes": {"own": {"StringValue": own_id, "DataType": "String"}},
    }


class Client:
    """Passes calls to a translator, as the hooks do."""

    def __init__(self, **dead_letter_queues: str) -> None:
        self.translator = Translator(HandleMap(), lambda: "c", lineage=Lineage("own", dead_letter_queues))
        self.at = 1_760_000_000_000

    def call(self, operation: str, place: Place, answer: dict[str, Any], **params: Any) -> list[dict[str, Any]]:
        """Return the events of one call."""
        self.at += 1000
        url = f"https://sqs.eu-west-1.amazonaws.com/1/{place.queue}"
        call = Call(operation, {"QueueUrl": url, **params}, None, self.at, self.at + 5)
        return [built(observed) for observed in self.translator.observe(call, answer)]

    def receive(self, place: Place, message: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the events of a receive of one message."""
        return self.call("ReceiveMessage", place, {"Messages": [message]})


def redrives(events: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Return source queue, old id, target queue and new id of each redrive."""
    return [(e["queue"], e["message_id"], e["to_queue"], e["new_message_id"]) for e in events if e["type"] == "redriven"]


def test_a_message_seen_in_the_dlq_is_linked_when_it_comes_back() -> None:
    """A consumer received it from the DLQ; SQS gave it a new id when it was moved back."""
    client = Client()
    assert redrives(client.receive(ORDERS, received("a", 1, "k"))) == []
    assert redrives(client.receive(DLQ, received("a", 4, "k", "arn:aws:sqs:eu-west-1:1:orders"))) == []
    assert redrives(client.receive(ORDERS, received("b", 1, "k"))) == [("orders-dlq", "a", "orders", "b")]
    assert redrives(client.receive(ORDERS, received("b", 2, "k"))) == []


def test_a_message_sent_again_from_the_dlq_is_linked_too() -> None:
    """A script may redrive: it receives from the DLQ, sends to the queue, and deletes from the DLQ."""
    client = Client(orders="orders-dlq")
    client.receive(DLQ, received("a", 4, "k"))
    sent = client.call(
        "SendMessage",
        ORDERS,
        {"MessageId": "b"},
        MessageAttributes={"own": {"StringValue": "k", "DataType": "String"}},
    )
    assert redrives(sent) == [("orders-dlq", "a", "orders", "b")]


SOURCE = "arn:aws:sqs:eu-west-1:1:orders"
RETRY = Place("1/eu-west-1", "orders-retry")


@pytest.mark.parametrize("named", [True, False], ids=["known by its source", "configured"])
def test_a_dead_letter_that_was_deleted_is_not_linked(named: bool) -> None:
    """An operator looked at it and was done with it; the producer's next message about the same order is another one."""
    client = Client(**({} if named else {"orders": "orders-dlq"}))
    client.receive(ORDERS, received("a", 3, "k"))
    client.receive(DLQ, received("a", 4, "k", SOURCE if named else None))
    client.call("DeleteMessage", DLQ, {}, ReceiptHandle="a-4")
    sent = client.call(
        "SendMessage",
        ORDERS,
        {"MessageId": "b"},
        MessageAttributes={"own": {"StringValue": "k", "DataType": "String"}},
    )
    assert redrives(sent) == []
    assert redrives(client.receive(ORDERS, received("b", 1, "k"))) == []


@pytest.mark.parametrize("to", [ORDERS, RETRY], ids=["its source", "another queue"])
def test_a_redriven_message_that_still_names_its_source_is_linked(to: Place) -> None:
    """Its receive count tells that the queue is no dead-letter queue, at its later receives too, and for the next message."""
    client = Client()
    for own, dead, new in (("k", "a", "b"), ("l", "c", "d")):
        client.receive(DLQ, received(dead, 4, own, SOURCE))
        assert redrives(client.receive(to, received(new, 1, own, SOURCE))) == [("orders-dlq", dead, to.queue, new)]
        client.receive(to, received(new, 2, own, SOURCE))


def test_a_receive_names_the_queue_it_came_from_unless_it_is_back_there() -> None:
    """A first receive in another queue names it: so the service knows that the message was redriven to that queue."""
    client = Client()
    for place, count, named in ((DLQ, 2, "orders"), (RETRY, 1, "orders"), (RETRY, 2, "orders"), (ORDERS, 1, None)):
        [event] = client.receive(place, received("a", count, "", SOURCE))
        assert event.get("from_queue") == named, place


def test_a_failing_message_is_linked_when_its_dlq_is_configured() -> None:
    """The message was never received from the DLQ: it failed twice and came back under a new id with receive count 1."""
    client = Client(orders="orders-dlq")
    client.receive(ORDERS, received("a", 1, "k"))
    client.receive(ORDERS, received("a", 2, "k"))
    assert redrives(client.receive(ORDERS, received("b", 1, "k"))) == [("orders-dlq", "a", "orders", "b")]


@pytest.mark.parametrize("why", ["deleted before", "received once", "not a first receive", "no DLQ known", "no own id"])
def test_without_evidence_a_message_is_not_linked(why: str) -> None:
    """A producer that sends twice uses the same lineage id twice."""
    client = Client() if why == "no DLQ known" else Client(orders="orders-dlq")
    own = "" if why == "no own id" else "k"
    client.receive(ORDERS, received("a", 1, own))
    if why != "received once":
        client.receive(ORDERS, received("a", 2, own))
    if why == "deleted before":
        client.call("DeleteMessage", ORDERS, {}, ReceiptHandle="a-2")
    count = 2 if why == "not a first receive" else 1
    assert redrives(client.receive(ORDERS, received("b", count, own))) == []
