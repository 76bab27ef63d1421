"""Signals that many queues may have for hours or for good, so that these are not judged in every step for them."""

from __future__ import annotations

from streaming.judge.findings.signals import SignalKey, SignalName

TIMED: frozenset[SignalName] = frozenset({"DeadLetterExpiring", "QueueSilent", "QueueStalled", "TelemetryPartial"})
"""What they say changes with time (for how long, how long still), but only a report, or a message that is gone, ends them."""


def is_lasting(key: SignalKey) -> bool:
    """Whether a signal goes on until something changes in its queue: time alone does not end it."""
    return key.signal in TIMED or (key.signal == "QueueMisconfigured" and key.part != "fifo_throughput")
