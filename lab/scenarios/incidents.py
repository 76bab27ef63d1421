"""The most common incidents of queue workers: one queue, four consumers, and a fault at minute 20 of an hour."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

from lab.consumer import lognormal
from lab.history import Delivery
from lab.producer import steady, stepwise
from lab.recording import Recording
from lab.scenarios.matrix import AFTERMATH, FAULT_S, HOUR_S, POISON, Scenario, label_bad_messages, send_bad
from lab.simulation import T0_MS
from lab.world import World, silence_detectable_after_s

RATE_PER_S = 2.0
SERVICE_S = 2.0
FAILING = frozenset({"QueueFailing", "QueueStalled", "GroupStuck", "DeadLetterArrived", "PoisonMessage"}) | AFTERMATH
HALF_OF = 20
"""At least half of this many consecutive deliveries must have failed before a queue can be called failing."""


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
    world.produce(steady(3.2), 3.2)
    third = world.consume(lognormal(SERVICE_S), 4, threads=2)[2]
    world.sim.at_s(FAULT_S, partial(third.change, fails_always=True, fail_after_ratio=0.05))
    return _failing(world, "bad_host", consumer=third.name)


def slow_deploy(kind: str, seed: int) -> Recording:
    """Processing takes ten times as long: 7 s instead of 0.7 s. The backlog grows by 2.4 messages a second."""
    world = World("slow_deploy", kind, seed, HOUR_S)
    world.produce(steady(3.0), 3.0)
    for consumer in world.consume(lognormal(0.7), 4, threads=1):
        world.sim.at_s(FAULT_S, partial(consumer.change, slow_factor=10.0))
    recording = world.run(AFTERMATH)
    tenth = _settled_after(recording, world.queue.name, FAULT_S, 10)
    world.label("slow_deploy", FAULT_S, tenth, "QueueLagging")
    return recording


def producers_doubled(kind: str, seed: int) -> Recording:
    """Producers send twice as much as the consumers can process."""
    world = World("producers_doubled", kind, seed, HOUR_S)
    world.produce(stepwise((0, 2.5), (FAULT_S, 8.0)), 8.0)
    world.consume(lognormal(SERVICE_S), 4, threads=2)
    world.label("producers_doubled", FAULT_S, FAULT_S + 60, "QueueLagging")
    return world.run(AFTERMATH)


def window_too_short(kind: str, seed: int) -> Recording:
    """From minute 20 on, a tenth of the messages takes 20 to 60 s at a visibility timeout of 30 s."""
    world = World("window_too_short", kind, seed, HOUR_S)

    def mark(random: Random) -> dict[str, Any]:
        slow = world.sim.now >= T0_MS + FAULT_S * 1000 and random.random() < 0.1
        return {"work_s": random.uniform(20, 60)} if slow else {}

    world.produce(steady(1.2), 1.2, mark=mark)
    world.consume(lognormal(1.0), 4, threads=4)
    recording = world.run(frozenset())
    outlived = [d.ended_at for d in world.history.of(world.queue.name).deliveries if d.outcome == "timed_out"]
    fifth = (outlived[4] - T0_MS) / 1000 if len(outlived) > 4 else HOUR_S
    world.label("window_too_short", FAULT_S, fifth, "WindowTooShort")
    return recording


def producers_stopped(kind: str, seed: int) -> Recording:
    """A message every two seconds for 70 minutes, then none."""
    world = World("producers_stopped", kind, seed, 6000.0)
    world.produce(stepwise((0, 0.5), (4200, 0.0)), 0.5)
    world.consume(lognormal(SERVICE_S), 4, threads=1)
    world.label("producers_stopped", 4200, 4200 + silence_detectable_after_s(0.5), "QueueSilent")
    return world.run(frozenset())


def low_traffic_poison(kind: str, seed: int) -> Recording:
    """A message every two minutes, one of which no consumer can process."""
    world = World("low_traffic_poison", kind, seed, HOUR_S)
    producer = world.produce(steady(1 / 120), 1 / 120)
    world.consume(lognormal(SERVICE_S), 4, threads=1)
    send_bad(world, producer, FAULT_S)
    recording = world.run(POISON)
    label_bad_messages(world, producer, "PoisonMessage")
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


def half_failed_at(deliveries: list[Delivery], since_ms: int, ends_at: int) -> int | None:
    """Return the first time at which at least half of the latest 20 deliveries that ended had no settlement."""
    ended = sorted((d.ended_at, d.outcome != "deleted") for d in deliveries if d.outcome != "open")
    failed = [bad for _, bad in ended]
    for n, (at, _) in enumerate(ended):
        if since_ms <= at <= ends_at and n >= HALF_OF and 2 * sum(failed[n + 1 - HALF_OF : n + 1]) >= HALF_OF:
            return at
    return None


def _four(scenario: Scenario, kind: str, seed: int) -> World:
    world = World(scenario.__name__, kind, seed, HOUR_S)
    world.produce(steady(RATE_PER_S), RATE_PER_S)
    world.consume(lognormal(SERVICE_S), 4, threads=2)
    return world


def _fails_on_v2(random: Random) -> dict[str, Any]:
    return {"fails_on": "v2"} if random.random() < 0.7 else {}


def _failing(world: World, fault: str, **about: str) -> Recording:
    recording = world.run(FAILING)
    half = half_failed_at(world.history.of(world.queue.name).deliveries, T0_MS + round(FAULT_S * 1000), recording.ends_at)
    detectable_s = ((half or recording.ends_at) - T0_MS) / 1000
    world.label(fault, FAULT_S, detectable_s, "QueueFailing", **about)
    return recording


def _settled_after(recording: Recording, queue: str, since_s: float, count: int) -> float:
    """Return when this many messages received after an instant had been settled, in seconds."""
    since = T0_MS + since_s * 1000
    ends = sorted(d.ended_at for d in recording.history.of(queue).deliveries if d.at >= since and d.outcome == "deleted")
    return (ends[min(count, len(ends)) - 1] - T0_MS) / 1000 if ends else recording.duration_s
