"""The JSON lines printed by a replay and written to the signal log. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from streaming.judge.findings.signals import SignalChange
from streaming.judge.metrics import Sample

Line = dict[str, Any]


def signal_line(change: SignalChange) -> Line:
    """Return the line for a signal that began to fire or was resolved. Times are epoch milliseconds.

    `message_id`, `group`, `consumer` and `part` are present only if the signal is about one; `alerting` only if it is
    false.
    """
    finding = change.finding
    key = finding.key
    about = {"message_id": key.message_id, "group": key.group, "consumer": key.consumer, "part": key.part}
    line: Line = {
        "at": change.at_ms,
        "kind": "signal",
        "signal": key.signal,
        "status": change.status,
        "severity": finding.severity,
        "system": key.system,
        "scope": key.scope,
        "queue": key.queue,
        **{name: value for name, value in about.items() if value is not None},
        "since": finding.since_ms,
        "announcement": change.announcement,
        "evidence": dict(finding.evidence),
    }
    if not finding.alerting:
        line["alerting"] = False
    if finding.folded is not None:
        line["folded"] = finding.folded
    return line


def metric_line(at_ms: int, sample: Sample) -> Line:
    """Return the line for one sample at `at_ms` (epoch milliseconds)."""
    return {
        "at": at_ms,
        "kind": "metric",
        "name": sample.name,
        "labels": sample.labels,
        "value": sample.value,
    }


def to_json(value: object) -> str:
    """Serialize to one line of ASCII JSON, because external names may contain characters unsafe for terminals or UTF-8.

    Numbers that JSON cannot represent become null; numpy numbers become plain ones.
    """
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(_finite(value))


def _plain(value: object) -> object:
    item = getattr(value, "item", None)
    if callable(item):
        return item()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_plain)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_finite(item) for item in value]
    return value
