"""One examination of a system and what it found. Plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Severity = Literal["info", "warning", "critical"]

SEVERITIES: Final[tuple[Severity, ...]] = ("info", "warning", "critical")
"""Least first: good to know, will hurt, hurts now or makes watching impossible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong. `rule` names it for a program."""

    rule: str
    severity: Severity
    summary: str
    """What is wrong and what follows from it."""
    fix: str | None = None
    """What to do: words, or lines to paste."""
    queue: str | None = None
    """None: it concerns the whole account, broker or file."""
    scope: str | None = None
    """What makes the queue name unique: account and region, broker, file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What one run of a doctor found."""

    system: str
    """OpenTelemetry's `messaging.system` value, as in events."""
    passed: Sequence[str]
    """Queues without a finding, or checks of a broker that passed."""
    findings: Sequence[Finding]

    def fails(self, at_least: Severity) -> bool:
        """Whether a finding is at least as severe."""
        limit = SEVERITIES.index(at_least)
        return any(SEVERITIES.index(finding.severity) >= limit for finding in self.findings)
