"""Eight consumers on a real broker with both of its strategies: what the broker does, and how the rules judge.

Durations are a sixth of the defaults (5 s for 30 s), so that the whole run takes half a minute and still stands out from the
delays of a busy machine. Each scenario runs three times at once: on a queue with AbortSlowAckConsumerStrategy, on one with
AbortSlowConsumerStrategy, and on one without a strategy, from whose events the three rules judge.
"""

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import pytest

from sources.activemq.collector import ActiveMQCollector
from sources.activemq.config import ActiveMQCollectorConfig
from sources.events import Event
from streaming.judge.slow_consumer import (
    ConsumerReport,
    StrategyMemory,
    StrategyParams,
    consumer_report,
    departed_of,
    judge_ack,
    judge_hold,
    judge_prefetch,
    judge_zombie,
)
from tests.services.activemq import AbortSlow, AbortSlowAck, ActiveMQ, Policy
from tests.sources.activemq import broker
from tests.sources.activemq.lab import Client, Jms, jms_client
from tests.sources.activemq.needs import services
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

LIMIT_MS, CHECK_MS = 5_000, 1_500
ACK = AbortSlowAck(max_time_since_last_ack_ms=LIMIT_MS, check_period_ms=CHECK_MS, max_slow_duration_ms=CHECK_MS)
PREFETCH = AbortSlow(check_period_ms=CHECK_MS, max_slow_duration_ms=CHECK_MS)
PARAMS = StrategyParams(max_time_since_last_ack_ms=LIMIT_MS, check_period_ms=CHECK_MS, max_slow_duration_ms=CHECK_MS)
JUDGED_FROM_S, LASTS_S = 10.0, 30.0


class Worker(threading.Thread):
    """A STOMP application with one consumer that runs one scenario on one queue."""

    def __init__(self, running: ActiveMQ, name: str, live: "Callable[[Worker], None]") -> None:
        super().__init__(daemon=True)
        self.client = Client(running)
        self.queue = name
        self._live = live
        self._started_s = time.monotonic()
        self.over = threading.Event()

    def run(self) -> None:
        # Empty is raised when the broker has removed the consumer.
        with suppress(queue.Empty):
            self._live(self)
        self.over.wait()
        self.client.close()

    def subscribe(self, prefetch: int) -> None:
        """Begin to consume."""
        self.client.subscribe(self.queue, prefetch=prefetch)

    def send(self, messages: int) -> None:
        """Send messages to the worker's own queue."""
        for _ in range(messages):
            self.client.send(self.queue)

    def work(self, seconds: float) -> None:
        """Receive a message, work for that long, acknowledge it."""
        frame = self.client.receive(LASTS_S)
        self.over.wait(seconds)
        self.client.ack(frame)

    def wait_until(self, second: float) -> None:
        """Wait for a second of the scenario."""
        self.over.wait(max(0.0, self._started_s + second - time.monotonic()))


def under_load(worker: Worker) -> None:
    """The consumer is fast, has prefetch 1, and always has more to do."""
    worker.send(400)
    worker.subscribe(prefetch=1)
    while not worker.over.is_set():
        worker.work(0.1)


def slow_but_steady(worker: Worker) -> None:
    """Every message takes 8 s."""
    worker.send(8)
    worker.subscribe(prefetch=1)
    while not worker.over.is_set():
        worker.work(8.0)


def hung(worker: Worker) -> None:
    """The consumer finishes three messages, but never the fourth."""
    worker.subscribe(prefetch=5)
    worker.send(3)
    for _ in range(3):
        worker.work(0.3)
    worker.wait_until(12.0)
    worker.send(1)
    frame = worker.client.receive(LASTS_S)
    worker.over.wait()
    worker.client.ack(frame)


def idle_then_one(worker: Worker) -> None:
    """The consumer finishes a message, gets none for a long time, then another that takes the usual time."""
    worker.subscribe(prefetch=5)
    worker.send(1)
    worker.work(4.0)
    worker.wait_until(15.0)
    worker.send(1)
    worker.work(4.0)


def long_message(worker: Worker) -> None:
    """Messages take 1.3 s, then one takes 8 s."""
    worker.send(5)
    worker.subscribe(prefetch=1)
    for _ in range(5):
        worker.work(1.3)
    worker.wait_until(12.0)
    worker.send(1)
    worker.work(8.0)


def nack_loop(worker: Worker) -> None:
    """Every message is rejected after 1 s."""
    worker.subscribe(prefetch=5)
    while not worker.over.is_set():
        worker.send(1)
        frame = worker.client.receive(LASTS_S)
        worker.over.wait(1.0)
        worker.client.nack(frame)


