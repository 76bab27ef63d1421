"""From a real broker to signals: the collector's events are enough for every rule that concerns ActiveMQ."""

import io
import json
import time
from pathlib import Path
from typing import Any

import pytest

from sources.events import Event, encode_ndjson
from streaming.core.settings import Settings
from streaming.replay.command import run_replay
from streaming.replay.run import local_engine
from tests.e2e.test_activemq_collector import collecting, configured
from tests.services.activemq import AbortSlowAck, ActiveMQ, Policy
from tests.sources.activemq import broker
from tests.sources.activemq.lab import Client
from tests.sources.activemq.needs import services
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

LATER_MS = 10 * 60_000
"""How long everything then stays as it is."""


class Shop:
    """Scenarios on the broker, and the ids of the messages that matter."""

    def __init__(self, running: ActiveMQ) -> None:
        self._running = running
        self.clients: list[Client] = []
        self.ids: dict[str, str] = {}

    def client(self, queue: str, prefetch: int = 1) -> Client:
        """Create an application with a consumer."""
        client = Client(self._running)
        self.clients.append(client)
        client.subscribe(queue, prefetch=prefetch)
        return client

    def stuck_group(self) -> None:
        """One consumer hangs on the first message of its group while another finishes its own group."""
        owner = self.client("groups.stuck")
        for _ in range(4):
            owner.send("groups.stuck", JMSXGroupID="stuck")
        self.ids["stuck head"] = owner.receive().headers["message-id"]
        other = self.client("groups.stuck")
        for _ in range(3):
            other.send("groups.stuck", JMSXGroupID="flowing")
        for _ in range(3):
            other.ack(other.receive())

    def moved_group(self) -> None:
        """The owner of a group dies with the group's first message; the next owner hangs on it too."""
        first, second = self.client("groups.moved"), Client(self._running)
        self.clients.append(second)
        for _ in range(3):
            first.send("groups.moved", JMSXGroupID="moved")
        first.receive()
        second.subscribe("groups.moved", prefetch=1)
        first.drop()
        self.ids["moved head"] = second.receive().headers["message-id"]

    def exclusive(self) -> None:
        """An exclusive consumer hangs; a second one waits and receives nothing."""
        owner = Client(self._running)
        self.clients.append(owner)
        owner.subscribe("exclusive", prefetch=1, **{"activemq.exclusive": "true"})
        for _ in range(3):
            owner.send("exclusive")
        self.ids["exclusive head"] = owner.receive().headers["message-id"]
        self.client("exclusive")

    def dead_letter(self) -> None:
        """A consumer rejects a message."""
        client = self.client("orders")
        client.send("orders")
        frame = client.receive()
        self.ids["rejected"] = frame.headers["message-id"]
        client.nack(frame)

    def poison(self) -> None:
        """A message ends every consumer that receives it."""
        sender = Client(self._running)
        sender.send("poison")
        sender.close()
        for _ in range(4):
            victim = self.client("poison")
            self.ids["poison"] = victim.receive().headers["message-id"]
            victim.drop()
            time.sleep(0.2)

    def zombie(self) -> None:
        """The broker aborts a hanging consumer and keeps its connection."""
        client = self.client("aborted.hung")
        client.send("aborted.hung")
        client.receive()


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shop, list[dict[str, Any]], list[Event]]:
    """The shop, the lines of a replay of the collected events, and the events."""
    abort = AbortSlowAck(max_time_since_last_ack_ms=500, check_period_ms=250, max_slow_duration_ms=250)
    policies = (Policy(), Policy("aborted.>", slow_consumers=abort))
    with services(), broker.start(broker.Setup(policies=policies, name="shop")) as running:
        with collecting(configured(running)) as collected:
            # Wait until the replay of existing consumers is over, so that later ones count as new.
            until(lambda: not collected.collector.lifecycle.consumers.replaying, "the replay of existing consumers is over")
            shop = Shop(running)
            for act in (shop.zombie, shop.stuck_group, shop.moved_group, shop.exclusive, shop.dead_letter, shop.poison):
                act()
            until(lambda: collected.of("released", "aborted.hung"), "the aborted consumer's message is released")
            time.sleep(1.5)
            events = list(collected.events)
        for client in shop.clients:
            client.close()
    recording = tmp_path_factory.mktemp("recorded") / "events.ndjson"
    recording.write_bytes(encode_ndjson(events))
    return shop, replay(recording, max(event["at"] for event in events) + LATER_MS), events


