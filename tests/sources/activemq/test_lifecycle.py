"""Conversion of advisories to events in cases that no recording shows: races, losses, limits."""

from typing import Any

import pytest

from sources.activemq.advisory import (
    ConnectionClosed,
    ConnectionOpened,
    ConsumerFull,
    ConsumerRemoved,
    Unreadable,
)
from sources.activemq.queue_traits import QueueTraits
from tests.sources.activemq.advisories import QUEUE, START_MS, A, B, DrivenLifecycle, consumer, seen

# Each row: the advisories and when they are read (ms), then all events reported until long after.
RACES: list[tuple[str, list[tuple[int, Any]], list[str]]] = [
    (
        "the acknowledgement is read before the dispatch",
        [(5, seen("consumed", out_ms=2)), (6, seen("dispatched", by=A, out_ms=2))],
        ["received x1 A @2", "deleted x1 A @5"],
    ),
    (
        "the dispatch is read before the arrival",
        [(3, seen("dispatched", by=A, out_ms=2)), (4, seen("delivered")), (9, seen("consumed", out_ms=2))],
        ["received x1 A @2", "sent x0 - @0", "deleted x1 A @5"],
    ),
    (
        "the next dispatch is read before the first consumer's end",
        [
            (1, seen("dispatched", by=A, out_ms=1)),
            (50, seen("dispatched", by=B, out_ms=50, redeliveries=1)),
            (51, ConsumerRemoved(A)),
            (90, seen("consumed", out_ms=50)),
        ],
        ["received x1 A @1", "received x2 B @50", "deleted x2 B @90"],
    ),
    (
        "a second dispatch contradicts the acknowledgement",
        [
            (1, seen("dispatched", by=A, out_ms=1)),
            (50, seen("consumed", out_ms=1)),
            (51, ConsumerRemoved(A)),
            (900, seen("dispatched", by=B, out_ms=900, redeliveries=1)),
        ],
        ["received x1 A @1", "received x2 B @900"],
    ),
    (
        "a second dispatch contradicts the acknowledgement after it was reported",
        [
            (1, seen("dispatched", by=A, out_ms=1)),
            (50, seen("consumed", out_ms=1)),
            (9_000, seen("dispatched", by=B, out_ms=9_000, redeliveries=1)),
        ],
        ["received x1 A @1", "deleted x1 A @50", "received x2 B @9000"],
    ),
    (
        "the second delivery's acknowledgement is read before its dispatch",
        [
            (1, seen("dispatched", by=A, out_ms=1)),
            (50, ConsumerRemoved(A)),
            (61, seen("consumed", out_ms=60, redeliveries=1)),
            (62, seen("dispatched", by=B, out_ms=60, redeliveries=1)),
        ],
        ["received x1 A @1", "released x1 A @50", "received x2 B @60", "deleted x2 B @61"],
    ),
    (
        "a dispatch that is read after its acknowledgement was reported",
        [(5, seen("consumed", out_ms=2)), (9_000, seen("dispatched", by=A, out_ms=2))],
        ["deleted x0 - @5", "received x1 A @2"],
    ),
    (
        "an acknowledgement repeated long after, without another dispatch",
        [
            (1, seen("dispatched", by=A, out_ms=1)),
            (50, seen("consumed", out_ms=1)),
            (9_000, seen("consumed", out_ms=1)),
        ],
        ["received x1 A @1", "deleted x1 A @50", "received x2 A @9000", "deleted x2 A @9000"],
    ),
    (
        "given back and dispatched again within a millisecond",
        [
            (1, seen("dispatched", by=A, out_ms=1)),
            (50, ConsumerRemoved(A)),
            (50, seen("dispatched", by=B, out_ms=50, redeliveries=1)),
        ],
        ["received x1 A @1", "released x1 A @50", "received x2 B @51"],
    ),
    (
        "a broker that forgot its redelivery counter at a restart",
        [
            (1, seen("dispatched", by=A, out_ms=1, redeliveries=3)),
            (50, ConsumerRemoved(A)),
            (99, seen("dispatched", by=B, out_ms=99, redeliveries=0)),
        ],
        ["received x4 A @1", "released x4 A @50", "received x4 B @99"],
    ),
    (
        "the copy in the dead-letter queue is read after the move",
        [
            (1, seen("dispatched", by=A, out_ms=1)),
            (50, seen("dead_lettered", out_ms=1)),
            (51, seen("consumed", out_ms=1)),
            (52, seen("delivered", queue="DLQ.orders", in_ms=50, out_ms=1, origin_queue=QUEUE)),
        ],
        ["received x1 A @1", "dead_lettered x1 A @50", "sent x0 - @50"],
    ),
    (
        "the copy in the dead-letter queue is never read",
        [(1, seen("dispatched", by=A, out_ms=1)), (50, seen("dead_lettered", out_ms=1))],
        ["received x1 A @1", "dead_lettered x1 A @50"],
    ),
    (
        "a redelivery plugin sends the message into its queue again",
        [
            (1, seen("dispatched", by=A, out_ms=1)),
            (50, seen("consumed", out_ms=1)),
            (80, seen("delivered", in_ms=80, out_ms=1)),
            (90, seen("dispatched", by=B, in_ms=80, out_ms=90, redeliveries=1)),
        ],
        ["received x1 A @1", "deleted x1 A @50", "sent x0 - @80", "received x2 B @90"],
    ),
]


