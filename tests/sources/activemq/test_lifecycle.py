"""Conversion of advisories to events in cases that no recording shows: empty bodies, groups, dead letters, limits."""

import pytest

from sources.activemq.advisory import ConsumerRemoved, Unreadable
from sources.activemq.queue_traits import QueueTraits
from sources.wire import decode_records, encode_ndjson
from tests.sources.activemq.advisories import QUEUE, START_MS, A, B, DrivenLifecycle, seen

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


def test_ends_are_reported_in_time_when_the_clock_of_this_machine_is_set_back() -> None:
    """Those seen before have waited long enough, and do not hold back those seen since."""
    driven = DrivenLifecycle(grace_ms=2_000)
    driven.apply(seen("dispatched", message="a", by=A, out_ms=1), 3_600_001)
    driven.apply(seen("consumed", message="a", out_ms=1), 3_600_002)
    driven.apply(seen("dispatched", message="b", by=A, out_ms=3), 3)
    driven.apply(seen("consumed", message="b", out_ms=3), 4)
    assert [event["message_id"] for event in driven.flush(5)] == ["a"]
    assert driven.flush(2_000) == []
    assert [event["message_id"] for event in driven.flush(2_004)] == ["b"]


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


def test_a_redrive_to_a_grouped_queue_is_reported_from_that_queue() -> None:
    """Only so it says that the queue keeps order, which decides where the message is tracked."""
    driven = DrivenLifecycle()
    driven.apply(seen("delivered", group="g"), 1)
    driven.apply(seen("delivered", queue="Trash", in_ms=50, group="g", origin_queue=QUEUE, in_dead_letter_queue=True), 50)
    driven.apply(seen("delivered", in_ms=90, group="g", origin_queue="Trash"), 90)
    [moved] = driven.apply(seen("consumed", queue="Trash", in_ms=50, group="g"), 91)
    assert (moved["type"], moved["queue"], moved["from_queue"]) == ("redriven", QUEUE, "Trash")
    assert (moved["ordered"], moved["group"], moved["new_message_id"]) == (True, "g", "m")
    assert "to_queue" not in moved


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


@pytest.mark.parametrize("produced_ms", [START_MS // 1000, 1, -1])
def test_a_dead_letter_with_an_impossible_send_time_is_as_old_as_its_arrival(produced_ms: int) -> None:
    """A STOMP producer's header `timestamp` may hold seconds; the reader would refuse the whole event."""
    driven = DrivenLifecycle()
    copy = seen("delivered", queue="DLQ.orders", in_ms=50, produced_ms=produced_ms - START_MS, origin_queue=QUEUE)
    driven.apply(seen("dead_lettered", out_ms=1), 49)
    [moved, arrived] = driven.apply(copy, 51)
    assert arrived["sent_at"] == START_MS + 50
    assert decode_records([encode_ndjson([moved, arrived])]).invalid == []


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
    assert driven.lifecycle.memory.held_count(A) == 10


def test_an_acknowledgement_is_reported_whatever_is_dispatched_meanwhile() -> None:
    """It waits for a contradiction; a full prefetch window that follows it must not push it out of memory."""
    driven = DrivenLifecycle(max_in_flight=10)
    driven.apply(seen("dispatched", message="first", by=A, out_ms=1), 1)
    driven.apply(seen("consumed", message="first", out_ms=1), 2)
    for number in range(3, 23):
        driven.apply(seen("dispatched", message=str(number), by=A, out_ms=number), number)
    [event] = driven.flush(5_000)
    assert (event["type"], event["message_id"], event["consumer"]) == ("deleted", "first", A)


def test_a_message_dispatched_again_is_not_the_oldest_in_flight() -> None:
    driven = DrivenLifecycle(max_in_flight=2)
    for message, out_ms in (("first", 1), ("second", 2), ("first", 3), ("third", 4)):
        driven.apply(seen("dispatched", message=message, by=A, out_ms=out_ms), out_ms)
    assert [held.message_id for held in driven.lifecycle.memory.held_by(A)] == ["first", "third"]


def test_pending_ends_kept_in_memory_are_limited() -> None:
    driven = DrivenLifecycle(max_in_flight=10)
    for number in range(25):
        driven.apply(seen("consumed", message=str(number), out_ms=0), 100)
    assert len(driven.lifecycle.memory) == 10


def test_ended_messages_kept_in_memory_are_limited_in_number_and_time() -> None:
    driven = DrivenLifecycle(max_ended=10, keep_ended_ms=60_000, grace_ms=0)
    for number in range(25):
        driven.apply(seen("dispatched", message=str(number), by=A, out_ms=number), number)
        driven.apply(seen("consumed", message=str(number), out_ms=number), number)
    driven.flush(1_000)
    assert len(driven.lifecycle.memory) == 10
    driven.flush(62_000)
    assert len(driven.lifecycle.memory) == 0
