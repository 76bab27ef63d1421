"""The alert book as bytes: what fires, what has ended, and what each Alertmanager has been sent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Protocol

from sinks.alertmanager.alert import Told
from sinks.alertmanager.book import Line
from streaming.judge.signals import Finding, SignalKey

BOOK_VERSION: Final = 1


class Keeper(Protocol):
    """Keeps small files over restarts, for example the checkpoint's folder of that name."""

    def read(self, name: str) -> bytes | None:
        """A file's content, or None."""

    def write(self, name: str, content: bytes) -> None:
        """Replace a file as a whole, durably."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """A book as it was saved."""

    version: int
    lines: tuple[Line, ...]
    sent: Mapping[str, int]
    """By destination the version of the book it has."""


def to_bytes(version: int, lines: Iterable[Line], sent: Mapping[str, int]) -> bytes:
    """JSON, by field names, so that a later release reads what it knows."""
    body = {"version": BOOK_VERSION, "book": version, "sent": dict(sent), "lines": [_line(line) for line in lines]}
    return json.dumps(body, separators=(",", ":"), default=str).encode()


def from_bytes(content: bytes) -> Remembered:
    """The book of `to_bytes`. Raises `ValueError` when it is damaged or of a newer version."""
    try:
        body = json.loads(content)
        if body["version"] != BOOK_VERSION:
            raise ValueError(f"it has version {body['version']}, this release reads {BOOK_VERSION}")
        return Remembered(int(body["book"]), tuple(_line_of(one) for one in body["lines"]), dict(body["sent"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"it is damaged: {error!r}") from error


def _line(line: Line) -> dict[str, Any]:
    finding = line.told.finding
    return {
        "finding": {**_values(finding), "key": _values(finding.key), "evidence": dict(finding.evidence)},
        "severity": line.told.severity,
        "folded": line.told.folded,
        "version": line.version,
        "seen_ms": line.seen_ms,
        "ended_ms": line.ended_ms,
    }


def _line_of(body: Mapping[str, Any]) -> Line:
    finding = _known(Finding, {**body["finding"], "key": _known(SignalKey, body["finding"]["key"])})
    return Line(Told(finding, body["severity"], body["folded"]), body["version"], body["seen_ms"], body["ended_ms"])


def _values(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _known(kind: Any, body: Mapping[str, Any]) -> Any:
    names = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in body.items() if name in names})
