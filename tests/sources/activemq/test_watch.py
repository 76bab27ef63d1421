"""What a connection's watch forgets, so that it reports and remembers nothing of queues that are gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sources.activemq import poll, queue_traits
from sources.activemq.config import ActiveMQCollectorConfig
from sources.activemq.inbox import Inbox, Incoming
from sources.activemq.lifecycle import Lifecycle
from sources.activemq.queue_traits import QueueTraits
from sources.activemq.watch import ADVISORIES, Watch
from sources.events import Event
from tests.sources.activemq.advisories import START_MS, A, body, consumer, seen
from tests.sources.activemq.record import load
from tests.sources.activemq.test_collector import PlayedSession
from tests.sources.activemq.test_statistics import QUEUE_REPLY, reply

HOUR_S = 3_600


class DrivenWatch:
    """A watch whose broker a test plays; times are seconds since START_MS."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.lifecycle = Lifecycle("test")
        config = ActiveMQCollectorConfig(probe_queue=None, broker_name="test")
        self.watch = Watch(config, PlayedSession(Inbox(10), []), self.lifecycle, self.events.extend)  # type: ignore[arg-type]
        self.watch.start(0, START_MS)
        self.lifecycle.end_replay(START_MS)
        self._number = 1

    def apply(self, *advisories: Any, at_s: int) -> None:
        """Process advisories."""
        for advisory in advisories:
            self.lifecycle.apply(advisory, START_MS + at_s * 1000)

    def tick(self, at_s: int) -> None:
        """Let the time pass until `at_s`."""
        self.watch.tick(at_s, START_MS + at_s * 1000)

    def poll(self, *queues: str, at_s: int) -> None:
        """Answer the poll that is due then: the broker has these queues."""
        self.tick(at_s)
        for queue in queues:
            self._reply({**QUEUE_REPLY, "destinationName": f"queue://{queue}"}, at_s)
        self._reply({"brokerName": "test"}, at_s)
        self._number += 1

    def consumed_queues(self, at_s: int) -> list[str]:
        """Return the queues for which the state of a consumer is reported."""
        return [event["queue"] for event in self.lifecycle.consumer_states(START_MS + at_s * 1000)]

    def _reply(self, values: dict[str, object], at_s: int) -> None:
        headers = {"correlation-id": f"queuewatch-{self._number}"}
        self.watch.take(Incoming("message", START_MS + at_s * 1000, poll.SUBSCRIPTION, headers, reply(values)))


def taken(queue: str, at_s: int, *, is_finished: bool = True) -> list[Any]:
    """Return what the broker reports when A takes a message from a queue."""
    out_ms = at_s * 1000
    dispatched = seen("dispatched", queue=queue, message=queue, by=A, in_ms=out_ms, out_ms=out_ms)
    return [dispatched, seen("consumed", queue=queue, message=queue, in_ms=out_ms, out_ms=out_ms)][: 1 + is_finished]


def test_a_wildcard_consumer_is_not_reported_for_queues_that_are_gone() -> None:
    """Those that exist, and those from which it holds messages, are reported still, and so is any queue that it names."""
    driven = DrivenWatch()
    driven.poll(at_s=1)  # the plugin is there
    driven.apply(consumer(A, queue="named,jobs.>"), at_s=2)
    driven.apply(*taken("jobs.1", 3), *taken("jobs.2", 3), *taken("jobs.3", 3, is_finished=False), *taken("named", 3), at_s=3)
    driven.poll("jobs.1", at_s=HOUR_S)
    assert driven.consumed_queues(HOUR_S) == ["jobs.1", "jobs.3", "named"]


def test_a_queue_that_is_newer_than_a_poll_is_not_taken_for_gone() -> None:
    """The broker may create it after it was asked."""
    driven = DrivenWatch()
    driven.poll(at_s=1)
    driven.apply(consumer(A, queue="jobs.>"), at_s=2)
    driven.tick(HOUR_S)  # asks
    driven.apply(*taken("jobs.1", HOUR_S + 1), at_s=HOUR_S + 1)
    driven.poll(at_s=HOUR_S + 1)
    assert driven.consumed_queues(HOUR_S + 1) == ["jobs.1"]


def test_without_the_brokers_counts_a_queue_is_gone_after_an_hour() -> None:
    """Nothing else shows that a wildcard's queue is gone."""
    driven = DrivenWatch()
    driven.tick(10)  # no answer of the plugin
    driven.apply(consumer(A, queue="jobs.>"), *taken("jobs.1", 11), at_s=11)
    driven.tick(HOUR_S)
    assert driven.consumed_queues(HOUR_S) == ["jobs.1"]
    driven.tick(HOUR_S + 60)
    assert driven.consumed_queues(HOUR_S + 60) == []