@dataclass(frozen=True)
class Scenario:
    """What happens, and the verdict of each rule: the table in the documentation."""

    name: str
    live: Callable[[Worker], None] | None
    """None: the JMS client does what `name` says."""
    is_wrong: bool
    aborted_by_ack: bool
    """Whether the broker with AbortSlowAckConsumerStrategy aborts the consumer."""
    prefetch: str
    ack: str
    hold: str
    judged_from_s: float = JUDGED_FROM_S


SCENARIOS = (
    Scenario("under_load", under_load, False, False, "false alarm", "right", "right"),
    # Its usual hold is known after its first message, which on a busy machine may take more than 8 s.
    Scenario("slow_but_steady", slow_but_steady, False, True, "false alarm", "false alarm", "right", judged_from_s=14.0),
    Scenario("hung", hung, True, True, "missed", "right", "right"),
    Scenario("idle_then_one", idle_then_one, False, True, "right", "false alarm", "right"),
    Scenario("long_message", long_message, False, True, "right", "false alarm", "right"),
    Scenario("nack_loop", nack_loop, True, False, "missed", "missed", "missed"),
    Scenario("rollback_loop", None, True, False, "missed", "missed", "missed"),
    Scenario("recover_loop", None, True, True, "missed", "right", "right"),
)


@dataclass
class Seen:
    """Observations of one scenario."""

    aborted: dict[str, bool] = field(default_factory=dict)
    """Strategy of the queue (`ack`, `prefetch`, `free`) -> whether its consumer was aborted."""
    slow: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(("prefetch", "ack", "hold"), False))
    would_abort: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(("prefetch", "ack"), False))
    receive_count: int = 0


@dataclass
class Outcome:
    """All results of the run."""

    seen: dict[str, Seen]
    events: list[Event]
    states: dict[str, dict[str, Any]]
    """Consumer -> attributes on the queue `ack.hung`, at the end."""
    ended_ms: int


def states_of(events: Sequence[Event], name: str) -> dict[str, dict[str, Any]]:
    """Return the latest attributes of each consumer of a queue."""
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        if event["type"] == "consumer_state" and event["queue"] == name:
            found[event["consumer"]] = event["attributes"]
    return found


def consumer_report_now(events: Sequence[Event], name: str) -> ConsumerReport | None:
    """Return what a tracker knows of a queue's one consumer."""
    held: dict[str, int] = {}
    waiting: set[str] = set()
    last_ack_ms: int | None = None
    holds: list[int] = []
    reported = [event for event in events if event.get("queue") == name and "message_id" in event]
    for event in sorted(reported, key=lambda event: (event["at"], event["type"] != "sent")):
        message = event["message_id"]
        if event["type"] == "sent":
            waiting.add(message)
        elif event["type"] == "received":
            waiting.discard(message)
            held[message] = event["at"]
        elif event["type"] == "deleted":
            waiting.discard(message)
            if message in held:
                holds.append(event["at"] - held.pop(message))
            last_ack_ms = event["at"]
        elif event["type"] == "dead_lettered":
            held.pop(message, None)
    states = states_of(events, name)
    if not states:
        return None
    [(consumer, attributes)] = states.items()
    # An acknowledgement that is rolled back and a rejection are no deletions, but the broker counts them as signs of life.
    last_ack_ms = max((at for at in (last_ack_ms, attributes.get("last_ack_at")) if at), default=None)
    known = {**attributes, "dispatched": len(held), "last_ack_at": last_ack_ms}
    return consumer_report(
        consumer,
        known,
        oldest_held_since_ms=min(held.values(), default=None),
        dispatched_at_ms=0,
        queue_waiting=len(waiting),
        median_hold_ms=round(median(holds)) if holds else None,
    )


