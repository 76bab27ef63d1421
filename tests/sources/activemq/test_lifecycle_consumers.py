"""What is reported of a consumer: when it connects, fills up, aborts, disconnects, or left during an outage."""

from typing import Any

from sources.activemq.advisory import ConnectionClosed, ConnectionOpened, ConsumerFull, ConsumerRemoved
from tests.sources.activemq.advisories import QUEUE, START_MS, A, B, DrivenLifecycle, consumer, seen


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


def test_a_consumer_that_left_does_not_come_back_with_a_late_advisory() -> None:
    """The broker writes the advisory of a full prefetch window in another thread than that of the consumer's end."""
    driven = DrivenLifecycle()
    driven.apply(consumer(A), 0)
    driven.apply(ConsumerRemoved(A), 1)
    driven.apply(ConsumerFull(A, QUEUE), 2)
    assert list(driven.lifecycle.consumers) == []


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


def test_a_dispatch_read_late_does_not_set_back_the_last_acknowledgement() -> None:
    """Its own acknowledgement was read before it, and another one since."""
    driven = DrivenLifecycle()
    driven.apply(consumer(A), 0)
    driven.apply(seen("consumed", message="m1", out_ms=1), 2)
    driven.apply(seen("dispatched", message="m2", by=A, out_ms=3), 3)
    driven.apply(seen("consumed", message="m2", out_ms=3), 900)
    driven.apply(seen("dispatched", message="m1", by=A, out_ms=1), 901)
    assert [known.last_ack_at_ms for known in driven.lifecycle.consumers] == [START_MS + 900]


def test_an_expiry_is_not_an_acknowledgement() -> None:
    """A message that expired at its consumer was moved by the broker."""
    driven = DrivenLifecycle()
    driven.apply(consumer(A), 0)
    driven.apply(seen("dispatched", by=A, out_ms=1, expires_ms=50), 1)
    driven.apply(seen("dead_lettered", out_ms=1, expires_ms=50), 60)
    driven.apply(seen("expired", out_ms=1, expires_ms=50), 60)
    assert [known.last_ack_at_ms for known in driven.lifecycle.consumers] == [None]


def test_a_message_rejected_after_its_expiry_did_not_expire() -> None:
    """The broker moves one that expired itself, and then gives that as the cause of the copy's move."""
    driven = DrivenLifecycle()
    driven.apply(consumer(A), 0)
    driven.apply(seen("dispatched", by=A, out_ms=1, expires_ms=50), 1)
    driven.apply(seen("delivered", queue="Trash", in_ms=60, out_ms=1, origin_queue=QUEUE), 60)
    [moved] = driven.apply(seen("dead_lettered", out_ms=1, expires_ms=50), 61)
    assert (moved["to_queue"], moved["reason"]) == ("Trash", "rejected by the consumer")
    assert [known.last_ack_at_ms for known in driven.lifecycle.consumers] == [moved["at"]]


def test_a_message_rejected_after_it_expired_once_and_came_back_did_not_expire_again() -> None:
    """Its copy in the dead-letter queue still has the cause of the first move, and it has no expiry any more."""
    driven = DrivenLifecycle()
    driven.apply(consumer(A), 0)
    driven.apply(seen("dispatched", by=A, out_ms=1), 1)
    cause = "java.lang.Throwable: Message Expired. Expiration:1795887059904"
    driven.apply(seen("delivered", queue="Trash", in_ms=60, out_ms=1, origin_queue=QUEUE, failure=cause), 60)
    [moved] = driven.apply(seen("dead_lettered", out_ms=1, failure=cause), 61)
    assert moved["reason"] == "rejected by the consumer"
    assert [known.last_ack_at_ms for known in driven.lifecycle.consumers] == [moved["at"]]


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
