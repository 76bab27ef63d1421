"""Telemetry faults on a healthy queue, and telemetry flaws that must not matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lab.consumer import lognormal
from lab.producer import steady
from lab.recording import Recording
from lab.scenarios.matrix import FAULT_S, HOUR_S, SERVICE_S, USUAL_PER_S, Scenario
from lab.simulation import T0_MS
from lab.telemetry import EVER, POLL_EVERY_S, Instrumentation
from lab.world import World

AHEAD_S = 1200.0


def clock_ahead(kind: str, seed: int) -> Recording:
    """The sender's clock is twenty minutes ahead, from the start."""
    world = _busy("clock_ahead", kind, seed)
    recording = world.run(frozenset({"ClockUntrusted"}))
    first = min(r.event["at"] for r in world.reports if r.role == "producer")
    first_s = (first - T0_MS) / 1000
    world.label("clock_ahead", first_s, first_s, "ClockUntrusted")
    return recording


def collector_dead(kind: str, seed: int) -> Recording:
    """The collector dies at minute 20: no counts and no heartbeats from then on."""
    world = _busy("collector_dead", kind, seed)
    world.label("collector_dead", FAULT_S, FAULT_S + POLL_EVERY_S, "TelemetryStale")
    return world.run(frozenset({"TelemetryStale"}))


def clocks_skewed(kind: str, seed: int) -> Recording:
    """One client's clock is five seconds ahead and one's five seconds behind."""
    return _busy("clocks_skewed", kind, seed).run()


def events_repeated(kind: str, seed: int) -> Recording:
    """Every fifth event arrives twice."""
    return _busy("events_repeated", kind, seed).run()


def events_late(kind: str, seed: int) -> Recording:
    """Every fifth event arrives up to two minutes late, and so out of order."""
    return _busy("events_late", kind, seed).run()


FAULTS: Mapping[str, Scenario] = {f.__name__: f for f in (clock_ahead, collector_dead)}
HEALTHY: Mapping[str, Scenario] = {f.__name__: f for f in (clocks_skewed, events_repeated, events_late)}

TELEMETRY: Mapping[str, Mapping[str, Any]] = {
    "clock_ahead": {"skew_s": {"shop-1": AHEAD_S}},
    "collector_dead": {"collector": (EVER[0], FAULT_S)},
    "clocks_skewed": {"skew_s": {"shop-1": 5.0, "worker-1": -5.0}},
    "events_repeated": {"repeated_ratio": 0.2},
    "events_late": {"late_ratio": 0.2, "late_s": 120.0},
}
"""By scenario, how its telemetry differs from the instrumentation."""


def instrumentation_of(scenario: str, instrumentation: Instrumentation) -> Instrumentation:
    """Return the instrumentation with the telemetry changes of a scenario."""
    return replace(instrumentation, **TELEMETRY.get(scenario, {}))


def _busy(name: str, kind: str, seed: int) -> World:
    world = World(name, kind, seed, HOUR_S)
    world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    world.consume(lognormal(SERVICE_S))
    return world
