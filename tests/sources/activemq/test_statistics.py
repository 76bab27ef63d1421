"""The statistics plugin's replies, the polls that collect them, and the conclusions drawn from them."""

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest

from sources.activemq.consumers import Consumer
from sources.activemq.discarded import DiscardWatch
from sources.activemq.lifecycle import Lifecycle
from sources.activemq.poll import Round, StatisticsPoll
from sources.activemq.reconcile import GONE, NOT_GONE, Reconciler
from sources.activemq.statistics import (
    BrokerStatistics,
    QueueCounts,
    SubscriptionCounts,
    SubscriptionKey,
    parse_reply,
)
from sources.activemq.unprepared import FlagWatch
from sources.events import Event
from tests.sources.activemq.advisories import QUEUE, START_MS, A, B, DrivenLifecycle, consumer, seen


def reply(values: Mapping[str, object]) -> str:
    """Return a map as the broker writes it: a string as a pair, any other value beside its name."""
    entries = [
        {"string": [name, value]}
        if isinstance(value, str)
        else {"string": name, "boolean" if isinstance(value, bool) else "long": value}
        for name, value in values.items()
    ]
    return json.dumps({"map": {"entry": entries}})


QUEUE_REPLY = {
    "brokerName": "test",
    "destinationName": "queue://orders",
    "size": 13,
    "inflightCount": 3,
    "consumerCount": 1,
    "producerCount": 2,
    "enqueueCount": 20,
    "dequeueCount": 7,
    "dispatchCount": 10,
    "expiredCount": 0,
    "memoryPercentUsage": 4,
    "firstMessageTimestamp": START_MS,
}
SUBSCRIPTION_REPLY = {
    "brokerName": "test",
    "destinationName": "orders",
    "connectionId": "ID:app-1",
    "sessionId": 1,
    "dispatchedQueueSize": 3,
    "prefetchSize": 5,
    "slowConsumer": True,
    "clientId": "app",
    "enqueueCounter": 9,
    "dispatchedCounter": 7,
}


def test_counts_of_a_queue() -> None:
    counts = parse_reply(reply(QUEUE_REPLY))
    assert isinstance(counts, QueueCounts)
    assert counts.attributes() == {
        "visible": 10,
        "in_flight": 3,
        "consumers": 1,
        "producers": 2,
        "memory_percent": 4,
        "oldest_sent_at": START_MS,
    }


def test_an_empty_queue_has_no_oldest_message() -> None:
    counts = parse_reply(reply({k: v for k, v in QUEUE_REPLY.items() if k != "firstMessageTimestamp"}))
    assert isinstance(counts, QueueCounts)
    assert "oldest_sent_at" not in counts.attributes()


def test_visible_is_never_negative() -> None:
    """The broker reads the two counts one after the other, so more may be in flight than there are messages."""
    counts = parse_reply(reply({**QUEUE_REPLY, "size": 2}))
    assert isinstance(counts, QueueCounts)
    assert (counts.attributes()["visible"], counts.attributes()["in_flight"]) == (0, 2)


def test_counts_of_a_subscription() -> None:
    counts = parse_reply(reply(SUBSCRIPTION_REPLY))
    assert counts == SubscriptionCounts(("ID:app-1", 1, "orders"), 3, 5, True, "app", 2)


def test_counts_of_a_subscription_without_those_of_discarded_advisories() -> None:
    """They are a check of the collector's own: what a consumer holds is known without them."""
    missing = {"clientId", "enqueueCounter", "dispatchedCounter"}
    counts = parse_reply(reply({k: v for k, v in SUBSCRIPTION_REPLY.items() if k not in missing}))
    assert counts == SubscriptionCounts(("ID:app-1", 1, "orders"), 3, 5, True)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{}",
        '{"map":""}',
        '{"map":{"entry":[{"string":["brokerName"]}]}}',
        "nonsense",
        pytest.param('{"map":' * 100_000, id="nested without end"),
        reply({**QUEUE_REPLY, "destinationName": "topic://news"}),
        pytest.param(reply({**QUEUE_REPLY, "size": math.inf}), id="a number that is no integer"),
    ],
)
def test_other_replies_are_ignored(body: str) -> None:
    assert parse_reply(body) is None


def test_the_broker_s_reply_has_its_name() -> None:
    assert parse_reply(reply({"brokerName": "east", "size": 0})) == BrokerStatistics("east")


