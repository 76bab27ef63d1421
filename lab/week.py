"""Seven days of a healthy queue, hour by hour: office hours and nights, bursts, nightly batches, deploys, a quiet weekend.

The week of the incidents is compressed to two hours a day; this one runs at full length, with low traffic.
"""

from __future__ import annotations

import math
from typing import Any

from lab import harness, incidents
from lab.consumer import Consumer, lognormal
from lab.recording import Recording
from lab.telemetry import INSTRUMENTATIONS, arrived_events
from lab.world import World

HOUR_S, DAY_S = 3600.0, 86_400.0
WEEK_HOURS = 168
BEGINS_HOUR = 8
"""The first day is a Monday and starts at eight o'clock."""
WORKING_DAYS = 5
PEAK_PER_S, SERVICE_S = 0.07, 2.0
TRIGGER_MS = 15_000
SHOWN_EVERY_MS = 600_000


def calendar_week(kind: str, seed: int, hours: float) -> Recording:
    """Return the first hours of the week."""
    world = World("calendar_week", kind, seed, hours * HOUR_S)
    producer = world.produce(_rate, PEAK_PER_S)
    consumers = world.consume(lognormal(SERVICE_S), 2, threads=4)
    for day in range(8):
        producer.burst(_at_s(day, 2.0), 1500, over_s=60)
        producer.burst(_at_s(day, 9.5), 100, over_s=30)
        if day < WORKING_DAYS:
            producer.burst(_at_s(day, 15.0), 200)
            _deploy(world, consumers, _at_s(day, 10.5), all_at_once=day % 2 == 0)
            _deploy(world, consumers, _at_s(day, 16.0), all_at_once=day % 2 == 1)
    return world.run()


def run_week(kind: str, seed: int, hours: float, basis: str = "full", trigger_ms: int = TRIGGER_MS) -> dict[str, Any]:
    """Return what was reported about the week; `broken` lists what must not have been."""
    recording = calendar_week(kind, seed, hours)
    events = arrived_events(recording, INSTRUMENTATIONS[basis])
    outcome = harness.run(events, every_ms=SHOWN_EVERY_MS, trigger_ms=trigger_ms, until=recording.ends_at)
    about = {"scenario": "calendar_week", "kind": kind, "seed": seed, "telemetry": basis}
    return {**about, "hours": hours, "events": len(events), **incidents.judge(recording, outcome)}


def _rate(at_s: float) -> float:
    """Return messages per second: a seventh of the maximum at midnight, the maximum at noon, a sixth of it at weekends."""
    hours = BEGINS_HOUR + at_s / HOUR_S
    by_day = (0.4 - 0.3 * math.cos(2 * math.pi * hours / 24)) / 0.7
    return PEAK_PER_S * by_day / (1 if hours // 24 < WORKING_DAYS else 6)


def _at_s(day: int, hour: float) -> float:
    """Return an hour of a day in seconds since the start; negative times never come."""
    at_s = day * DAY_S + (hour - BEGINS_HOUR) * HOUR_S
    return at_s if at_s >= 0 else 10 * WEEK_HOURS * HOUR_S


def _deploy(world: World, consumers: list[Consumer], begin_s: float, *, all_at_once: bool) -> None:
    """Restart one consumer after the other, each away for 20 s, or all of them for a minute."""
    for n, consumer in enumerate(consumers):
        stop_s = begin_s if all_at_once else begin_s + 40 * n
        world.sim.at_s(stop_s, consumer.stop)
        world.sim.at_s(stop_s + (60 if all_at_once else 20), consumer.start)
