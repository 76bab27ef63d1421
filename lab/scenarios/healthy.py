"""Healthy runs, however much they look like faults."""

from __future__ import annotations

import math
from collections.abc import Mapping

from lab.consumer import Consumer, lognormal, uniform
from lab.producer import steady
from lab.recording import Recording
from lab.scenarios.matrix import HOUR_S, SERVICE_S, USUAL_PER_S, Scenario
from lab.world import World

DAY_S = 7200.0
"""A day of the compressed week."""


def healthy_week(kind: str, seed: int) -> Recording:
    """Seven days of two hours each: rates by daytime, a burst a day, a nightly batch, a deploy on five days, a quiet weekend."""
    world = World("healthy_week", kind, seed, 7 * DAY_S)
    producer = world.produce(_week_rate, 0.8)
    consumers = world.consume(lognormal(SERVICE_S), 2, threads=4)
    for day in range(7):
        begin_s = day * DAY_S
        producer.burst(begin_s + 0.1 * DAY_S, 300, over_s=30)
        if day < 5:
            producer.burst(begin_s + 0.55 * DAY_S, 250)
            _deploy(world, consumers, begin_s + 0.4 * DAY_S, gap_s=60 if day % 2 else 0)
    return world.run()


def rolling_deploys(kind: str, seed: int) -> Recording:
    """A deploy every ten minutes: one consumer after the other stops, finishes, and starts 20 s later."""
    world = World("rolling_deploys", kind, seed, HOUR_S)
    world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    consumers = world.consume(lognormal(SERVICE_S))
    for begin_s in range(600, int(HOUR_S) - 300, 600):
        _deploy(world, consumers, begin_s)
    return world.run()


def stopped_deploys(kind: str, seed: int) -> Recording:
    """A deploy every 15 minutes with no consumer for 60 s; messages in progress are abandoned and come back."""
    world = World("stopped_deploys", kind, seed, HOUR_S)
    world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    for consumer in world.consume(lognormal(SERVICE_S)):
        for begin_s in range(600, int(HOUR_S) - 300, 900):
            world.sim.at_s(begin_s, consumer.kill)
            world.sim.at_s(begin_s + 60, consumer.start)
    return world.run()


def nightly_batch(kind: str, seed: int) -> Recording:
    """600 messages within a minute on top of the usual ones; they are done six minutes later."""
    world = World("nightly_batch", kind, seed, HOUR_S)
    producer = world.produce(steady(0.25), 0.25)
    producer.burst(600, 600, over_s=60)
    world.consume(lognormal(SERVICE_S))
    return world.run()


def burst_x50(kind: str, seed: int) -> Recording:
    """Fifty times the usual rate for 30 s."""
    world = World("burst_x50", kind, seed, HOUR_S)
    producer = world.produce(steady(0.4), 0.4)
    producer.burst(1200, 600, over_s=30)
    world.consume(lognormal(SERVICE_S))
    return world.run()


def delay_queue(kind: str, seed: int) -> Recording:
    """Every message becomes visible ten minutes after its send."""
    world = World("delay_queue", kind, seed, HOUR_S, delay_s=600)
    world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    world.consume(lognormal(SERVICE_S))
    return world.run()


def long_jobs(kind: str, seed: int) -> Recording:
    """Jobs of two to eight minutes whose consumers extend the window of 30 s every 20 s."""
    world = World("long_jobs", kind, seed, HOUR_S)
    world.produce(steady(0.02), 0.02)
    world.consume(uniform(120, 480), 2, threads=4, extend_every_s=20)
    return world.run()


def big_batches(kind: str, seed: int) -> Recording:
    """Ten messages per receive, processed one after the other within their window."""
    world = World("big_batches", kind, seed, HOUR_S)
    world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    world.consume(lognormal(0.8), 2, threads=1, batch=10)
    return world.run()


def one_an_hour(kind: str, seed: int) -> Recording:
    """About four messages in six hours."""
    world = World("one_an_hour", kind, seed, 6 * HOUR_S)
    world.produce(steady(0.7 / 3600), 0.7 / 3600)
    world.consume(lognormal(SERVICE_S))
    return world.run()


def single_consumer(kind: str, seed: int) -> Recording:
    """One thread, one message after the other."""
    world = World("single_consumer", kind, seed, HOUR_S)
    world.produce(steady(0.3), 0.3)
    world.consume(lognormal(2.0), 1, threads=1)
    return world.run()


def weekend_silence(kind: str, seed: int) -> Recording:
    """A quiet queue that fades out over an hour and stays silent for two more; its consumers keep polling."""
    world = World("weekend_silence", kind, seed, 4 * HOUR_S)
    world.produce(lambda at_s: 0.3 * max(0.0, 1 - at_s / (2 * HOUR_S)), 0.3)
    world.consume(lognormal(SERVICE_S))
    return world.run()


def rare_failures(kind: str, seed: int) -> Recording:
    """Occasionally, for two minutes, one of two hosts fails on two of a hundred messages; the other processes them."""
    world = World("rare_failures", kind, seed, HOUR_S)
    producer = world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    producer.mark = lambda random: {"fails_on": "flaky"} if random.random() < 0.02 else {}
    first, _ = world.consume(lognormal(SERVICE_S))
    for minute in range(5, 60, 10):
        world.sim.at_s(60 * minute, lambda: setattr(first, "version", "flaky"))
        world.sim.at_s(60 * minute + 120, lambda: setattr(first, "version", "v1"))
    return world.run()


HEALTHY: Mapping[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        healthy_week,
        rolling_deploys,
        stopped_deploys,
        nightly_batch,
        burst_x50,
        delay_queue,
        long_jobs,
        big_batches,
        one_an_hour,
        single_consumer,
        weekend_silence,
        rare_failures,
    )
}


def _week_rate(at_s: float) -> float:
    """Return 0.1 to 0.7 messages a second by time of day; a sixth of it on the last two days."""
    day, hour = divmod(at_s / DAY_S, 1)
    return (0.4 - 0.3 * math.cos(2 * math.pi * hour)) / (6 if day >= 5 else 1)


def _deploy(world: World, consumers: list[Consumer], begin_s: float, gap_s: float = 0.0) -> None:
    """Restart one consumer after the other; with `gap_s` all at once, with none running for that long."""
    for n, consumer in enumerate(consumers):
        stop_s = begin_s if gap_s else begin_s + 40 * n
        world.sim.at_s(stop_s, consumer.stop)
        world.sim.at_s(stop_s + (gap_s or 20), consumer.start)
