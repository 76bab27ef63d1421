"""Findings about what happened once, to a message: each holds until nothing more has happened for its quiet time."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import Any

from streaming.core.reporting.report import Rank
from streaming.judge.findings.signals import Finding


def latest_findings(findings: Iterable[Finding], happened: str, most: int) -> list[Finding]:
    """Return at most `most` of the findings, latest first."""

    def order(finding: Finding) -> tuple[int, str, str]:
        return quiet_from(finding, happened), finding.key.message_id or "", finding.key.part or ""

    return nlargest(most, findings, key=order)


def quiet_from(finding: Finding, happened: str) -> int:
    """Return the time from which the quiet after a finding counts."""
    return int(finding.evidence.get("noticed_at", finding.evidence[happened]))


def noticed(happened_at: int, rank: Rank) -> dict[str, Any]:
    """Return evidence for an event that became known only after its signal would have ended."""
    return {} if rank[0] == happened_at else {"noticed_at": rank[0]}
