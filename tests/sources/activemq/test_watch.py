"""What a connection's watch forgets, so that it reports and remembers nothing of queues that are gone."""

from __future__ import annotations

from typing import Any

import pytest

from sources.activemq import poll, queue_traits
from sources.activemq.config import ActiveMQCollectorConfig
from sources.activemq.inbox import Inbox, Incoming
from sources.activemq.lifecycle import Lifecycle
from sources.activemq.queue_traits import QueueTraits
from sources.activemq.watch import Watch
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
        config = ActiveMQCollectorConfig(probe_queue=None)
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
