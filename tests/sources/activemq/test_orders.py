"""Advisories recorded from a real broker give the expected events, even when neighbours are read in the wrong order."""

import itertools
from collections.abc import Sequence

import pytest

from sources.activemq.advisory import MessageAdvisory, parse
from sources.activemq.inbox import Incoming
from sources.activemq.lifecycle import Lifecycle, Limits
from sources.events import Event
from tests.sources.activemq.orders import ORDERS, Order, describe
from tests.sources.activemq.record import load

BY_NAME = [pytest.param(order, id=order.name) for order in ORDERS]
LONG_AFTER_MS = 60_000


def translate(frames: Sequence[Incoming], grace_ms: int = 2_000) -> list[Event]:
    """Return the events of recorded frames, read one after another at their recorded times."""
    lifecycle = Lifecycle("test", limits=Limits(grace_ms=grace_ms))
    lifecycle.end_replay(frames[0].at_ms)
    events: list[Event] = []
    for frame in frames:
        events += lifecycle.flush(frame.at_ms)
        events += lifecycle.apply(parse(frame.headers, frame.body), frame.at_ms)
    return events + lifecycle.flush(frames[-1].at_ms + LONG_AFTER_MS)


@pytest.mark.parametrize("order", BY_NAME)
def test_recorded_advisories_give_the_expected_events(order: Order) -> None:
    order.check(translate(load(order.name)))


# Up to 6.1, an acknowledgement in a transaction is reported at the commit, not before.
OLDER = {
    "rollback": ["sent q", "received q x1 by A", "dead_lettered q x3 by A to DLQ.q", "sent DLQ.q"],
    "close_uncommitted": [
        "sent q",
        "received q x1 by A",
        "released q x1 by A",
        "received q x2 by B",
        "deleted q x2 by B",
    ],
    "stomp_abort": ["sent q", "received q x1 by A", "deleted q x1 by A"],
}


@pytest.mark.parametrize("name", OLDER)
def test_an_older_broker_s_advisories_give_the_same_outcome(name: str) -> None:
    assert describe(translate(load(f"{name}-6.1")), f"o.{name}") == OLDER[name]


@pytest.mark.parametrize("order", BY_NAME)
def test_neighbours_read_in_the_wrong_order_have_the_same_outcome(order: Order) -> None:
    """The order of deliveries may change; the number of deliveries and the end of each message may not."""
    frames = load(order.name)
    right = ends(translate(frames))
    for left, later in itertools.pairwise(range(len(frames))):
        if not may_be_swapped(frames[left], frames[later]):
            continue
        swapped = list(frames)
        swapped[left], swapped[later] = swapped[later], swapped[left]
        assert ends(translate(swapped)) == right, f"{left} and {later} swapped"


def may_be_swapped(earlier: Incoming, later: Incoming) -> bool:
    """Return whether a broker may report these two in either order: a dispatch and its neighbour."""
    return "MessageDispatched" in earlier.headers["destination"] + later.headers["destination"]


def ends(events: Sequence[Event]) -> dict[tuple[str, str], tuple[str, int, str | None]]:
    """Return per queue and message: the last event, the highest receive count, the last consumer."""
    found: dict[tuple[str, str], tuple[str, int, str | None]] = {}
    order = {"sent": 1, "received": 2, "released": 3}
    for event in sorted(events, key=lambda event: (event["at"], order.get(event["type"], 4))):
        if "message_id" not in event:
            continue
        key = (event["queue"], event["message_id"])
        _, count, consumer = found.get(key, ("", 0, None))
        count = max(count, event.get("receive_count", 0))
        found[key] = (event["type"], count, event.get("consumer", consumer))
    return found


@pytest.mark.parametrize("order", BY_NAME)
def test_an_end_reported_too_early_is_corrected(order: Order) -> None:
    """Without a grace period a contradiction is reported as a new delivery, and the outcome is the same."""
    frames = load(order.name)
    assert ends(translate(frames, grace_ms=0)) == ends(translate(frames))


@pytest.mark.parametrize("order", BY_NAME)
def test_duplicate_advisories_have_the_same_outcome(order: Order) -> None:
    """Only a duplicate acknowledgement counts as two; a broker sends each advisory once per subscription."""
    frames = [frame for frame in load(order.name) for _ in range(1 if "MessageConsumed" in frame.headers["destination"] else 2)]
    assert ends(translate(frames)) == ends(translate(load(order.name)))


@pytest.mark.parametrize("order", BY_NAME)
def test_times_of_a_message_never_decrease(order: Order) -> None:
    """The recordings have no event with an earlier time than a previous one of the same message, apart from `sent`."""
    last: dict[tuple[str, str], int] = {}
    for event in translate(load(order.name)):
        if "message_id" in event and event["type"] != "sent":
            key = (event["queue"], event["message_id"])
            assert event["at"] >= last.get(key, 0)
            last[key] = event["at"]


@pytest.mark.parametrize("name", ["nack", "recover"])
def test_a_rejection_is_an_acknowledgement(name: str) -> None:
    """The broker counts both as its consumer's last acknowledgement."""
    lifecycle = Lifecycle("test")
    lifecycle.end_replay(load(name)[0].at_ms)
    for frame in load(name):
        advisory = parse(frame.headers, frame.body)
        lifecycle.apply(advisory, frame.at_ms)
        if isinstance(advisory, MessageAdvisory) and advisory.kind == "dead_lettered":
            break
    [consumer] = lifecycle.consumers
    assert consumer.last_ack_at_ms == lifecycle.clock.at(frame.at_ms)


def test_an_acknowledgement_read_before_its_dispatch_counts_for_the_consumer() -> None:
    lifecycle = Lifecycle("test")
    frames = load("auto_ack")
    kinds = [getattr(parse(frame.headers, frame.body), "kind", None) for frame in frames]
    consumed, dispatched = kinds.index("consumed"), kinds.index("dispatched")
    assert consumed < dispatched
    for frame in frames[: dispatched + 1]:
        lifecycle.apply(parse(frame.headers, frame.body), frame.at_ms)
    [consumer] = lifecycle.consumers
    assert consumer.last_ack_at_ms is not None
    assert abs(consumer.last_ack_at_ms - lifecycle.clock.at(frames[consumed].at_ms)) <= 5


@pytest.mark.parametrize("name", ["retry", "retry_given_up"])
def test_a_queue_whose_dead_letters_come_back_is_no_dead_letter_queue(name: str) -> None:
    lifecycle = Lifecycle("test")
    for frame in load(name):
        lifecycle.apply(parse(frame.headers, frame.body), frame.at_ms)
    queues = (f"o.{name}", f"DLQ.o.{name}")
    assert [lifecycle.traits.is_dead_letter_queue(queue) for queue in queues] == [False, True]
