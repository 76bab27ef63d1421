"""Signals that many queues may have for hours or for good, so that these are not judged in every step for them."""

from __future__ import annotations

from streaming.judge.findings.signals import SignalKey, SignalName

TIMED: frozenset[SignalName] = frozenset({"QueueSilent", "TelemetryPartial"})
"""What they say changes with time (for how long), but only something that is reported ends them."""


def is_lasting(key: SignalKey) -> bool:
    """Whether a signal ends only by what is reported of its queue, not by time alone."""
    return key.signal in TIMED or (key.signal == "QueueMisconfigured" and key.part != "fifo_throughput")
