"""One examination of a system and its findings. Plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Severity = Literal["info", "warning", "critical"]

SEVERITIES: Final[tuple[Severity, ...]] = ("info", "warning", "critical")
"""In ascending order: good to know; will cause trouble; causes trouble now or prevents monitoring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem. `rule` identifies it for programs."""

    rule: str
    severity: Severity
    summary: str
    """The problem and its consequence."""
    fix: str | None = None
    """The remedy: words, or lines to paste."""
    queue: str | None = None
    """None: it affects the whole account, broker or file."""
    scope: str | None = None
    """What makes the queue name unique: account and region, broker, file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """The result of one run of a doctor."""

    system: str
    """OpenTelemetry's `messaging.system` value, as in events."""
    passed: Sequence[str]
    """Queues without a finding, or checks of a broker that passed."""
    findings: Sequence[Finding]

    def fails(self, at_least: Severity) -> bool:
        """Whether any finding is at least this severe."""
        limit = SEVERITIES.index(at_least)
        return any(SEVERITIES.index(finding.severity) >= limit for finding in self.findings)
