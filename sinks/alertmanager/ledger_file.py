"""The alert ledger as bytes: firing and ended alerts, and what each Alertmanager has received."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Protocol

from sinks.alertmanager.alert import PendingAlert
from sinks.alertmanager.ledger import LedgerEntry
from streaming.judge.findings.signals import Finding, SignalKey

LEDGER_FILE: Final = "book.json"
ALERT_LEDGER_VERSION: Final = 1


class FileStore(Protocol):
    """Stores small files across restarts, for example in a folder of the checkpoint."""

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None."""

    def write(self, name: str, content: bytes) -> None:
        """Replace a file atomically and durably."""


@dataclass(frozen=True, slots=True)
class SavedLedger:
    """A ledger as it was saved."""

    version: int
    entries: tuple[LedgerEntry, ...]
    sent: Mapping[str, int]
    """The ledger version that each destination has received."""


def to_bytes(version: int, entries: Iterable[LedgerEntry], sent: Mapping[str, int]) -> bytes:
    """Serialize to JSON with field names, so that another release can read the fields it knows."""
    lines = [_entry_values(entry) for entry in entries]
    body = {"version": ALERT_LEDGER_VERSION, "book": version, "sent": dict(sent), "lines": lines}
    return json.dumps(body, separators=(",", ":"), default=str).encode()


def from_bytes(content: bytes) -> SavedLedger:
    """Parse the result of `to_bytes`. Raises `ValueError` if it is damaged or has a newer version."""
    try:
        body = json.loads(content)
        if body["version"] != ALERT_LEDGER_VERSION:
            raise ValueError(f"it has version {body['version']}, this release reads {ALERT_LEDGER_VERSION}")
        return SavedLedger(int(body["book"]), tuple(_entry_from(one) for one in body["lines"]), dict(body["sent"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"it is damaged: {error!r}") from error


def _entry_values(entry: LedgerEntry) -> dict[str, Any]:
    finding = entry.alert.finding
    return {
        "finding": {**_values(finding), "key": finding.key._asdict(), "evidence": dict(finding.evidence)},
        "severity": entry.alert.severity,
        "folded": entry.alert.folded,
        "version": entry.version,
        "seen_ms": entry.seen_ms,
        "ended_ms": entry.ended_ms,
    }


def _entry_from(body: Mapping[str, Any]) -> LedgerEntry:
    key = _known(SignalKey, SignalKey._fields, body["finding"]["key"])
    finding = _known(Finding, _FIELDS, {**body["finding"], "key": key})
    return LedgerEntry(
        PendingAlert(finding, body["severity"], body["folded"]), body["version"], body["seen_ms"], body["ended_ms"]
    )


def _values(finding: Finding) -> dict[str, Any]:
    return {name: getattr(finding, name) for name in _FIELDS}


def _known(kind: Any, names: Iterable[str], body: Mapping[str, Any]) -> Any:
    return kind(**{name: body[name] for name in names if name in body})


_FIELDS: Final = tuple(field.name for field in fields(Finding))
