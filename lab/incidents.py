"""Incidents and healthy runs with full telemetry: what was detected, when, at which severity, and what it named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any

from lab import harness
from lab.notifications import announced, notifications
from lab.recording import Label, Recording
from lab.scenarios import operations, reporting
from lab.scenarios.activemq import ACTIVEMQ_FAULTS, ACTIVEMQ_HEALTHY
from lab.scenarios.cloudflare import CLOUDFLARE_FAULTS, CLOUDFLARE_HEALTHY
from lab.scenarios.faults import FAULTS, possible
from lab.scenarios.healthy import HEALTHY
from lab.scenarios.incidents import INCIDENTS
from lab.simulation import T0_MS
from lab.telemetry import INSTRUMENTATIONS, Instrumentation, arrived_events

TRIGGER_MS = 5_000
MOST_ANNOUNCED = 5
QUEUE_WIDE = ("QueueFailing", "QueueLagging")
"""Signals that must never fire on a healthy queue, whatever their severity."""


ALL = {
    **INCIDENTS,
    **FAULTS,
    **operations.FAULTS,
    **reporting.FAULTS,
    **CLOUDFLARE_FAULTS,
    **ACTIVEMQ_FAULTS,
    **HEALTHY,
    **operations.HEALTHY,
    **reporting.HEALTHY,
    **CLOUDFLARE_HEALTHY,
    **ACTIVEMQ_HEALTHY,
}


@dataclass(frozen=True)
class ExpectedDetection:
    """One of `signals` must fire within `within_s` of the fault, or of the earliest time at which it could be detected."""

    signals: tuple[str, ...]
    within_s: float
    after_fault: bool = False


EXPECTED_DETECTIONS = {
    "broken_deploy": ExpectedDetection(("QueueFailing",), 120),
    "bad_host": ExpectedDetection(("QueueFailing",), 120),
    "slow_deploy": ExpectedDetection(("QueueLagging",), 600, after_fault=True),
    "producers_doubled": ExpectedDetection(("QueueLagging",), 600, after_fault=True),
    "window_too_short": ExpectedDetection(("WindowTooShort",), 900),
    "producers_stopped": ExpectedDetection(("QueueSilent",), 1800),
    "low_traffic_poison": ExpectedDetection(("PoisonMessage",), 60),
    "consumers_dead": ExpectedDetection(("QueueStalled",), 330),
    "one_consumer_dead": ExpectedDetection(("QueueLagging",), 900),
    "poison": ExpectedDetection(("PoisonMessage", "GroupStuck"), 60),
    "poison_after_deploy": ExpectedDetection(("PoisonMessage",), 60),
    "hung_consumer": ExpectedDetection(("SlowConsumer", "MessageHeldTooLong"), 60),
    "dead_letters_drained": ExpectedDetection(("DeadLetterArrived",), 120),
    "dead_letters_expiring": ExpectedDetection(("DeadLetterExpiring",), 60),
    "retention_too_short": ExpectedDetection(("MessageDropped",), 60),
    "look_ahead_saturated": ExpectedDetection(("LookAheadSaturated",), 60),
    "group_hogs": ExpectedDetection(("LookAheadSaturated", "ConcurrencyCollapsed"), 300),
    "noisy_tenant": ExpectedDetection(("NoisyGroup",), 60),
    "failed_batches": ExpectedDetection(("BatchRetryStorm", "QueueFailing"), 300),
    "lost": ExpectedDetection(("MessageDropped",), 60),
    "purged_by_mistake": ExpectedDetection(("QueuePurged",), 60),
    "clock_ahead": ExpectedDetection(("ClockUntrusted",), 60),
    "collector_dead": ExpectedDetection(("TelemetryStale",), 150),
    "slow_consumer": ExpectedDetection(("SlowConsumer", "MessageHeldTooLong"), 60),
    "misconfigured_redrive": ExpectedDetection(("QueueMisconfigured",), 60),
}
"""Aims by fault."""


@dataclass(frozen=True)
class Selection:
    """The runs to execute; an empty list means all. Scenarios are selected by a part of their name."""

    only: Sequence[str] = ()
    kinds: Sequence[str] = ()
    seeds: Sequence[int] = (1,)
    basis: str = "full"
    counts: str = "exact"
    trigger_ms: int = TRIGGER_MS
    whole: bool = True
    """Otherwise what comes after the time within which a fault must be detected is not replayed: `broken` is the same, except
    where the number of announcements is judged, and the numbers of signals are smaller."""


def run_incidents(selection: Selection, jobs: int) -> Iterator[dict[str, Any]]:
    """Yield one row per run, using `jobs` processes, as they finish and in order."""
    names = [n for n in ALL if not selection.only or any(part in n for part in selection.only)]
    instrumentation = INSTRUMENTATIONS[selection.basis].with_counts(selection.counts)
    how = [selection.trigger_ms], [selection.whole]
    every = product(names, selection.kinds or ("standard", "fifo"), selection.seeds, [instrumentation], *how)
    runs = [run for run in every if possible(run[0], run[1])]
    if jobs == 1 or not runs:
        yield from (run_one(*run) for run in runs)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_one, *zip(*runs, strict=True))


def run_one(name: str, kind: str, seed: int, instrumentation: Instrumentation, trigger_ms: int, whole: bool) -> dict[str, Any]:
    """Run one scenario and compare it with the expected detection. `trigger_ms`, `whole`: see `Selection`."""
    recording = ALL[name](kind, seed)
    events = arrived_events(recording, reporting.instrumentation_of(name, instrumentation))
    until = recording.ends_at
    if recording.labels and not whole:
        until = min(until, _detected_by(recording.labels[0]))
        events = [event for event in events if event.came_ms <= until]
    outcome = harness.run(events, trigger_ms=trigger_ms, every_ms=60_000, until=until)
    about = {"scenario": name, "kind": kind, "seed": seed, "telemetry": instrumentation.name}
    return {**about, **judge(recording, outcome)}


def judge(recording: Recording, outcome: harness.Outcome) -> dict[str, Any]:
    """Return what a run shows, and which expectations it misses (`broken`)."""
    loud = announced(outcome.signals)
    row: dict[str, Any] = {
        "announced": len(loud),
        "notifications": notifications(loud),
        "criticals": dict(Counter(s["signal"] for s in loud if s["severity"] == "critical")),
        "warnings": dict(Counter(s["signal"] for s in loud if s["severity"] == "warning")),
        "folded": sum(1 for s in outcome.fired() if s.get("folded")),
        "queue_wide": sum(1 for s in outcome.fired(*QUEUE_WIDE)),
    }
    if recording.labels:
        row |= _fault(recording.labels[0], outcome)
    else:
        learned_ms = T0_MS + recording.learning_s * 1000
        learning = sum(1 for s in loud if s["severity"] == "critical" and s["at"] < learned_ms)
        criticals = sum(row["criticals"].values()) - min(learning, 1)
        row["broken"] = [name for name, wrong in (("queue_wide", row["queue_wide"]), ("critical", criticals)) if wrong]
    if row.get("aim_for_announced") and len(loud) > MOST_ANNOUNCED:
        row["broken"].append("announced")
    return row


def _since(label: Label) -> int:
    """Return from when on the time to detect a fault counts, in epoch milliseconds."""
    return label.from_ms if EXPECTED_DETECTIONS[label.fault].after_fault else label.detectable_ms


def _detected_by(label: Label) -> int:
    """Return when a fault must have been detected, in epoch milliseconds."""
    return _since(label) + round(EXPECTED_DETECTIONS[label.fault].within_s * 1000)


def _fault(label: Label, outcome: harness.Outcome) -> dict[str, Any]:
    expected = EXPECTED_DETECTIONS[label.fault]
    fired = [s for s in outcome.fired(*expected.signals) if s["at"] >= label.from_ms]
    at = harness.first_at(fired)
    after_s = None if at is None else (at - _since(label)) / 1000
    broken = [] if after_s is not None and after_s <= expected.within_s else ["detected"]
    named = next((_names(s, label) for s in fired), None)
    if named is False:
        broken.append("culprit")
    early = [s for s in outcome.fired(*QUEUE_WIDE) if s["at"] < label.from_ms]
    if early:
        broken.append("before_fault")
    return {
        "fault": label.fault,
        "signal": "|".join(expected.signals),
        "detectable_after_s": (label.detectable_ms - label.from_ms) / 1000,
        "detected_after_fault_s": None if at is None else (at - label.from_ms) / 1000,
        "detected_after_s": after_s,
        "within_s": expected.within_s,
        "culprit_named": named,
        "aim_for_announced": label.fault in ("broken_deploy", "bad_host"),
        "broken": broken,
    }


def _names(signal: dict[str, Any], label: Label) -> bool | None:
    """Whether the signal names the label's culprit, in its key or its evidence; None when there is none."""
    culprits = [c for c in (label.message_id, label.group, label.consumer) if c]
    if not culprits:
        return None
    return any(c in (signal.get("message_id"), signal.get("group"), signal.get("consumer")) for c in culprits) or any(
        c in str(value) for c in culprits for value in signal["evidence"].values()
    )
