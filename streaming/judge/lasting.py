"""Signals that many queues may have for hours or for good, so that these are not judged in every step for them."""

from __future__ import annotations

from streaming.judge.rules.config import misconfigured_since
from streaming.judge.rules.queues import backlog_since
from streaming.judge.rules.silent import silent_since
from streaming.judge.rules.telemetry import uncovered_since
from streaming.judge.signals import SignalKey, SignalName

TIMED: frozenset[SignalName] = frozenset({"QueueSilent", "TelemetryPartial"})
"""What they say changes with time (for how long), but only something that is reported ends them."""

_CONDITIONS = frozenset(lasting.name for lasting in (backlog_since, silent_since, uncovered_since))


def is_lasting(key: SignalKey) -> bool:
    """Whether a signal ends only by what is reported of its queue, not by time alone."""
    return key.signal in TIMED or (key.signal == "QueueMisconfigured" and key.part != "fifo_throughput")


def condition_is_lasting(name: str) -> bool:
    """Whether a condition remembered under this name ends only by what is reported of its queue."""
    return name in _CONDITIONS or misconfigured_since.includes(name)
