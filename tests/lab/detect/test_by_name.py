"""Signals that must name these faults as fast as the page about detection says, and one step of judging more."""

from __future__ import annotations

import pytest

from lab import harness
from lab.detect.compare import TRIGGER_MS
from lab.incidents import ALL
from lab.scenarios.reporting import instrumentation_of
from lab.telemetry import INSTRUMENTATIONS, arrived_events

pytestmark = pytest.mark.simulation

FASTEST = [
    ("broken_deploy", "fifo", {"QueueFailing": 70, "GroupStuck": 70}),
    ("bad_host", "fifo", {"QueueFailing": 110}),
    ("hung_consumer", "fifo", {"SlowConsumer": 40}),
    ("look_ahead_saturated", "fifo", {"LookAheadSaturated": 10.7, "PoisonMessage": 60.7}),
    ("worker_loses", "standard", {"MessageDropped": 9.1}),
    ("worker_storm", "standard", {"DeadLetterArrived": 30, "QueueFailing": 40, "BatchRetryStorm": 200}),
    ("mq_hung", "standard", {"SlowConsumer": 40}),
    ("dead_letters_expiring", "standard", {"DeadLetterExpiring": 10}),
    ("window_too_short", "standard", {"WindowTooShort": 270}),
    ("window_too_short", "fifo", {"WindowTooShort": 180}),
    ("producers_stopped", "standard", {"QueueSilent": 60}),
    ("collector_dead", "standard", {"TelemetryStale": 90}),
    ("noisy_tenant", "standard", {"NoisyGroup": 10}),
    ("misconfigured_redrive", "standard", {"QueueMisconfigured": 0}),
]
"""With seed 1: seconds from the fault to the signal."""


@pytest.mark.parametrize(("scenario", "kind", "signals"), FASTEST, ids=[f"{scenario}/{kind}" for scenario, kind, _ in FASTEST])
def test_a_fault_is_reported_by_name_in_time(scenario: str, kind: str, signals: dict[str, float]) -> None:
    """What happens after that is not replayed: an hour takes several seconds, these minutes one."""
    recording = ALL[scenario](kind, 1)
    fault = recording.labels[0]
    until = fault.from_ms + round(max(signals.values()) * 1000) + TRIGGER_MS
    events = arrived_events(recording, instrumentation_of(scenario, INSTRUMENTATIONS["full"]))
    seen = [arrived for arrived in events if arrived.came_ms <= until]
    outcome = harness.run(seen, trigger_ms=TRIGGER_MS, every_ms=until - seen[0].came_ms, until=until)
    first = {name: harness.first_at(outcome.fired(name), fault.from_ms) for name in signals}
    late = {name: at for name, at in first.items() if at is None or at > fault.from_ms + round(signals[name] * 1000) + TRIGGER_MS}
    assert late == {}
    assert min(at for at in first.values() if at is not None) >= fault.detectable_ms, "before that, it is chance"
    assert all(outcome.fired(name)[0]["at"] >= fault.from_ms for name in signals), "none of them is a false alarm"