@pytest.mark.parametrize(("advisories", "expected"), [pytest.param(a, e, id=why) for why, a, e in RACES])
def test_races(advisories: list[tuple[int, Any]], expected: list[str]) -> None:
    driven = DrivenLifecycle()
    for at, advisory in advisories:
        driven.flush(at)
        driven.apply(advisory, at)
    driven.flush(60_000)
    assert driven.lines() == expected


def test_an_acknowledgement_is_reported_after_its_grace_period() -> None:
    driven = DrivenLifecycle(grace_ms=2_000)
    driven.apply(seen("dispatched", by=A, out_ms=1), 1)
    driven.apply(seen("consumed", out_ms=1), 50)
    assert driven.flush(2_049) == []
    assert [event["type"] for event in driven.flush(2_050)] == ["deleted"]


# -- empty bodies --


def test_an_arrival_without_a_body_lacks_the_body_s_fields() -> None:
    driven = DrivenLifecycle()
    [event] = driven.apply(seen("delivered", empty=True), 5)
    assert event["at"] == START_MS + 5
    assert not event.keys() & {"sent_at", "group", "sequence", "receive_count"}


def test_a_message_without_bodies_is_followed_from_send_to_end() -> None:
    driven = DrivenLifecycle()
    for at, advisory in (
        (1, seen("delivered", empty=True)),
        (2, seen("dispatched", by=A, empty=True)),
        (9, seen("consumed", empty=True)),
    ):
        driven.apply(advisory, at)
    driven.flush(60_000)
    assert driven.lines() == ["sent x0 - @1", "received x0 A @2", "deleted x0 A @9"]
    assert driven.lifecycle.bodiless == 3


def test_without_bodies_a_second_dispatch_still_contradicts_the_end() -> None:
    driven = DrivenLifecycle()
    driven.apply(seen("dispatched", by=A, empty=True), 1)
    driven.apply(seen("consumed", empty=True), 50)
    driven.apply(seen("dispatched", by=B, empty=True), 900)
    driven.flush(60_000)
    assert driven.lines() == ["received x0 A @1", "received x0 B @900"]


def test_without_bodies_an_early_acknowledgement_still_matches_its_dispatch() -> None:
    driven = DrivenLifecycle()
    driven.apply(seen("consumed", empty=True), 5)
    driven.apply(seen("dispatched", by=A, empty=True), 6)
    driven.flush(60_000)
    assert [line.split(" @")[0] for line in driven.lines()] == ["received x0 A", "deleted x0 A"]


def test_unreadable_advisories_are_counted_by_reason() -> None:
    driven = DrivenLifecycle()
    for reason in ("empty_body", "bad_body", "bad_body"):
        assert driven.apply(Unreadable("/topic/ActiveMQ.Advisory.MessageDLQd.Queue.q", reason), 1) == []
    assert driven.lifecycle.unreadable == {"empty_body": 1, "bad_body": 2}


# -- groups --


def test_every_event_of_a_grouped_queue_is_marked_ordered() -> None:
    """Messages without a group are marked too: the tracker keeps all messages of an ordered queue in one shard."""
    driven = DrivenLifecycle()
    driven.apply(seen("delivered", group="g"), 1)
    driven.apply(seen("delivered", message="free"), 2)
    driven.apply(seen("dispatched", message="free", by=A, out_ms=3), 3)
    driven.apply(seen("consumed", message="free", out_ms=3), 4)
    driven.apply(seen("delivered", message="blind", empty=True), 5)
    driven.flush(60_000)
    assert [event["ordered"] for event in driven.events] == [True] * 5
    assert driven.events[0]["group"] == "g"
    assert driven.events[0]["sequence"] == "7"
    assert "group" not in driven.events[1]


def test_other_queues_are_not_ordered() -> None:
    driven = DrivenLifecycle()
    driven.apply(seen("delivered", group="g"), 1)
    [event] = driven.apply(seen("delivered", queue="other"), 2)
    assert "ordered" not in event


def test_a_queue_configured_as_ordered_is_ordered_from_its_first_event() -> None:
    driven = DrivenLifecycle(QueueTraits(is_ordered=lambda queue: queue == QUEUE))
    [event] = driven.apply(seen("delivered"), 1)
    assert event["ordered"] is True


