"""Signals that many queues may have for hours or for good, so that these are not judged in every step for them."""

from __future__ import annotations

from streaming.judge.findings.signals import SignalKey, SignalName

TIMED: frozenset[SignalName] = frozenset({"DeadLetterExpiring", "QueueSilent", "QueueStalled", "TelemetryPartial"})
"""What they say changes with time (for how long, how long still), but only a report, or a message that is gone, ends them."""


STRATEGIES = frozenset({"prefetch", "ack"})
"""The parts of a SlowConsumer that say what a strategy of the broker would conclude at its next check: see `slow_consumer`."""


def is_timed(key: SignalKey) -> bool:
    """Whether only what a signal says changes with time."""
    return key.signal in TIMED or (key.signal == "SlowConsumer" and key.part in STRATEGIES)


def is_lasting(key: SignalKey) -> bool:
    """Whether a signal goes on until something changes in its queue: time alone does not end it."""
    return is_timed(key) or (key.signal == "QueueMisconfigured" and key.part != "fifo_throughput")
