"""The lines a replay prints and the signal log keeps: one JSON object each. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from streaming.judge.metrics import Sample
from streaming.judge.signals import SignalChange

Line = dict[str, Any]


def signal_line(change: SignalChange) -> Line:
    """A signal that began to fire or was resolved. Times are epoch milliseconds.

    `message_id`, `group`, `consumer` and `part` stand only where the signal is about one; `alerting` only
    where it is false.
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
    """One sample as of `at_ms` (epoch milliseconds)."""
    return {
        "at": at_ms,
        "kind": "metric",
        "name": sample.name,
        "labels": sample.labels,
        "value": sample.value,
    }


def to_json(value: object) -> str:
    """JSON on one line, in ASCII: names from outside may hold what a terminal or UTF-8 cannot.

    Numbers that JSON has no word for become null; numpy's become plain ones.
    """
    try:
        return _dump(value)
    except ValueError:
        return _dump(_finite(value))


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain)


def _plain(value: object) -> object:
    item = getattr(value, "item", None)
    if callable(item):
        return item()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_finite(item) for item in value]
    return value