def test_the_traits_of_the_latest_queues_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """An application that creates a queue for each job does not fill the collector's memory."""
    monkeypatch.setattr(queue_traits, "_MAX_QUEUES", 2)
    traits = QueueTraits()
    for queue in ("a", "b", "a", "c"):
        traits.learn(queue, body(group="g"))
        traits.learn_move(queue, f"{queue}.dead")
    assert [queue for queue in "abc" if traits.is_ordered(queue)] == ["a", "c"]
    assert [queue for queue in "abc" if traits.dead_letter_queue_of(queue)] == ["a", "c"]
    assert [queue for queue in "abc" if traits.is_dead_letter_queue(f"{queue}.dead")] == ["a", "c"]


def test_without_the_brokers_counts_nothing_is_kept_to_compare_with_them() -> None:
    """Each queue that ever reported would stay in memory."""
    driven = DrivenWatch()
    driven.tick(10)  # no answer of the plugin
    for frame in load("normal"):
        driven.watch.take(frame)
    assert not driven.watch._flags._queues


def test_advisories_that_cannot_be_read_are_a_finding() -> None:
    """They were counted, and nothing reported that events are missing."""
    driven = DrivenWatch()
    assert not [finding for finding in driven.watch.findings() or [] if finding.check == "unreadable"]
    moved = {"destination": "/topic/ActiveMQ.Advisory.MessageDLQd.Queue.orders", "originBrokerName": "test"}
    for body_ in ("<xml/>", "[]", ""):
        driven.watch.take(Incoming("message", START_MS, ADVISORIES, moved, body_))
    [found] = [finding for finding in driven.watch.findings() or [] if finding.check == "unreadable"]
    assert found.what.startswith("3 advisories could not be read (2 with a body of an unknown form, 1 with an empty body)")
    assert driven.watch.findings() is None, "nothing has changed"


def at_broker(name: str, later_ms: int = 0) -> list[Incoming]:
    """Return the frames of one message as the broker with this name would send them."""
    frames = load("normal")
    return [replace(f, at_ms=f.at_ms + later_ms, headers={**f.headers, "originBrokerName": name}) for f in frames]


@pytest.mark.parametrize(
    ("broker_name", "scopes"),
    [(None, [("a", "a"), ("a", "a"), ("b", "b"), ("a", "a")]), ("pair", [("pair", "pair")] * 4)],
    ids=["by its own name", "by configuration"],
)
def test_after_a_failover_the_scope_is_the_name_of_the_broker_that_is_connected(
    broker_name: str | None, scopes: list[tuple[str, str]]
) -> None:
    """The first one's name stayed until the collector was restarted, so the queues of two brokers were one."""
    config = ActiveMQCollectorConfig(probe_queue=None, broker_name=broker_name)
    lifecycle = Lifecycle(broker_name)
    found = []
    for name in "aaba":
        events: list[Event] = []
        watch = Watch(config, PlayedSession(Inbox(10), []), lifecycle, events.extend)  # type: ignore[arg-type]
        watch.start(0, START_MS)
        for frame in at_broker(name):
            watch.take(frame)
        watch.tick(1, frame.at_ms + 60_000)
        # The rest is of the connection before: what is reported when this one is named.
        [scope] = {event["scope"] for event in events if event["type"] == "received"}
        [alive] = [event["scope"] for event in events if event["type"] == "heartbeat"]
        found.append((scope, alive))
    assert found == scopes


def test_what_the_broker_before_had_acknowledged_is_reported_as_its_own() -> None:
    """What it still had in flight is not known any more: the broker that took over has not given it back."""
    lifecycle, events = Lifecycle(None), list[Event]()
    for name, later_ms in (("a", 0), ("b", 1_000)):
        config = ActiveMQCollectorConfig(probe_queue=None)
        watch = Watch(config, PlayedSession(Inbox(10), []), lifecycle, events.extend)  # type: ignore[arg-type]
        watch.start(0, START_MS)
        for frame in at_broker(name, later_ms):
            watch.take(frame)
        watch.stop([])
        lifecycle.apply(seen("dispatched", message="held", by=A), frame.at_ms)
    lifecycle.end_replay(frame.at_ms)
    assert [(e["scope"], e["type"]) for e in events if e["type"] in ("deleted", "released")] == [("a", "deleted")]


def test_no_heartbeat_before_it_is_known_which_broker_this_is() -> None:
    """It would say that the broker before is watched."""
    lifecycle, events = Lifecycle(None), list[Event]()
    for at_s in (0, 100):
        config = ActiveMQCollectorConfig(probe_queue=None)
        watch = Watch(config, PlayedSession(Inbox(10), []), lifecycle, events.extend)  # type: ignore[arg-type]
        watch.start(at_s, START_MS + at_s * 1000)
        watch.tick(at_s, START_MS + at_s * 1000)
        assert events == []
        for frame in at_broker("a"):
            watch.take(frame)
        watch.tick(at_s + 1, START_MS + at_s * 1000)
        assert [event["consumer"] for event in events if event["type"] == "heartbeat"] == ["activemq:a"]
        events.clear()