def replay(recording: Path, until_ms: int) -> list[dict[str, Any]]:
    """Return the lines of a replay up to a moment."""
    out, err = io.StringIO(), io.StringIO()
    code = run_replay(
        [recording],
        every="60s",
        until=str(until_ms),
        settings=Settings(now_is_event_time=True),
        engine=local_engine,
        strict=True,
        out=out,
        err=err,
    )
    assert code == 0, err.getvalue()
    return [json.loads(line) for line in out.getvalue().splitlines()]


Lines = tuple[Shop, list[dict[str, Any]], list[Event]]


def firing(lines: Lines, signal: str, queue: str, **evidence: object) -> list[dict[str, Any]]:
    """Return the firing signals that have this evidence."""
    return [
        line
        for line in lines[1]
        if (line.get("signal"), line.get("status"), line.get("queue")) == (signal, "firing", queue)
        and all(line["evidence"].get(name) == value for name, value in evidence.items())
    ]


def test_a_stuck_group_is_named_with_its_head_and_its_owner(lines: Lines) -> None:
    [stuck] = firing(lines, "GroupStuck", "groups.stuck")
    assert stuck["group"] == "stuck"
    assert stuck["evidence"]["reason"] == "held_head"
    assert stuck["evidence"]["head_message_id"] == lines[0].ids["stuck head"]
    assert stuck["evidence"]["waiting_behind"] == 3


def test_a_group_that_moved_is_stuck_at_its_new_owner(lines: Lines) -> None:
    [stuck] = firing(lines, "GroupStuck", "groups.moved")
    assert stuck["evidence"]["head_message_id"] == lines[0].ids["moved head"]
    assert stuck["evidence"]["head_receive_count"] == 2
    owners = [e["consumer"] for e in lines[2] if e["type"] == "received" and e["queue"] == "groups.moved"]
    assert stuck["evidence"]["head_consumer"] == owners[-1] != owners[0]


def test_a_hung_consumer_is_named_with_the_message_it_holds(lines: Lines) -> None:
    [slow] = firing(lines, "SlowConsumer", "exclusive", strategy="hold")
    assert slow["evidence"]["message_id"] == lines[0].ids["exclusive head"]


def test_an_exclusive_consumer_is_reported_as_such_and_the_waiting_one_is_not(lines: Lines) -> None:
    last = {
        event["consumer"]: event["attributes"]
        for event in lines[2]
        if event["type"] == "consumer_state" and event["queue"] == "exclusive"
    }
    assert sorted((a["exclusive"], a["dispatched"]) for a in last.values()) == [(False, 0), (True, 1)]


def test_a_dead_letter_is_named(lines: Lines) -> None:
    [arrived] = firing(lines, "DeadLetterArrived", "DLQ.orders", known_by="event")
    assert arrived["message_id"] == lines[0].ids["rejected"]


def test_poison_is_named(lines: Lines) -> None:
    [poison] = firing(lines, "PoisonMessage", "poison")
    assert poison["message_id"] == lines[0].ids["poison"]


def test_a_zombie_is_named(lines: Lines) -> None:
    [zombie] = firing(lines, "SlowConsumer", "aborted.hung", strategy="zombie")
    [consumer] = {e["consumer"] for e in lines[2] if e["type"] == "received" and e["queue"] == "aborted.hung"}
    assert zombie["consumer"] == consumer


def test_everything_the_broker_counts_is_tracked(lines: Lines) -> None:
    ratios = [line for line in lines[1] if line.get("name") == "queuewatch_telemetry_coverage_ratio"]
    assert ratios
    assert {line["value"] for line in ratios} == {1.0}