@pytest.mark.parametrize(("queue", "written"), [("2.0", 2), ("007", 7), ("1e3", 1000), ("TRUE", True)])
def test_the_counts_of_a_queue_that_is_named_like_a_number_are_those_of_its_consumer(queue: str, written: object) -> None:
    """The broker's JSON makes a number of such a name."""
    pair = {"string": ["destinationName", written]}
    body = json.loads(reply({name: value for name, value in SUBSCRIPTION_REPLY.items() if name != "destinationName"}))
    counts = parse_reply(json.dumps({"map": {"entry": [*body["map"]["entry"], pair]}}))
    assert isinstance(counts, SubscriptionCounts)
    driven = DrivenLifecycle()
    driven.apply(consumer("ID:app-1:1:1", queue=queue), 0)
    Reconciler(driven.lifecycle).observe([counts], START_MS, START_MS + 5)
    (there,) = driven.lifecycle.consumers
    assert there.broker_dispatched == 3


# -- rounds --


class Sent:
    """A fake connection that records what is sent."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Mapping[str, str]]] = []

    def send(self, destination: str, headers: Mapping[str, str], body: str = "") -> None:
        assert body == ""
        self.requests.append((destination, headers))

    def subscribe(self, destination: str, subscription: str, headers: Mapping[str, str], ack: str = "auto") -> None:
        assert (destination, subscription, ack) == ("/temp-queue/queuewatch", "statistics", "auto")
        assert headers == {"transformation": "jms-json"}

    def take(self) -> list[str]:
        """Return the destinations requested since the last call."""
        taken, self.requests = [destination for destination, _ in self.requests], []
        return taken

    def mark(self) -> Mapping[str, str]:
        """Return the headers of the reply to the last request."""
        return {"correlation-id": self.requests[-1][1]["correlation-id"]}


def polled(sent: Sent) -> StatisticsPoll:
    """Return a poll of a broker that is known to have the plugin."""
    poll = StatisticsPoll(sent, (">",), 10.0, oldest_message=True)
    poll.start()
    poll.tick(0.0, START_MS)
    assert [destination for destination, _ in sent.requests] == ["/topic/ActiveMQ.Statistics.Broker"]
    assert poll.reply(sent.mark(), reply({"brokerName": "test"})) is None
    sent.take()
    poll.tick(0.1, START_MS)
    return poll


def test_nothing_is_sent_to_a_queue_before_the_plugin_has_answered() -> None:
    """Without the plugin the request would stay in the queue as a message."""
    sent = Sent()
    poll = StatisticsPoll(sent, (">",), 10.0, oldest_message=True)
    for second in range(60):
        poll.tick(float(second), START_MS)
    assert set(sent.take()) == {"/topic/ActiveMQ.Statistics.Broker"}
    assert poll.plugin == "missing"


def test_a_round_is_complete_with_its_last_reply() -> None:
    sent = Sent()
    poll = polled(sent)
    assert poll.reply({}, reply(QUEUE_REPLY)) is None
    assert poll.reply({}, reply(SUBSCRIPTION_REPLY)) is None
    done = poll.reply(sent.mark(), reply({"brokerName": "test"}))
    assert isinstance(done, Round)
    assert ([c.queue for c in done.queues], len(done.subscriptions)) == (["orders"], 1)
    assert sent.take() == [
        "/queue/ActiveMQ.Statistics.Destination.>",
        "/queue/ActiveMQ.Statistics.Subscription",
        "/topic/ActiveMQ.Statistics.Broker",
    ]


def test_a_reply_to_an_older_round_completes_nothing() -> None:
    sent = Sent()
    poll = polled(sent)
    assert poll.reply({"correlation-id": "queuewatch-1"}, reply({"brokerName": "test"})) is None


def test_a_broker_without_jmx_is_not_asked_for_subscriptions_again() -> None:
    """Every such request logs an error in the broker."""
    sent = Sent()
    poll = polled(sent)
    for seconds in (20.0, 40.0, 60.0):
        assert poll.subscriptions == "unknown", "one silent round may be bad luck"
        poll.reply(sent.mark(), reply({"brokerName": "test"}))
        sent.take()
        poll.tick(seconds, START_MS)
    assert poll.subscriptions == "missing"
    assert "/queue/ActiveMQ.Statistics.Subscription" not in sent.take()


def test_an_unanswered_round_is_abandoned() -> None:
    sent = Sent()
    poll = polled(sent)
    sent.take()
    poll.tick(301.0, START_MS)
    assert len(sent.take()) == 3
    assert poll.plugin == "present"


def test_a_round_is_complete_however_far_the_collector_is_behind() -> None:
    """The answers wait behind the advisories: without patience a busy broker's queues would have no counts at all."""
    sent = Sent()
    poll = polled(sent)
    for second in range(1, 60):
        poll.tick(float(second), START_MS)
    poll.reply({}, reply(QUEUE_REPLY))
    done = poll.reply(sent.mark(), reply({"brokerName": "test"}))
    assert done is not None
    assert [counts.queue for counts in done.queues] == ["orders"]


