"""The translation where a recording cannot show it: races, losses, limits."""

from typing import Any

import pytest

from sources.activemq.advisory import (
    ConnectionClosed,
    ConnectionOpened,
    ConsumerFull,
    ConsumerRemoved,
    Unreadable,
)
from sources.activemq.lore import QueueLore
from tests.sources.activemq.told import QUEUE, START_MS, A, B, Teller, consumer, told

# Each row: what is told and when (ms), then what must be told of it until long after.
RACES: list[tuple[str, list[tuple[int, Any]], list[str]]] = [
    (
        "the acknowledgement is read before the dispatch",
        [(5, told("consumed", out_ms=2)), (6, told("dispatched", by=A, out_ms=2))],
        ["received x1 A @2", "deleted x1 A @5"],
    ),
    (
        "the dispatch is read before the arrival",
        [(3, told("dispatched", by=A, out_ms=2)), (4, told("delivered")), (9, told("consumed", out_ms=2))],
        ["received x1 A @2", "sent x0 - @0", "deleted x1 A @5"],
    ),
    (
        "the next dispatch is read before the first consumer's end",
        [
            (1, told("dispatched", by=A, out_ms=1)),
            (50, told("dispatched", by=B, out_ms=50, redeliveries=1)),
            (51, ConsumerRemoved(A)),
            (90, told("consumed", out_ms=50)),
        ],
        ["received x1 A @1", "received x2 B @50", "deleted x2 B @90"],
    ),
    (
        "a second dispatch contradicts the acknowledgement",
        [
            (1, told("dispatched", by=A, out_ms=1)),
            (50, told("consumed", out_ms=1)),
            (51, ConsumerRemoved(A)),
            (900, told("dispatched", by=B, out_ms=900, redeliveries=1)),
        ],
        ["received x1 A @1", "received x2 B @900"],
    ),
    (
        "a second dispatch contradicts the acknowledgement after it was told",
        [
            (1, told("dispatched", by=A, out_ms=1)),
            (50, told("consumed", out_ms=1)),
            (9_000, told("dispatched", by=B, out_ms=9_000, redeliveries=1)),
        ],
        ["received x1 A @1", "deleted x1 A @50", "received x2 B @9000"],
    ),
    (
        "the second delivery's acknowledgement is read before its dispatch",
        [
            (1, told("dispatched", by=A, out_ms=1)),
            (50, ConsumerRemoved(A)),
            (61, told("consumed", out_ms=60, redeliveries=1)),
            (62, told("dispatched", by=B, out_ms=60, redeliveries=1)),
        ],
        ["received x1 A @1", "released x1 A @50", "received x2 B @60", "deleted x2 B @61"],
    ),
    (
        "a dispatch that is read after its acknowledgement was told",
        [(5, told("consumed", out_ms=2)), (9_000, told("dispatched", by=A, out_ms=2))],
        ["deleted x0 - @5", "received x1 A @2"],
    ),
    (
        "an acknowledgement repeated long after, without another dispatch",
        [
            (1, told("dispatched", by=A, out_ms=1)),
            (50, told("consumed", out_ms=1)),
            (9_000, told("consumed", out_ms=1)),
        ],
        ["received x1 A @1", "deleted x1 A @50", "received x2 A @9000", "deleted x2 A @9000"],
    ),
    (
        "given back and dispatched again within a millisecond",
        [
            (1, told("dispatched", by=A, out_ms=1)),
            (50, ConsumerRemoved(A)),
            (50, told("dispatched", by=B, out_ms=50, redeliveries=1)),
        ],
        ["received x1 A @1", "released x1 A @50", "received x2 B @51"],
    ),
    (
        "a broker that forgot its redelivery counter at a restart",
        [
            (1, told("dispatched", by=A, out_ms=1, redeliveries=3)),
            (50, ConsumerRemoved(A)),
            (99, told("dispatched", by=B, out_ms=99, redeliveries=0)),
        ],
        ["received x4 A @1", "released x4 A @50", "received x4 B @99"],
    ),
    (
        "the copy in the dead-letter queue is read after the move",
        [
            (1, told("dispatched", by=A, out_ms=1)),
            (50, told("dead_lettered", out_ms=1)),
            (51, told("consumed", out_ms=1)),
            (52, told("delivered", queue="DLQ.orders", in_ms=50, out_ms=1, origin_queue=QUEUE)),
        ],
        ["received x1 A @1", "dead_lettered x1 A @50", "sent x0 - @50"],
    ),
    (
        "the copy in the dead-letter queue is never read",
        [(1, told("dispatched", by=A, out_ms=1)), (50, told("dead_lettered", out_ms=1))],
        ["received x1 A @1", "dead_lettered x1 A @50"],
    ),
    (
        "a redelivery plugin sends the message into its queue again",
        [
            (1, told("dispatched", by=A, out_ms=1)),
            (50, told("consumed", out_ms=1)),
            (80, told("delivered", in_ms=80, out_ms=1)),
            (90, told("dispatched", by=B, in_ms=80, out_ms=90, redeliveries=1)),
        ],
        ["received x1 A @1", "deleted x1 A @50", "sent x0 - @80", "received x2 B @90"],
    ),
]


