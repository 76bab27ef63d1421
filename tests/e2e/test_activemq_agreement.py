"""Applications send, acknowledge, reject and disconnect at random: the collector's events agree with the broker's counts."""

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import pytest

from sources.activemq.collector import ActiveMQCollector
from sources.activemq.config import ActiveMQCollectorConfig, parse_address
from sources.activemq.connection import open_session
from sources.activemq.inbox import Inbox
from sources.activemq.poll import SUBSCRIPTION, Round, StatisticsPoll
from sources.events import Event
from tests.services.activemq import ActiveMQ
from tests.sources.activemq import broker
from tests.sources.activemq.fold import depths, outstanding
from tests.sources.activemq.lab import Client
from tests.sources.activemq.needs import services
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

QUEUES = ("random.plain", "random.groups", "random.busy")
ROUNDS, MOST_ROUNDS = 6, 30
KINDS = {"sent", "received", "deleted", "dead_lettered", "released"}
STEPS = 150
MOST_CLIENTS = 6


class Application:
    """A client with one subscription, and its unacknowledged messages."""

    def __init__(self, running: ActiveMQ, queue: str, dice: random.Random) -> None:
        self.client = Client(running)
        self.queue = queue
        self.cumulative = dice.random() < 0.25
        ack = "client" if self.cumulative else "client-individual"
        self.client.subscribe(queue, prefetch=dice.choice((1, 2, 5, 20)), ack=ack)

    def settle(self, dice: random.Random) -> None:
        """Acknowledge or reject some or all of the messages that have arrived."""
        while not self.client.inbox.empty() and dice.random() < 0.8:
            frame = self.client.inbox.get()
            if dice.random() < 0.1 and not self.cumulative:
                self.client.nack(frame)
            elif dice.random() < 0.8:
                self.client.ack(frame)

    def leave(self, dice: random.Random) -> None:
        """Disconnect, with or without a DISCONNECT frame."""
        if dice.random() < 0.5:
            self.client.close()
        else:
            self.client.drop()


def live_at_random(running: ActiveMQ, producer: Client, applications: list[Application], dice: random.Random) -> None:
    """Take a number of random steps."""
    for _ in range(STEPS):
        action = dice.random()
        if action < 0.55:
            queue = dice.choice(QUEUES)
            headers = {"JMSXGroupID": f"g{dice.randrange(4)}"} if queue == "random.groups" else {}
            producer.send(queue, persistent=dice.choice(("true", "false")), **headers)
        elif action < 0.92 and applications:
            dice.choice(applications).settle(dice)
        elif action < 0.96 and len(applications) < MOST_CLIENTS:
            applications.append(Application(running, dice.choice(QUEUES), dice))
        elif applications:
            applications.pop(dice.randrange(len(applications))).leave(dice)


@pytest.fixture(scope="module")
def running() -> Iterator[ActiveMQ]:
    """A broker that also has statistics of subscriptions."""
    with services(), broker.start(broker.Setup()) as started:
        yield started


class Counts:
    """The broker's own counts, queried on a separate connection."""

    def __init__(self, running: ActiveMQ) -> None:
        address = f"stomp://{running.host}:{running.stomp_port}"
        config = ActiveMQCollectorConfig(addresses=(address,))
        self._inbox = Inbox(10_000)
        self._session = open_session(config, parse_address(address), self._inbox)
        self._poll = StatisticsPoll(self._session, (">",), 0.1, oldest_message=False)
        self._poll.start()

    def ask(self) -> Round:
        """Return one complete round of counts."""
        until_s = time.monotonic() + 10
        while time.monotonic() < until_s:
            self._poll.tick(time.monotonic(), 0)
            for incoming in self._inbox.take(0.05):
                if incoming.subscription == SUBSCRIPTION and (done := self._poll.reply(incoming.headers, incoming.body)):
                    return done
        raise AssertionError("the broker did not answer")

    def close(self) -> None:
        """Disconnect."""
        self._inbox.close()
        self._session.close()


def by_connection(held: Counter[str]) -> Counter[tuple[str, int]]:
    """Sum counts per consumer into counts per (connection, session), as the broker's statistics do not name consumers."""
    found: Counter[tuple[str, int]] = Counter()
    for consumer, count in held.items():
        connection, session, _ = consumer.rsplit(":", 2)
        found[connection, int(session)] += count
    return found


def is_quiet(events: Sequence[Event]) -> bool:
    """Return whether no event about a message has arrived for 0.8 s."""
    before = sum("message_id" in event for event in events)
    time.sleep(0.8)
    return sum("message_id" in event for event in events) == before


def differences(asked: Round, events: Sequence[Event]) -> list[str]:
    """Return one line for each difference between the events and the broker's counts."""
    depth, held = depths(events), by_connection(outstanding(events))
    wrong = [f"{depth[queue.queue]} by events: {queue}" for queue in asked.queues if depth[queue.queue] != queue.size]
    for subscription in asked.subscriptions:
        connection, session, destination = subscription.key
        if destination in QUEUES and held[connection, session] != subscription.dispatched:
            wrong.append(f"{held[connection, session]} by events: {subscription}")
    return wrong


def at_rest(counts: Counts, events: Sequence[Event]) -> Round:
    """Return the broker's counts once the events agree with them; fail with the differences that remain.

    On a busy machine the broker can pause for longer than any silence that would mean "at rest", so the two are compared
    repeatedly until they agree. A lost or duplicate event is never corrected, because the collector's statistics are off.
    """
    asked: Round
    wrong: list[str] = []
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:
        if not is_quiet(events):
            continue
        asked = counts.ask()
        wrong = differences(asked, events)
        if not wrong:
            return asked
    raise AssertionError("\n".join(wrong) or "events kept coming")


def test_the_events_agree_with_the_broker_whenever_it_is_at_rest(running: ActiveMQ) -> None:
    dice = random.Random(4711)
    config = ActiveMQCollectorConfig(
        addresses=(f"stomp://{running.host}:{running.stomp_port}",),
        settle_grace_s=0.4,
        statistics_interval_s=300,
        probe_queue=None,
    )
    collector = ActiveMQCollector(config)
    events: list[Event] = []
    stop = threading.Event()
    collecting = threading.Thread(target=collector.run, args=(events.extend, stop))
    collecting.start()
    producer, counts = Client(running), Counts(running)
    applications: list[Application] = []
    compared: defaultdict[str, int] = defaultdict(int)
    try:
        until(lambda: any(event["type"] == "heartbeat" for event in events), "a heartbeat is reported")
        for rounds in range(1, MOST_ROUNDS + 1):
            live_at_random(running, producer, applications, dice)
            asked = at_rest(counts, events)
            compared["queues"] += len(asked.queues)
            compared["consumers"] += sum(row.key[-1] in QUEUES for row in asked.subscriptions)
            # What the applications find in their inboxes depends on the broker's speed.
            if rounds >= ROUNDS and {event["type"] for event in events} >= KINDS:
                break
    finally:
        stop.set()
        collecting.join(10)
        for application in applications:
            application.client.close()
        producer.close()
        counts.close()
    types = Counter(event["type"] for event in events)
    assert compared["consumers"] >= ROUNDS
    assert types.keys() >= KINDS
    assert max(event.get("receive_count", 0) for event in events) > 1
    assert collector.lifecycle.unreadable == {}
    assert collector.lifecycle.bodiless == 0
