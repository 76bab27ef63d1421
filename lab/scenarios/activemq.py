"""ActiveMQ queues: what prefetch hides, and consumers that only look slow."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from lab.activemq import SYSTEM, MqConsumer, MqQueue
from lab.consumer import lognormal
from lab.earliest import first_long_turn, first_sign_of_failing, longest_pause_s, longest_work_s
from lab.history import History
from lab.recording import Label, Recording
from lab.report import Report
from lab.scenarios.incidents import FAILING
from lab.scenarios.matrix import DEATH, FAULT_S, HOUR_S, POISON
from lab.simulation import Simulation, ms

RATE_PER_S = 1.5
SERVICE_S = 1.5
HELD = ("SlowConsumer", "MessageHeldTooLong")


class MqWorld:
    """One queue `orders` with its dead-letter queue, and consumers that process one message at a time."""

    def __init__(self, name: str, seed: int, *, rate_per_s: float = RATE_PER_S, consumers: int = 4, prefetch: int = 100) -> None:
        self.name, self.seed, self.rate_per_s = name, seed, rate_per_s
        self.sim, self.history = Simulation(seed, HOUR_S), History()
        self.reports: list[Report] = []
        parked = MqQueue(self.sim, "DLQ.orders", self.history, self.reports)
        self.queue = MqQueue(self.sim, "orders", self.history, self.reports, parked)
        self.consumers = [
            MqConsumer(self.sim, f"worker-{n}", self.queue, lognormal(SERVICE_S), prefetch) for n in range(1, consumers + 1)
        ]
        self._random = self.sim.random("producer")
        self._next()

    def run(self, allowed: frozenset[str] = frozenset()) -> Recording:
        """Run it."""
        self.sim.run()
        self.history.freeze()
        settings = {"orders": {"kind": "queue", "dead_letter_queue": "DLQ.orders"}, "DLQ.orders": {"kind": "queue"}}
        name = f"{self.name}/activemq"
        return Recording(
            name=name,
            seed=self.seed,
            duration_s=HOUR_S,
            reports=self.reports,
            history=self.history,
            settings=settings,
            labels=[],
            allowed=allowed,
            system=SYSTEM,
        )

    def _next(self) -> None:
        self.sim.after_s(self._random.expovariate(self.rate_per_s), self._send)

    def _send(self) -> None:
        self.queue.send()
        self._next()


def mq_healthy(_kind: str, seed: int) -> Recording:
    """Four consumers with a prefetch of 100, half busy."""
    return MqWorld("mq_healthy", seed).run()


def mq_prefetch_one(_kind: str, seed: int) -> Recording:
    """A prefetch of 1 and 90 % utilization: the window is nearly always full, but no consumer is slow."""
    return MqWorld("mq_prefetch_one", seed, rate_per_s=2.4, prefetch=1).run()


def mq_restarts(_kind: str, seed: int) -> Recording:
    """Every ten minutes all consumers restart within a minute: the messages they held are delivered again."""
    world = MqWorld("mq_restarts", seed)
    for begin_s in range(600, int(HOUR_S) - 300, 600):
        for n, consumer in enumerate(world.consumers):
            world.sim.at_s(begin_s + 10 * n, consumer.disconnect)
            world.sim.at_s(begin_s + 10 * n + 20, consumer.connect)
    return world.run()


def mq_gone(_kind: str, seed: int) -> Recording:
    """All consumers disconnect. That alone says nothing: they also do so when they restart."""
    world = MqWorld("mq_gone", seed)
    for consumer in world.consumers:
        world.sim.at_s(FAULT_S, consumer.disconnect)
    recording = world.run(DEATH)
    detected_ms = ms(FAULT_S + longest_pause_s(RATE_PER_S))
    recording.labels.append(Label("consumers_dead", "orders", ms(FAULT_S), None, detected_ms, expected=("QueueStalled",)))
    return recording


def mq_hung(_kind: str, seed: int) -> Recording:
    """worker-2 stops working and stays connected, with up to a hundred messages in its prefetch window."""
    world = MqWorld("mq_hung", seed)
    world.sim.at_s(FAULT_S, partial(world.consumers[1].change, hung=True))
    recording = world.run(frozenset(HELD))
    return _held(recording, "hung_consumer")


def mq_slow(_kind: str, seed: int) -> Recording:
    """worker-2 becomes ten times slower; the messages in its prefetch window wait behind it while the others are idle."""
    world = MqWorld("mq_slow", seed)
    world.sim.at_s(FAULT_S, partial(world.consumers[1].change, slow_factor=10.0))
    recording = world.run(frozenset(HELD))
    return _held(recording, "slow_consumer")


def mq_poison(_kind: str, seed: int) -> Recording:
    """One message is rolled back seven times, unseen, and then dead-lettered."""
    world = MqWorld("mq_poison", seed)
    world.sim.at_s(FAULT_S, lambda: world.queue.send(fails=True))
    recording = world.run(POISON)
    moved = next(e for e in world.history.of("orders").departures if e.how == "dead_lettered")
    label = Label("dead_letters_drained", "orders", moved.at, None, moved.at, moved.message_id, cause_ms=ms(FAULT_S))
    recording.labels.append(replace(label, expected=("DeadLetterArrived",)))
    return recording


def mq_broken(_kind: str, seed: int) -> Recording:
    """A broken deploy over STOMP: every message is refused and dead-lettered at once."""
    world = MqWorld("mq_broken", seed)
    for consumer in world.consumers:
        world.sim.at_s(FAULT_S, partial(consumer.change, fails_always=True, failure="nack"))
    recording = world.run(FAILING)
    deliveries = world.history.of("orders").deliveries
    first = first_sign_of_failing(deliveries, ms(FAULT_S), RATE_PER_S, len(world.consumers), longest_work_s(SERVICE_S))
    recording.labels.append(Label("broken_deploy", "orders", ms(FAULT_S), None, first, expected=("QueueFailing",)))
    return recording


def _held(recording: Recording, fault: str) -> Recording:
    mine = [d for d in recording.history.of("orders").deliveries if d.consumer == "worker-2"]
    first = first_long_turn(mine, ms(FAULT_S), longest_work_s(SERVICE_S))
    recording.labels.append(Label(fault, "orders", ms(FAULT_S), None, first, consumer="worker-2", expected=HELD))
    return recording


ACTIVEMQ_FAULTS = {f.__name__: f for f in (mq_gone, mq_hung, mq_slow, mq_poison, mq_broken)}
ACTIVEMQ_HEALTHY = {f.__name__: f for f in (mq_healthy, mq_prefetch_one, mq_restarts)}