@pytest.mark.parametrize(("advisories", "expected"), [pytest.param(a, e, id=why) for why, a, e in RACES])
def test_races(advisories: list[tuple[int, Any]], expected: list[str]) -> None:
    teller = Teller()
    for at, advisory in advisories:
        teller.flush(at)
        teller.tell(advisory, at)
    teller.flush(60_000)
    assert teller.lines() == expected


def test_an_acknowledgement_is_told_after_its_grace_and_not_before() -> None:
    teller = Teller(grace_ms=2_000)
    teller.tell(told("dispatched", by=A, out_ms=1), 1)
    teller.tell(told("consumed", out_ms=1), 50)
    assert teller.flush(2_049) == []
    assert [event["type"] for event in teller.flush(2_050)] == ["deleted"]


# -- empty bodies --


def test_an_arrival_without_its_body_is_told_without_what_the_body_says() -> None:
    teller = Teller()
    [event] = teller.tell(told("delivered", empty=True), 5)
    assert event["at"] == START_MS + 5
    assert not event.keys() & {"sent_at", "group", "sequence", "receive_count"}


def test_a_whole_life_without_bodies_is_followed() -> None:
    teller = Teller()
    for at, advisory in (
        (1, told("delivered", empty=True)),
        (2, told("dispatched", by=A, empty=True)),
        (9, told("consumed", empty=True)),
    ):
        teller.tell(advisory, at)
    teller.flush(60_000)
    assert teller.lines() == ["sent x0 - @1", "received x0 A @2", "deleted x0 A @9"]
    assert teller.lifecycle.bodiless == 3


def test_without_bodies_a_second_dispatch_still_contradicts() -> None:
    teller = Teller()
    teller.tell(told("dispatched", by=A, empty=True), 1)
    teller.tell(told("consumed", empty=True), 50)
    teller.tell(told("dispatched", by=B, empty=True), 900)
    teller.flush(60_000)
    assert teller.lines() == ["received x0 A @1", "received x0 B @900"]


def test_without_bodies_an_early_acknowledgement_still_finds_its_dispatch() -> None:
    teller = Teller()
    teller.tell(told("consumed", empty=True), 5)
    teller.tell(told("dispatched", by=A, empty=True), 6)
    teller.flush(60_000)
    assert [line.split(" @")[0] for line in teller.lines()] == ["received x0 A", "deleted x0 A"]


def test_what_cannot_be_read_is_counted_by_reason() -> None:
    teller = Teller()
    for reason in ("empty_body", "bad_body", "bad_body"):
        assert teller.tell(Unreadable("/topic/ActiveMQ.Advisory.MessageDLQd.Queue.q", reason), 1) == []
    assert teller.lifecycle.unreadable == {"empty_body": 1, "bad_body": 2}


# -- groups --


def test_every_event_of_a_grouped_queue_says_so() -> None:
    """Also of messages without a group: the tracker keeps an ordered queue's messages in one place."""
    teller = Teller()
    teller.tell(told("delivered", group="g"), 1)
    teller.tell(told("delivered", message="free"), 2)
    teller.tell(told("dispatched", message="free", by=A, out_ms=3), 3)
    teller.tell(told("consumed", message="free", out_ms=3), 4)
    teller.tell(told("delivered", message="blind", empty=True), 5)
    teller.flush(60_000)
    assert [event["ordered"] for event in teller.events] == [True] * 5
    assert teller.events[0]["group"] == "g"
    assert teller.events[0]["sequence"] == "7"
    assert "group" not in teller.events[1]


def test_other_queues_are_not_ordered() -> None:
    teller = Teller()
    teller.tell(told("delivered", group="g"), 1)
    [event] = teller.tell(told("delivered", queue="other"), 2)
    assert "ordered" not in event


def test_a_queue_named_in_the_configuration_is_ordered_from_its_first_event() -> None:
    teller = Teller()
    teller.lifecycle.lore = QueueLore(is_ordered=lambda queue: queue == QUEUE)
    assert teller.lifecycle.lore.is_ordered(QUEUE)


