"""The signal types: a problem of one message, group, consumer or queue, from when it starts until it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, get_args

from streaming.core.settings import QueueName

SignalName = Literal[
    "PoisonMessage",
    "MessageHeldTooLong",
    "DeadLetterArrived",
    "DeadLetterExpiring",
    "GroupStuck",
    "LookAheadSaturated",
    "ConcurrencyCollapsed",
    "QueueStalled",
    "QueueFailing",
    "QueueLagging",
    "WindowTooShort",
    "QueueSilent",
    "SlowConsumer",
    "BatchRetryStorm",
    "MessageDropped",
    "QueuePurged",
    "NoisyGroup",
    "QueueMisconfigured",
    "TelemetryStale",
    "TelemetryPartial",
    "RedriveFailed",
    "RedriveStalled",
    "ClockUntrusted",
]
SIGNAL_NAMES: tuple[SignalName, ...] = get_args(SignalName)

Severity = Literal["critical", "warning", "info"]
"""`critical` pages, `warning` is handled in working hours, `info` is only shown."""

SEVERITY_RANK: Final[Mapping[Severity, int]] = {"critical": 3, "warning": 2, "info": 1}
"""Higher is worse; 0 is for what has no signal."""

SignalStatus = Literal["firing", "resolved"]

Evidence = Mapping[str, Any]
"""Plain numbers and words (str, int, float, bool). Always holds `summary`, one sentence for the reader."""


class SignalKey(NamedTuple):
    """The identity of a signal. Two findings with equal keys are the same signal."""

    signal: SignalName
    system: str
    scope: str
    queue: str
    message_id: str | None = None
    group: str | None = None
    consumer: str | None = None
    part: str | None = None
    """Distinguishes several findings on one subject: the rule of a lint, the arrival number of a dead letter."""

    @property
    def queue_name(self) -> QueueName:
        """The queue the signal is about; all parts are empty for a signal about a collector."""
        return QueueName(self.system, self.scope, self.queue)


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule's statement that its condition holds now. Times are epoch milliseconds."""

    key: SignalKey
    severity: Severity
    since_ms: int
    evidence: Evidence
    alerting: bool = True
    """False: shown and logged, but neither announced nor pushed. So are the verdicts of the broker's own strategies."""
    folded: SignalName | None = None
    """The signal of the same queue that explains it: it is counted and listed, but not announced or pushed by itself."""

    announced_as: Severity | None = None
    """The highest severity with which it has been announced by itself since it began; None while it was not."""
    blamed: tuple[str, ...] = field(default=(), compare=False)
    """The consumers that it names as its cause. Not stored: after a restart every queue is judged."""

    @property
    def announced(self) -> bool:
        """Whether it is announced by itself."""
        return self.alerting and self.folded is None

    @property
    def was_announced(self) -> bool:
        """Whether it has been announced by itself since it began."""
        return self.announced_as is not None

    @property
    def summary(self) -> str:
        """Return the sentence in its evidence, empty where there is none."""
        return str(self.evidence.get("summary", ""))

    def folded_into(self, cause: SignalName | None) -> Finding:
        """Return the finding as explained by this signal, or by none."""
        if self.folded == cause:
            return self
        return Finding(
            self.key, self.severity, self.since_ms, self.evidence, self.alerting, cause, self.announced_as, self.blamed
        )

    def continued(self, since_ms: int, announced_as: Severity | None) -> Finding:
        """Return the finding as one that goes on since then."""
        if self.since_ms == since_ms and self.announced_as == announced_as:
            return self
        # An outage changes tens of thousands of them in a step: `replace` takes twice as long.
        return Finding(self.key, self.severity, since_ms, self.evidence, self.alerting, self.folded, announced_as, self.blamed)


@dataclass(frozen=True, slots=True)
class SignalChange:
    """A signal that began to fire, became more severe or was resolved at `at_ms` (epoch milliseconds)."""

    at_ms: int
    status: SignalStatus
    finding: Finding
    announcement: str
    """Equal for the same change however often its batch is run: the idempotency key for receivers."""