@pytest.fixture(scope="module")
def outcome() -> Iterator[Outcome]:
    """All scenarios, run at once on one broker."""
    policies = (
        Policy(),
        Policy("ack.>", slow_consumers=ACK),
        Policy("prefetch.>", slow_consumers=PREFETCH),
    )
    with services(), ExitStack() as stack:
        running = stack.enter_context(broker.start(broker.Setup(policies=policies)))
        jms = stack.enter_context(jms_client(running, 0))
        config = ActiveMQCollectorConfig(
            addresses=(f"stomp://{running.host}:{running.stomp_port}",),
            settle_grace_s=0.2,
            statistics_interval_s=0.5,
            probe_queue=None,
        )
        collector = ActiveMQCollector(config)
        events: list[Event] = []
        stop = threading.Event()
        collecting = threading.Thread(target=collector.run, args=(events.extend, stop))
        collecting.start()
        stack.callback(collecting.join, 10)
        stack.callback(stop.set)
        # Wait until the replay of existing consumers is over, so that later ones count as new.
        until(lambda: not collector.lifecycle.consumers.replaying, "the replay of existing consumers is over")
        workers = start_scenarios(running, jms)
        for worker in workers:
            stack.callback(worker.over.set)
        seen = watch_scenarios(events)
        hung_states = states_of(events, "ack.hung")
        yield Outcome(seen, list(events), hung_states, time.time_ns() // 1_000_000)


def start_scenarios(running: ActiveMQ, jms: Jms) -> list[Worker]:
    """Start one consumer per scenario and strategy."""
    workers = []
    for strategy in ("ack", "prefetch", "free"):
        for scenario in SCENARIOS:
            name = f"{strategy}.{scenario.name}"
            if scenario.live is not None:
                workers.append(Worker(running, name, scenario.live))
            else:
                jms("send", name)
                jms(scenario.name, name)
    for worker in workers:
        worker.start()
    return workers


def watch_scenarios(events: list[Event]) -> dict[str, Seen]:
    """Judge several times a second until all scenarios are over."""
    found = {scenario.name: Seen() for scenario in SCENARIOS}
    memories: defaultdict[tuple[str, str], StrategyMemory | None] = defaultdict(lambda: None)
    started_ms = time.time_ns() // 1_000_000
    gives_up_s = time.monotonic() + 3 * LASTS_S
    passed_s = 0.0
    while passed_s < LASTS_S and time.monotonic() < gives_up_s:
        time.sleep(0.2)
        so_far = list(events)
        # Event time is used because on a busy machine, late reading must not look like late acknowledging.
        now_ms = max(event["at"] for event in so_far)
        passed_s = (now_ms - started_ms) / 1_000
        for scenario in SCENARIOS:
            name, seen = scenario.name, found[scenario.name]
            report = consumer_report_now(so_far, f"free.{name}")
            if report is None:
                continue
            by_prefetch, memories[name, "prefetch"] = judge_prefetch(report, PARAMS, memories[name, "prefetch"], now_ms)
            by_ack, memories[name, "ack"] = judge_ack(report, PARAMS, memories[name, "ack"], now_ms)
            by_hold = judge_hold(report, LIMIT_MS, 10, now_ms)
            if passed_s >= scenario.judged_from_s:
                for rule, verdict in (("prefetch", by_prefetch), ("ack", by_ack), ("hold", by_hold)):
                    seen.slow[rule] |= verdict.slow
                for rule, verdict in (("prefetch", by_prefetch), ("ack", by_ack)):
                    seen.would_abort[rule] |= verdict.would_abort
    for name, seen in found.items():
        for strategy in ("ack", "prefetch", "free"):
            states = states_of(events, f"{strategy}.{name}").values()
            seen.aborted[strategy] = any(not attributes["connected"] for attributes in states)
        counts = [e.get("receive_count", 0) for e in events if e.get("queue") == f"free.{name}"]
        seen.receive_count = max(counts)
    return found


BY_NAME = [pytest.param(scenario, id=scenario.name) for scenario in SCENARIOS]


@pytest.mark.parametrize("scenario", BY_NAME)
def test_the_broker_does_what_the_table_says(outcome: Outcome, scenario: Scenario) -> None:
    """AbortSlowConsumerStrategy never aborts a queue's consumer, and without a strategy no consumer is aborted."""
    expected = {"ack": scenario.aborted_by_ack, "prefetch": False, "free": False}
    assert outcome.seen[scenario.name].aborted == expected


@pytest.mark.parametrize("scenario", BY_NAME)
def test_the_strategies_rebuilt_as_rules_predict_the_broker(outcome: Outcome, scenario: Scenario) -> None:
    seen = outcome.seen[scenario.name]
    assert seen.would_abort == {"prefetch": seen.aborted["prefetch"], "ack": seen.aborted["ack"]}


@pytest.mark.parametrize("rule", ["prefetch", "ack", "hold"])
@pytest.mark.parametrize("scenario", BY_NAME)
def test_each_rule_gives_the_verdict_in_the_table(outcome: Outcome, scenario: Scenario, rule: str) -> None:
    said = outcome.seen[scenario.name].slow[rule]
    answer = "right" if said == scenario.is_wrong else "false alarm" if said else "missed"
    assert answer == getattr(scenario, rule)


def test_a_rollback_loop_shows_in_its_receive_count(outcome: Outcome) -> None:
    """No rule about consumers detects the loop, because the consumer is quick; the message is the problem."""
    assert outcome.seen["rollback_loop"].receive_count > 10


def test_an_aborted_consumer_whose_client_lives_on_is_a_zombie(outcome: Outcome) -> None:
    [departed] = departed_of(outcome.states)
    verdict = judge_zombie(departed, LIMIT_MS, CHECK_MS, outcome.ended_ms)
    assert verdict.slow, verdict.why


def test_the_message_of_the_aborted_consumer_is_released(outcome: Outcome) -> None:
    reported = [e for e in outcome.events if e.get("queue") == "ack.hung" and "message_id" in e]
    assert reported[-1]["type"] == "released"