def test_a_dead_letter_queue_is_never_ordered() -> None:
    teller = Teller()
    teller.tell(told("dispatched", by=A, out_ms=1, group="g"), 1)
    copy = told("delivered", queue="Trash", in_ms=50, group="g", origin_queue=QUEUE, in_dead_letter_queue=True)
    [sent] = teller.tell(copy, 50)
    [moved] = teller.tell(told("dead_lettered", out_ms=1, group="g"), 51)
    assert "ordered" not in sent
    assert moved["ordered"] is True
    assert moved["to_queue"] == "Trash"


def test_a_group_that_moves_to_another_consumer_shows_in_its_deliveries() -> None:
    """The owner dies holding the head: the whole group goes to the next consumer."""
    teller = Teller()
    for name in ("m1", "m2"):
        teller.tell(told("dispatched", message=name, by=A, out_ms=1, group="g"), 1)
    teller.tell(ConsumerRemoved(A), 100)
    for name in ("m1", "m2"):
        teller.tell(told("dispatched", message=name, by=B, out_ms=110, group="g", redeliveries=1), 110)
    owners = [(e["type"], e["group"], e["consumer"]) for e in teller.events if "message_id" in e]
    assert owners == [
        ("received", "g", A),
        ("received", "g", A),
        ("released", "g", A),
        ("released", "g", A),
        ("received", "g", B),
        ("received", "g", B),
    ]


# -- dead letters --


def test_a_dead_letter_counts_from_its_original_send() -> None:
    teller = Teller()
    teller.tell(told("dead_lettered", out_ms=1), 50)
    copy = told("delivered", queue="DLQ.orders", in_ms=50, produced_ms=-3, origin_queue=QUEUE)
    teller.tell(copy, 51)
    [received] = teller.tell(told("dispatched", queue="DLQ.orders", by=A, in_ms=50, out_ms=90, produced_ms=-3), 90)
    assert received["sent_at"] == START_MS - 3


def test_the_deliveries_a_client_made_on_its_own_are_in_the_move() -> None:
    teller = Teller()
    teller.tell(told("dispatched", by=A, out_ms=1), 1)
    failure = "java.lang.Throwable: Delivery[7] exceeds redelivery policy limit:RedeliveryPolicy {x}, cause:null"
    teller.tell(told("delivered", queue="DLQ.orders", in_ms=50, origin_queue=QUEUE, failure=failure), 50)
    [moved] = teller.tell(told("dead_lettered", out_ms=1), 51)
    assert (moved["receive_count"], moved["reason"]) == (7, "Delivery[7] exceeds redelivery policy limit")


def test_an_acknowledgement_after_a_move_by_hand_is_not_a_redrive() -> None:
    """A composite queue forwards copies of messages that its own consumers take as well."""
    teller = Teller()
    teller.tell(told("delivered", queue="copies", in_ms=1, origin_queue=QUEUE), 1)
    teller.tell(told("dispatched", by=A, out_ms=2), 2)
    teller.tell(told("consumed", out_ms=2), 3)
    [event] = teller.flush(60_000)
    assert event["type"] == "deleted"
    assert "reason" not in event


# -- consumers --


def state(teller: Teller, name: str) -> dict[str, Any]:
    """The attributes last told of a consumer."""
    found: dict[str, Any] = [e for e in teller.events if e.get("consumer") == name and "attributes" in e][-1]["attributes"]
    return found


def test_a_consumer_is_told_when_it_comes_and_when_it_goes() -> None:
    teller = Teller()
    teller.tell(ConnectionOpened("ID:app-1", "billing"), 0)
    teller.tell(consumer(A, prefetch=5), 1)
    assert state(teller, A)["prefetch"] == 5
    assert state(teller, A)["client_id"] == "billing"
    assert (state(teller, A)["connected"], state(teller, A)["dispatched"]) == (True, 0)
    teller.tell(ConsumerRemoved(A), 2)
    assert (state(teller, A)["connected"], state(teller, A)["returned"]) == (False, 0)


def test_a_consumer_that_is_given_a_message_before_it_is_announced_is_new_all_the_same() -> None:
    teller = Teller()
    teller.tell(told("dispatched", by=A, out_ms=1), 1)
    teller.tell(consumer(A), 2)
    assert state(teller, A)["connected_at"] == START_MS + 2
    assert [known.whole for known in teller.lifecycle.consumers] == [True]