def test_a_round_has_no_replies_of_one_that_was_abandoned() -> None:
    """They come late, before those of the next round. Added to these, each consumer would seem to hold twice as much."""
    sent = Sent()
    poll = polled(sent)
    late = sent.mark()
    poll.tick(301.0, START_MS)
    for mark, done in ((late, False), (sent.mark(), True)):
        poll.reply({}, reply(QUEUE_REPLY))
        poll.reply({}, reply(SUBSCRIPTION_REPLY))
        found = poll.reply(mark, reply({"brokerName": "test"}))
        assert (found is not None) == done
    assert found is not None
    assert (len(found.queues), len(found.subscriptions)) == (1, 1)


# -- what each consumer holds --

KEY: SubscriptionKey = ("ID:app-1", 1, QUEUE)


def poll_twice(lifecycle: Lifecycle, first: int, second: int) -> list[Event]:
    """Observe two polls ten seconds apart, with the broker's count in each."""
    reconciler = Reconciler(lifecycle)
    events: list[Event] = []
    for at, count in ((10_000, first), (20_000, second)):
        counts = [SubscriptionCounts(KEY, count, 1, False)]
        events += reconciler.observe(counts, START_MS + at, START_MS + at + 5)
    return events


def test_a_message_the_broker_no_longer_counts_is_settled() -> None:
    """Its acknowledgement was missed while the collector was away."""
    driven = DrivenLifecycle()
    driven.apply(consumer(A), 0)
    driven.apply(seen("dispatched", by=A, out_ms=1), 1)
    events = poll_twice(driven.lifecycle, 0, 0)
    assert [(e["type"], e["message_id"], e["reason"]) for e in events] == [("deleted", "m", GONE)]


def test_an_acknowledgement_that_was_rolled_back_is_undone() -> None:
    """A STOMP client aborts its transaction and keeps the message."""
    driven = DrivenLifecycle()
    driven.apply(consumer(A), 0)
    for name in ("m1", "m2"):
        driven.apply(seen("dispatched", message=name, by=A, out_ms=1), 1)
        driven.apply(seen("consumed", message=name, out_ms=1), 2)
    driven.flush(5_000)
    events = poll_twice(driven.lifecycle, 1, 1)
    assert [(e["type"], e["message_id"], e["reason"]) for e in events] == [("received", "m2", NOT_GONE)]
    assert driven.lifecycle.memory.held_count(A) == 1


@pytest.mark.parametrize(
    ("why", "destination", "in_flight", "reopened"),
    [
        ("it holds a message of the other queue, which is not followed", f"{QUEUE},other", 1, 0),
        ("it may be any queue, and this one has none but that of B", ">", 1, 0),
        ("its queue has one more in flight than B holds", f"{QUEUE},other", 2, 1),
    ],
)
def test_of_several_queues_the_one_of_the_message_must_have_it_in_flight(
    why: str, destination: str, in_flight: int, reopened: int
) -> None:
    driven = DrivenLifecycle()
    driven.apply(consumer(B), 0)
    driven.apply(seen("dispatched", message="of B", by=B, out_ms=1), 1)
    driven.apply(consumer(A, queue=destination), 0)
    driven.apply(seen("dispatched", by=A, out_ms=1), 1)
    driven.apply(seen("consumed", out_ms=1), 2)
    driven.flush(5_000)
    reconciler = Reconciler(driven.lifecycle)
    of_a = [SubscriptionCounts(("ID:app-1", 1, destination), 1, 1, False)]
    events: list[Event] = []
    for at in (10_000, 20_000):
        events += reconciler.observe(of_a, START_MS + at, START_MS + at + 5, [counts(in_flight=in_flight)])
    assert [event["reason"] for event in events] == [NOT_GONE] * reopened, why


