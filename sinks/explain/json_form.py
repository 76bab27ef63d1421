"""An explanation as plain values for JSON."""

from __future__ import annotations

from typing import Any

from sinks.explain.explanation import Explanation, Subject


def to_dict(explanation: Explanation) -> dict[str, Any]:
    """Convert an explanation to plain values for JSON."""
    return {
        "what": explanation.what,
        "now": explanation.now_ms,
        "firing": explanation.firing,
        "hint": explanation.hint,
        "more": explanation.more,
        "subjects": [_subject_dict(subject) for subject in explanation.subjects],
    }


def _subject_dict(subject: Subject) -> dict[str, Any]:
    queue = subject.queue
    return {
        "kind": subject.kind,
        "name": subject.name,
        "system": queue.system,
        "scope": queue.scope,
        "queue": queue.queue,
        "status": queue.status,
        "sentence": subject.sentence,
        "firing": [
            {
                "signal": reason.finding.key.signal,
                "severity": reason.finding.severity,
                "since": reason.finding.since_ms,
                "firing_s": reason.firing_s,
                "evidence": dict(reason.finding.evidence),
                "meaning": reason.advice.meaning,
                "to_do": list(reason.advice.to_do),
                "runbook_url": reason.advice.runbook_url,
            }
            for reason in subject.reasons
        ],
        "not_firing": [
            {
                "signal": near.signal,
                "value": near.value,
                "limit": near.limit,
                "unit": near.unit,
                "nearness": near.nearness,
                "sentence": near.sentence,
            }
            for near in subject.near_misses
        ],
    }
