"""Which signal may fire on which basis of knowledge: one table, enforced in one place and printed in the docs.

`exact`: as with full telemetry. `seen`: true of what was seen, silent about the rest. `counts`: proved by the broker's counts.
None: withheld.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from streaming.judge.findings.signals import SignalName
from streaming.judge.knowledge.basis import Basis

Support = Literal["exact", "seen", "counts"]
_EVERYWHERE: Mapping[Basis, Support] = {
    "messages": "exact",
    "consumers": "exact",
    "producers": "exact",
    "partial": "exact",
    "counts": "exact",
    "unknown": "exact",
}
_RECEIVES: Mapping[Basis, Support] = {"messages": "exact", "consumers": "exact", "partial": "seen"}
_ONLY_MESSAGES: Mapping[Basis, Support] = {"messages": "exact"}
_COUNTED: Mapping[Basis, Support] = {
    "messages": "exact",
    "consumers": "counts",
    "producers": "counts",
    "partial": "counts",
    "counts": "counts",
}

SUPPORT: Mapping[SignalName, Mapping[Basis, Support]] = {
    "PoisonMessage": _RECEIVES,
    "MessageHeldTooLong": _RECEIVES,
    "DeadLetterArrived": {**_COUNTED, "consumers": "seen", "producers": "seen", "partial": "seen", "unknown": "seen"},
    "DeadLetterExpiring": {**_RECEIVES, "producers": "seen", "unknown": "seen"},
    "GroupStuck": {"messages": "exact", "consumers": "seen", "partial": "seen"},
    "LookAheadSaturated": _ONLY_MESSAGES,
    "ConcurrencyCollapsed": _ONLY_MESSAGES,
    "QueueStalled": _COUNTED,
    "QueueFailing": _RECEIVES,
    "QueueLagging": _COUNTED,
    "WindowTooShort": _RECEIVES,
    "QueueSilent": {**_RECEIVES, "producers": "exact"},
    "SlowConsumer": _RECEIVES,
    "BatchRetryStorm": _RECEIVES,
    "MessageDropped": {**_RECEIVES, "producers": "seen", "unknown": "seen"},
    "QueuePurged": {"messages": "exact", "consumers": "seen"},
    "NoisyGroup": _RECEIVES,
    "QueueMisconfigured": _EVERYWHERE,
    "TelemetryStale": _EVERYWHERE,
    "TelemetryPartial": _EVERYWHERE,
    "RedriveFailed": _EVERYWHERE,
    "RedriveStalled": _EVERYWHERE,
    "ClockUntrusted": _EVERYWHERE,
}


def supported(signal: SignalName, basis: Basis) -> Support | None:
    """Return how reliable a signal is on this basis; None: it is withheld."""
    return SUPPORT[signal].get(basis)


def withheld(basis: Basis) -> tuple[SignalName, ...]:
    """Return the signals that do not fire on this basis."""
    return tuple(signal for signal in SUPPORT if supported(signal, basis) is None)