def test_an_aborted_consumer_is_told_of_until_its_client_is_gone_too() -> None:
    teller = Teller()
    teller.tell(ConnectionOpened("ID:app-1", None), 0)
    teller.tell(consumer(A), 0)
    teller.tell(told("dispatched", by=A, out_ms=1), 1)
    teller.tell(ConsumerRemoved(A), 40_000)
    aborted = state(teller, A)
    assert (aborted["connected"], aborted["connection_open"], aborted["returned"]) == (False, True, 1)
    assert aborted["returned_since"] == START_MS + 1
    assert aborted["removed_at"] >= START_MS + 40_000
    assert [e["consumer"] for e in teller.lifecycle.consumer_states(START_MS + 50_000)] == [A]
    teller.tell(ConnectionClosed("ID:app-1"), 60_000)
    assert state(teller, A)["connection_open"] is False
    assert teller.lifecycle.consumer_states(START_MS + 70_000) == []


def test_a_consumer_of_several_queues_is_told_of_for_each() -> None:
    teller = Teller()
    events = teller.tell(consumer(A, queue="a,queue://b"), 1)
    assert [event["queue"] for event in events] == ["a", "b"]


def test_a_wildcard_consumer_is_told_of_where_it_took_messages() -> None:
    teller = Teller()
    assert teller.tell(consumer(A, queue="orders.>"), 1) == []
    teller.tell(told("dispatched", queue="orders.eu", by=A, out_ms=2), 2)
    events = teller.lifecycle.consumer_states(START_MS + 3)
    assert [(event["queue"], event["attributes"]["dispatched"]) for event in events] == [("orders.eu", 1)]


def test_browsers_are_not_consumers() -> None:
    teller = Teller()
    assert teller.tell(consumer(A, browser=True), 1) == []
    assert teller.lifecycle.consumer_states(START_MS + 2) == []


def test_an_exclusive_consumer_is_told_as_such() -> None:
    teller = Teller()
    teller.tell(consumer(A, exclusive=True), 1)
    assert state(teller, A)["exclusive"] is True


def test_a_full_consumer_is_full_until_it_acknowledges() -> None:
    teller = Teller()
    teller.tell(consumer(A), 0)
    teller.tell(told("dispatched", by=A, out_ms=1), 1)
    teller.tell(ConsumerFull(A, QUEUE), 2)
    assert teller.lifecycle.consumer_states(START_MS + 3)[0]["attributes"]["full"] is True
    teller.tell(told("consumed", out_ms=1), 4)
    assert teller.lifecycle.consumer_states(START_MS + 5)[0]["attributes"]["full"] is False


# -- sessions --


def test_consumers_that_left_while_nobody_listened_give_back_what_they_held() -> None:
    teller = Teller()
    for name in (A, B):
        teller.tell(consumer(name), 0)
        teller.tell(told("dispatched", message=name, by=name, out_ms=1), 1)
    teller.lifecycle.begin_session()
    teller.tell(consumer(B), 30_000)
    teller.events += teller.lifecycle.end_replay(START_MS + 33_000)
    released = [event["message_id"] for event in teller.events if event["type"] == "released"]
    assert released == [A]
    assert teller.lifecycle.memory.held_count(B) == 1


def test_a_repeated_announcement_does_not_change_when_a_consumer_came() -> None:
    teller = Teller()
    teller.tell(consumer(A), 10)
    teller.lifecycle.begin_session()
    teller.tell(consumer(A), 30_000)
    assert state(teller, A)["connected_at"] == START_MS + 10


# -- limits --


def test_messages_that_only_wait_are_not_remembered() -> None:
    teller = Teller()
    for number in range(1_000):
        teller.tell(told("delivered", message=str(number)), number)
    assert len(teller.lifecycle.memory) == 0


def test_memory_of_messages_in_flight_is_bounded() -> None:
    teller = Teller(max_in_flight=10)
    for number in range(25):
        teller.tell(told("dispatched", message=str(number), by=A, out_ms=number), number)
    assert len(teller.lifecycle.memory) == 10
    assert teller.lifecycle.memory.forgotten == 15
    assert teller.lifecycle.memory.held_count(A) == 10


def test_memory_of_ended_messages_is_bounded_in_number_and_in_time() -> None:
    teller = Teller(max_ended=10, keep_ended_ms=60_000, grace_ms=0)
    for number in range(25):
        teller.tell(told("dispatched", message=str(number), by=A, out_ms=number), number)
        teller.tell(told("consumed", message=str(number), out_ms=number), number)
    teller.flush(1_000)
    assert len(teller.lifecycle.memory) == 10
    teller.flush(62_000)
    assert len(teller.lifecycle.memory) == 0
