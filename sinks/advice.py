"""What to do about a signal, in the catalogue's words."""

from __future__ import annotations

from dataclasses import dataclass

from alerts.catalogue import BY_NAME
from streaming.judge.signals import SignalName


@dataclass(frozen=True, slots=True)
class Advice:
    """What a signal means and what to do about it."""

    meaning: str
    to_do: tuple[str, ...]
    """Remedies, the first one first."""
    runbook_url: str | None


def advice(signal: SignalName, runbook_base_url: str | None = None) -> Advice:
    """The catalogue's advice. `runbook_base_url` is the page the runbook is published at."""
    entry = BY_NAME[signal]
    url = None if runbook_base_url is None else f"{runbook_base_url}#{entry.anchor}"
    return Advice(entry.meaning, entry.fix, url)
