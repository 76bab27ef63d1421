"""The most common incidents of queue workers: one queue, four consumers, and a fault at minute 20 of an hour."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

from lab.consumer import lognormal
from lab.earliest import first_long_work, first_rush, first_sign_of_failing, longest_pause_s, longest_work_s
from lab.producer import steady, stepwise
from lab.recording import Recording
from lab.scenarios.matrix import AFTERMATH, FAULT_S, HOUR_S, POISON, Scenario, label_bad_messages, send_bad
from lab.simulation import T0_MS, ms
from lab.world import World

RATE_PER_S = 2.0
SERVICE_S = 2.0
FAULT_MS = ms(FAULT_S)
FAILING = frozenset({"QueueFailing", "QueueStalled", "GroupStuck", "DeadLetterArrived", "PoisonMessage"}) | AFTERMATH


def broken_deploy(kind: str, seed: int) -> Recording:
    """All four consumers receive and never delete."""
    world = _four(broken_deploy, kind, seed)
    for consumer in world.consumers:
        world.sim.at_s(FAULT_S, partial(consumer.change, fails_always=True))
    return _failing(world, "broken_deploy")


def rolling_broken_deploy(kind: str, seed: int) -> Recording:
    """The same, one consumer after the other, two minutes apart."""
    world = _four(rolling_broken_deploy, kind, seed)
    for n, consumer in enumerate(world.consumers):
        world.sim.at_s(FAULT_S + 120 * n, partial(consumer.change, fails_always=True))
    return _failing(world, "broken_deploy")


def partly_broken_deploy(kind: str, seed: int) -> Recording:
    """The new version fails on seven of ten messages."""
    world = World("partly_broken_deploy", kind, seed, HOUR_S)
    world.produce(steady(RATE_PER_S), RATE_PER_S, mark=_fails_on_v2)
    for consumer in world.consume(lognormal(SERVICE_S), 4, threads=2):
        world.sim.at_s(FAULT_S, partial(consumer.change, version="v2"))
    return _failing(world, "broken_deploy")


def releases(kind: str, seed: int) -> Recording:
    """A broken deploy that releases every message at once instead of keeping it."""
    world = _four(releases, kind, seed)
    for consumer in world.consumers:
        world.sim.at_s(FAULT_S, partial(consumer.change, fails_always=True, failure="release"))
    return _failing(world, "broken_deploy")


def bad_host(kind: str, seed: int) -> Recording:
    """One of four consumers fails every message, and at once: it takes most of the traffic."""
    world = World("bad_host", kind, seed, HOUR_S)
    rate_per_s = 3.2
    world.produce(steady(rate_per_s), rate_per_s)
    third = world.consume(lognormal(SERVICE_S), 4, threads=2)[2]
    world.sim.at_s(FAULT_S, partial(third.change, fails_always=True, fail_after_ratio=0.05))
    return _failing(world, "bad_host", rate_per_s, consumer=third.name)


def slow_deploy(kind: str, seed: int) -> Recording:
    """Processing takes ten times as long: 7 s instead of 0.7 s. The backlog grows by 2.4 messages a second."""
    service_s = 0.7
    world = World("slow_deploy", kind, seed, HOUR_S)
    world.produce(steady(3.0), 3.0)
    for consumer in world.consume(lognormal(service_s), 4, threads=1):
        world.sim.at_s(FAULT_S, partial(consumer.change, slow_factor=10.0))
    recording = world.run(AFTERMATH)
    long = first_long_work(world.history.of(world.queue.name).deliveries, FAULT_MS, longest_work_s(service_s))
    world.label("slow_deploy", FAULT_S, _seconds(long), "QueueLagging")
    return recording


def producers_doubled(kind: str, seed: int) -> Recording:
    """Producers send twice as much as the consumers can process."""
    world = World("producers_doubled", kind, seed, HOUR_S)
    usual_per_s = 2.5
    producer = world.produce(stepwise((0, usual_per_s), (FAULT_S, 8.0)), 8.0)
    world.consume(lognormal(SERVICE_S), 4, threads=2)
    recording = world.run(AFTERMATH)
    rush = first_rush((m.sent_at for m in producer.sent), FAULT_MS, usual_per_s)
    world.label("producers_doubled", FAULT_S, _seconds(rush), "QueueLagging")
    return recording


def window_too_short(kind: str, seed: int) -> Recording:
    """From minute 20 on, a tenth of the messages takes 20 to 60 s at a visibility timeout of 30 s.

    A FIFO queue refuses their deletions, so some of them are received again until they are dead letters.
    """
    world = World("window_too_short", kind, seed, HOUR_S)
    service_s = 1.0

    def mark(random: Random) -> dict[str, Any]:
        slow = world.sim.now >= T0_MS + FAULT_S * 1000 and random.random() < 0.1
        return {"work_s": random.uniform(20, 60)} if slow else {}

    world.produce(steady(1.2), 1.2, mark=mark)
    world.consume(lognormal(service_s), 4, threads=4)
    recording = world.run(POISON)
    long = first_long_work(world.history.of(world.queue.name).deliveries, FAULT_MS, longest_work_s(service_s))
    world.label("window_too_short", FAULT_S, _seconds(long), "WindowTooShort")
    return recording


def producers_stopped(kind: str, seed: int) -> Recording:
    """A message every two seconds for 70 minutes, then none."""
    world = World("producers_stopped", kind, seed, 6000.0)
    world.produce(stepwise((0, 0.5), (4200, 0.0)), 0.5)
    world.consume(lognormal(SERVICE_S), 4, threads=1)
    world.label("producers_stopped", 4200, 4200 + longest_pause_s(0.5), "QueueSilent")
    return world.run(frozenset())


def low_traffic_poison(kind: str, seed: int) -> Recording:
    """A message every two minutes, one of which no consumer can process."""
    world = World("low_traffic_poison", kind, seed, HOUR_S)
    producer = world.produce(steady(1 / 120), 1 / 120)
    world.consume(lognormal(SERVICE_S), 4, threads=1)
    send_bad(world, producer, FAULT_S)
    recording = world.run(POISON)
    label_bad_messages(world, producer, SERVICE_S, "PoisonMessage")
    return recording


INCIDENTS: Mapping[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        broken_deploy,
        rolling_broken_deploy,
        partly_broken_deploy,
        releases,
        bad_host,
        slow_deploy,
        producers_doubled,
        window_too_short,
        producers_stopped,
        low_traffic_poison,
    )
}


def _four(scenario: Scenario, kind: str, seed: int) -> World:
    world = World(scenario.__name__, kind, seed, HOUR_S)
    world.produce(steady(RATE_PER_S), RATE_PER_S)
    world.consume(lognormal(SERVICE_S), 4, threads=2)
    return world


def _fails_on_v2(random: Random) -> dict[str, Any]:
    return {"fails_on": "v2"} if random.random() < 0.7 else {}


def _failing(world: World, fault: str, rate_per_s: float = RATE_PER_S, **about: str) -> Recording:
    recording = world.run(FAILING)
    deliveries = world.history.of(world.queue.name).deliveries
    first = first_sign_of_failing(deliveries, FAULT_MS, rate_per_s, len(world.consumers), longest_work_s(SERVICE_S))
    world.label(fault, FAULT_S, _seconds(first), "QueueFailing", **about)
    return recording


def _seconds(at_ms: int) -> float:
    return (at_ms - T0_MS) / 1000