@pytest.mark.parametrize(
    ("why", "first", "second"),
    [("it may be on its way", 1, 0), ("which of them is gone is not known", 1, 1)],
)
def test_an_inconclusive_difference_changes_nothing(why: str, first: int, second: int) -> None:
    driven = DrivenLifecycle()
    driven.apply(consumer(A, prefetch=2), 0)
    for name in ("m1", "m2"):
        driven.apply(seen("dispatched", message=name, by=A, out_ms=1), 1)
    assert poll_twice(driven.lifecycle, first, second) == [], why


def test_a_message_dispatched_after_the_last_poll_is_not_settled() -> None:
    """Its dispatch may be read before the broker's count that includes it."""
    driven = DrivenLifecycle()
    driven.apply(consumer(A), 0)
    reconciler = Reconciler(driven.lifecycle)
    none_held = [SubscriptionCounts(KEY, 0, 1, False)]
    assert reconciler.observe(none_held, START_MS + 10_000, START_MS + 10_005) == []
    driven.apply(seen("dispatched", by=A, out_ms=12_000), 12_000)
    assert reconciler.observe(none_held, START_MS + 20_000, START_MS + 20_005) == []


def test_a_missed_acknowledgement_of_a_busy_consumer_is_noticed() -> None:
    """Between two polls it works on other messages, but at each of them the broker counts none in flight."""
    driven = DrivenLifecycle()
    driven.apply(consumer(A), 0)
    driven.apply(seen("dispatched", message="missed", by=A, out_ms=1), 1)
    reconciler = Reconciler(driven.lifecycle)
    settled: list[Event] = []
    for at in (10_000, 20_000):
        settled += reconciler.observe([SubscriptionCounts(KEY, 0, 1, False)], START_MS + at, START_MS + at + 5)
        driven.apply(seen("dispatched", message=f"at {at}", by=A, out_ms=at + 100), at + 100)
        driven.apply(seen("consumed", message=f"at {at}", out_ms=at + 100), at + 200)
    assert [(e["type"], e["message_id"], e["reason"]) for e in settled] == [("deleted", "missed", GONE)]


def test_messages_held_before_the_collector_came_are_no_contradiction() -> None:
    """The broker's count is higher because of messages the collector never saw, not because of acknowledged ones."""
    driven = DrivenLifecycle()
    driven.lifecycle.begin_session()
    driven.apply(consumer(A, prefetch=5), 0)
    driven.lifecycle.end_replay(START_MS + 1)
    driven.apply(seen("dispatched", by=A, out_ms=2), 2)
    driven.apply(seen("consumed", out_ms=2), 3)
    driven.flush(5_000)
    assert poll_twice(driven.lifecycle, 1, 1) == []


def test_two_consumers_of_one_session_are_only_settled_together() -> None:
    """The broker's counts do not distinguish them."""
    driven = DrivenLifecycle()
    first, second = "ID:app-1:1:1", "ID:app-1:1:2"
    for name in (first, second):
        driven.apply(consumer(name), 0)
        driven.apply(seen("dispatched", message=name, by=name, out_ms=1), 1)
    reconciler = Reconciler(driven.lifecycle)
    for at in (10_000, 20_000):
        polled = [SubscriptionCounts(KEY, count, 1, False) for count in (1, 0)]
        assert reconciler.observe(polled, START_MS + at, START_MS + at + 5) == []
    for at in (30_000, 40_000):
        polled = [SubscriptionCounts(KEY, 0, 1, False)] * 2
        events = reconciler.observe(polled, START_MS + at, START_MS + at + 5)
    assert sorted(event["message_id"] for event in events) == [first, second]


def test_a_consumer_older_than_the_collector_has_the_broker_s_count() -> None:
    driven = DrivenLifecycle()
    driven.lifecycle.begin_session()
    driven.apply(consumer(B, prefetch=5), 0)
    driven.lifecycle.end_replay(START_MS + 1)
    counts = [SubscriptionCounts(("ID:app-2", 1, QUEUE), 4, 5, True)]
    Reconciler(driven.lifecycle).observe(counts, START_MS, START_MS + 5)
    [event] = driven.lifecycle.consumer_states(START_MS + 6)
    assert (event["attributes"]["dispatched"], event["attributes"]["full"]) == (4, True)


# -- what the broker discards --

ADVISORIES: SubscriptionKey = ("ID:broker-4:1", -1, "ActiveMQ.Advisory.MessageDelivered.Queue.>,ActiveMQ.Advisory.Connection")