def test_a_dead_letter_queue_is_never_ordered() -> None:
    driven = DrivenLifecycle()
    driven.apply(seen("dispatched", by=A, out_ms=1, group="g"), 1)
    copy = seen("delivered", queue="Trash", in_ms=50, group="g", origin_queue=QUEUE, in_dead_letter_queue=True)
    [sent] = driven.apply(copy, 50)
    [moved] = driven.apply(seen("dead_lettered", out_ms=1, group="g"), 51)
    assert "ordered" not in sent
    assert moved["ordered"] is True
    assert moved["to_queue"] == "Trash"


def test_deliveries_show_that_a_group_moved_to_another_consumer() -> None:
    """The owner dies while it holds the head, and the whole group goes to the next consumer."""
    driven = DrivenLifecycle()
    for name in ("m1", "m2"):
        driven.apply(seen("dispatched", message=name, by=A, out_ms=1, group="g"), 1)
    driven.apply(ConsumerRemoved(A), 100)
    for name in ("m1", "m2"):
        driven.apply(seen("dispatched", message=name, by=B, out_ms=110, group="g", redeliveries=1), 110)
    owners = [(e["type"], e["group"], e["consumer"]) for e in driven.events if "message_id" in e]
    assert owners == [
        ("received", "g", A),
        ("received", "g", A),
        ("released", "g", A),
        ("released", "g", A),
        ("received", "g", B),
        ("received", "g", B),
    ]


# -- dead letters --


def test_a_dead_letter_keeps_its_original_send_time() -> None:
    driven = DrivenLifecycle()
    driven.apply(seen("dead_lettered", out_ms=1), 50)
    copy = seen("delivered", queue="DLQ.orders", in_ms=50, produced_ms=-3, origin_queue=QUEUE)
    driven.apply(copy, 51)
    [received] = driven.apply(seen("dispatched", queue="DLQ.orders", by=A, in_ms=50, out_ms=90, produced_ms=-3), 90)
    assert received["sent_at"] == START_MS - 3


def test_a_move_includes_the_client_s_own_redeliveries() -> None:
    driven = DrivenLifecycle()
    driven.apply(seen("dispatched", by=A, out_ms=1), 1)
    failure = "java.lang.Throwable: Delivery[7] exceeds redelivery policy limit:RedeliveryPolicy {x}, cause:null"
    driven.apply(seen("delivered", queue="DLQ.orders", in_ms=50, origin_queue=QUEUE, failure=failure), 50)
    [moved] = driven.apply(seen("dead_lettered", out_ms=1), 51)
    assert (moved["receive_count"], moved["reason"]) == (7, "Delivery[7] exceeds redelivery policy limit")


def test_an_acknowledgement_after_a_move_by_hand_is_not_a_redrive() -> None:
    """A composite queue forwards copies of messages that its own consumers also take."""
    driven = DrivenLifecycle()
    driven.apply(seen("delivered", queue="copies", in_ms=1, origin_queue=QUEUE), 1)
    driven.apply(seen("dispatched", by=A, out_ms=2), 2)
    driven.apply(seen("consumed", out_ms=2), 3)
    [event] = driven.flush(60_000)
    assert event["type"] == "deleted"
    assert "reason" not in event


# -- consumers --


def state(driven: DrivenLifecycle, name: str) -> dict[str, Any]:
    """Return the attributes last reported for a consumer."""
    found: dict[str, Any] = [e for e in driven.events if e.get("consumer") == name and "attributes" in e][-1]["attributes"]
    return found


def test_a_consumer_is_reported_when_it_connects_and_disconnects() -> None:
    driven = DrivenLifecycle()
    driven.apply(ConnectionOpened("ID:app-1", "billing"), 0)
    driven.apply(consumer(A, prefetch=5), 1)
    assert state(driven, A)["prefetch"] == 5
    assert state(driven, A)["client_id"] == "billing"
    assert (state(driven, A)["connected"], state(driven, A)["dispatched"]) == (True, 0)
    driven.apply(ConsumerRemoved(A), 2)
    assert (state(driven, A)["connected"], state(driven, A)["returned"]) == (False, 0)


def test_a_consumer_with_a_dispatch_before_its_announcement_is_still_new() -> None:
    driven = DrivenLifecycle()
    driven.apply(seen("dispatched", by=A, out_ms=1), 1)
    driven.apply(consumer(A), 2)
    assert state(driven, A)["connected_at"] == START_MS + 2
    assert [known.whole for known in driven.lifecycle.consumers] == [True]


