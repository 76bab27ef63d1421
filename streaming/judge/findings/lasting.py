"""Signals that many queues may have for hours or for good, so that these are not judged in every step for them."""

from __future__ import annotations

from streaming.judge.findings.signals import SignalKey, SignalName

_TIMED: frozenset[SignalName] = frozenset({"DeadLetterExpiring", "QueueSilent", "QueueStalled", "TelemetryPartial"})
"""What they say changes with time (for how long, how long still), but only a report, or a message that is gone, ends them."""


def is_timed(key: SignalKey) -> bool:
    """Whether only what a signal says changes with time, but for moments that are known in advance.

    When a hold is no longer usual, or the broker's strategies check a consumer, is known. Whether it has become a zombie is not.
    """
    return key.signal in _TIMED or (key.signal == "SlowConsumer" and key.part != "zombie")


def is_lasting(key: SignalKey) -> bool:
    """Whether a signal goes on until something changes in its queue: time alone does not end it."""
    return is_timed(key) or (key.signal == "QueueMisconfigured" and key.part != "fifo_throughput")