def of_own(dispatched: int, undispatched: int, *, client_id: str = "queuewatch-1") -> SubscriptionCounts:
    """Return the broker's counts of a subscription to advisories, by default of our own."""
    return SubscriptionCounts(ADVISORIES, dispatched, 32_767, False, client_id, undispatched)


@pytest.mark.parametrize(
    ("why", "polls", "discarded"),
    [
        ("nothing was lost", [of_own(0, 0)] * 3, 0),
        ("it waits for room in the full window", [of_own(32_767, 900), of_own(32_766, 800), of_own(0, 0)] * 3, 0),
        ("it was on its way at two polls, not at the third", [of_own(0, 1), of_own(0, 1), of_own(0, 0)], 0),
        (
            "the window has room, so nothing waits",
            [of_own(32_767, 25_900), of_own(550, 24_860), *[of_own(0, 24_860)] * 2],
            24_860,
        ),
        ("more is lost later", [*[of_own(0, 10)] * 3, of_own(32_767, 900), *[of_own(0, 30)] * 3], 30),
        ("they are another client's", [of_own(0, 5, client_id="dashboard")] * 3, 0),
        ("it is our subscription to replies", [SubscriptionCounts(KEY, 0, 1, False, "queuewatch-1", 5)] * 3, 0),
    ],
)
def test_advisories_that_the_broker_never_dispatched_were_discarded(
    why: str, polls: list[SubscriptionCounts], discarded: int
) -> None:
    watch = DiscardWatch("queuewatch-1")
    for counts in polls:
        watch.observe([counts])
    assert watch.discarded == discarded, why


# -- what a queue does not report --


def counts(**changes: Any) -> QueueCounts:
    """Return a queue's counts: zero, apart from `changes`."""
    names = ("size", "in_flight", "consumers", "producers", "enqueued", "dequeued", "dispatched")
    fields: dict[str, Any] = dict.fromkeys((*names, "memory_percent"), 0)
    return QueueCounts(queue=QUEUE, oldest_in_ms=None, **{**fields, **changes})


def test_a_busy_queue_without_advisories_is_found() -> None:
    watch = FlagWatch()
    for total in (0, 5, 9):
        watch.read("consumed", QUEUE)
        missing = watch.observe(counts(enqueued=total, dispatched=total, dequeued=total))
    assert missing == {"advisoryForDelivery", "advisoryForDispatched"}
    assert watch.missing() == {QUEUE: missing}


@pytest.mark.parametrize(
    ("why", "totals", "read_in"),
    [
        ("nothing moved", (5, 5, 5), ()),
        ("its word may still be on its way", (0, 5, 5), ()),
        ("the broker counted before the collector came", (9_000, 9_000, 9_000), ()),
        ("it speaks", (0, 5, 9), (1, 2)),
        ("it was restarted and counts anew", (9, 2, 1), ()),
    ],
)
def test_a_queue_is_not_suspected_when(why: str, totals: tuple[int, ...], read_in: tuple[int, ...]) -> None:
    watch = FlagWatch()
    for number, total in enumerate(totals):
        if number in read_in:
            for kind in ("delivered", "dispatched", "consumed"):
                watch.read(kind, QUEUE)
        assert not watch.observe(counts(enqueued=total, dispatched=total, dequeued=total)), why


def test_a_queue_that_starts_to_send_advisories_is_cleared() -> None:
    watch = FlagWatch()
    for total in (0, 5, 9):
        watch.observe(counts(enqueued=total))
    assert watch.missing()
    watch.read("delivered", QUEUE)
    watch.observe(counts(enqueued=10))
    assert not watch.missing()


def test_queues_that_vanished_are_forgotten() -> None:
    watch = FlagWatch()
    for total in (0, 5, 9):
        watch.observe(counts(enqueued=total))
    watch.keep_only(set())
    assert not watch.missing()


@pytest.mark.parametrize(("whole", "returned"), [(False, 300), (True, 2)])
def test_a_consumer_that_was_there_before_gives_back_what_the_broker_counted(whole: bool, returned: int) -> None:
    """A collector that was started later saw only the last of its messages dispatched."""
    gone = Consumer("app:1:1", "app", 1, prefetch=1_000, whole=whole, broker_dispatched=300, removed_at_ms=START_MS, returned=2)
    assert gone.attributes(0, connection_open=False)["returned"] == returned