def test_an_aborted_consumer_is_reported_until_its_connection_closes() -> None:
    driven = DrivenLifecycle()
    driven.apply(ConnectionOpened("ID:app-1", None), 0)
    driven.apply(consumer(A), 0)
    driven.apply(seen("dispatched", by=A, out_ms=1), 1)
    driven.apply(ConsumerRemoved(A), 40_000)
    aborted = state(driven, A)
    assert (aborted["connected"], aborted["connection_open"], aborted["returned"]) == (False, True, 1)
    assert aborted["returned_since"] == START_MS + 1
    assert aborted["removed_at"] >= START_MS + 40_000
    assert [e["consumer"] for e in driven.lifecycle.consumer_states(START_MS + 50_000)] == [A]
    driven.apply(ConnectionClosed("ID:app-1"), 60_000)
    assert state(driven, A)["connection_open"] is False
    assert driven.lifecycle.consumer_states(START_MS + 70_000) == []


def test_a_consumer_of_several_queues_is_reported_for_each() -> None:
    driven = DrivenLifecycle()
    events = driven.apply(consumer(A, queue="a,queue://b"), 1)
    assert [event["queue"] for event in events] == ["a", "b"]


def test_a_wildcard_consumer_is_reported_for_queues_it_took_messages_from() -> None:
    driven = DrivenLifecycle()
    assert driven.apply(consumer(A, queue="orders.>"), 1) == []
    driven.apply(seen("dispatched", queue="orders.eu", by=A, out_ms=2), 2)
    events = driven.lifecycle.consumer_states(START_MS + 3)
    assert [(event["queue"], event["attributes"]["dispatched"]) for event in events] == [("orders.eu", 1)]


def test_browsers_are_not_consumers() -> None:
    driven = DrivenLifecycle()
    assert driven.apply(consumer(A, browser=True), 1) == []
    assert driven.lifecycle.consumer_states(START_MS + 2) == []


def test_an_exclusive_consumer_is_reported_as_such() -> None:
    driven = DrivenLifecycle()
    driven.apply(consumer(A, exclusive=True), 1)
    assert state(driven, A)["exclusive"] is True


def test_a_full_consumer_is_full_until_it_acknowledges() -> None:
    driven = DrivenLifecycle()
    driven.apply(consumer(A), 0)
    driven.apply(seen("dispatched", by=A, out_ms=1), 1)
    driven.apply(ConsumerFull(A, QUEUE), 2)
    assert driven.lifecycle.consumer_states(START_MS + 3)[0]["attributes"]["full"] is True
    driven.apply(seen("consumed", out_ms=1), 4)
    assert driven.lifecycle.consumer_states(START_MS + 5)[0]["attributes"]["full"] is False


# -- sessions --


def test_consumers_that_left_during_an_outage_release_their_messages() -> None:
    driven = DrivenLifecycle()
    for name in (A, B):
        driven.apply(consumer(name), 0)
        driven.apply(seen("dispatched", message=name, by=name, out_ms=1), 1)
    driven.lifecycle.begin_session()
    driven.apply(consumer(B), 30_000)
    driven.events += driven.lifecycle.end_replay(START_MS + 33_000)
    released = [event["message_id"] for event in driven.events if event["type"] == "released"]
    assert released == [A]
    assert driven.lifecycle.memory.held_count(B) == 1


def test_a_repeated_announcement_keeps_the_consumer_s_connect_time() -> None:
    driven = DrivenLifecycle()
    driven.apply(consumer(A), 10)
    driven.lifecycle.begin_session()
    driven.apply(consumer(A), 30_000)
    assert state(driven, A)["connected_at"] == START_MS + 10


# -- limits --


def test_waiting_messages_are_not_kept_in_memory() -> None:
    driven = DrivenLifecycle()
    for number in range(1_000):
        driven.apply(seen("delivered", message=str(number)), number)
    assert len(driven.lifecycle.memory) == 0


def test_messages_in_flight_kept_in_memory_are_limited() -> None:
    driven = DrivenLifecycle(max_in_flight=10)
    for number in range(25):
        driven.apply(seen("dispatched", message=str(number), by=A, out_ms=number), number)
    assert len(driven.lifecycle.memory) == 10
    assert driven.lifecycle.memory.forgotten == 15
    assert driven.lifecycle.memory.held_count(A) == 10


def test_ended_messages_kept_in_memory_are_limited_in_number_and_time() -> None:
    driven = DrivenLifecycle(max_ended=10, keep_ended_ms=60_000, grace_ms=0)
    for number in range(25):
        driven.apply(seen("dispatched", message=str(number), by=A, out_ms=number), number)
        driven.apply(seen("consumed", message=str(number), out_ms=number), number)
    driven.flush(1_000)
    assert len(driven.lifecycle.memory) == 10
    driven.flush(62_000)
    assert len(driven.lifecycle.memory) == 0
