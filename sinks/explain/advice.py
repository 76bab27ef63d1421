"""What to do about a signal, from the catalogue."""

from __future__ import annotations

from dataclasses import dataclass

from alerts.catalogue import BY_NAME
from alerts.known import known_variables
from alerts.remedy import steps
from streaming.judge.findings.signals import Finding


@dataclass(frozen=True, slots=True)
class Advice:
    """What a signal means and what to do about it."""

    meaning: str
    to_do: tuple[str, ...]
    """Steps for its queue system and reason, in order, with known names filled in."""
    runbook_url: str | None


def advice(finding: Finding, runbook_base_url: str | None = None) -> Advice:
    """Return the catalogue's advice. `runbook_base_url` is the URL of the published runbook."""
    entry = BY_NAME[finding.key.signal]
    url = None if runbook_base_url is None else f"{runbook_base_url}#{entry.anchor}"
    reason = str(finding.evidence.get("reason", ""))
    denied = [name for name, value in finding.evidence.items() if value is False]
    return Advice(entry.meaning, steps(entry.fix, finding.key.system, reason, known_variables(finding), denied), url)
