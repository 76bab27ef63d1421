"""One incident, one page: signals that another one of the same queue explains are folded into it."""

from __future__ import annotations

from dataclasses import replace

from streaming.core.merge import Merged
from streaming.core.settings import QueueName
from streaming.judge.signals import Finding, SignalKey, SignalName

FOLDED_AFTER_MS = 120_000
"""What a failing consumer explains stays folded for so long after it: most of it is worked off by then."""

FOLDED_INTO: dict[SignalName, tuple[SignalName, ...]] = {
    "QueueFailing": ("PoisonMessage", "BatchRetryStorm", "WindowTooShort", "SlowConsumer"),
}
"""Which signals of a queue the key explains, message by message; the DeadLetterArrived of its dead-letter queue are folded too.
Alerts of a coarser kind are held back by the table in `alerts.explains`."""


def fold(findings: dict[SignalKey, Finding], merged: Merged, failing: set[QueueName]) -> dict[SignalKey, Finding]:
    """The findings with those marked that another explains. They are counted and listed, and not announced by themselves."""
    if not failing:
        return findings
    targets = {target: name for name in failing if (target := _dead_letters_of(name, merged)) is not None}
    out = {}
    for key, finding in findings.items():
        explained = key.queue_name in failing and key.signal in FOLDED_INTO["QueueFailing"]
        if key.signal == "DeadLetterArrived" and key.queue_name in targets:
            source = finding.evidence.get("from_queue")
            explained = source is None or source == targets[key.queue_name].queue
        out[key] = replace(finding, folded="QueueFailing") if explained and finding.alerting else finding
    return out


def _dead_letters_of(name: QueueName, merged: Merged) -> QueueName | None:
    facts = merged.queues.get(name)
    attribute = facts.attribute("dead_letter_queue") if facts is not None else None
    return name.sibling(attribute) if isinstance(attribute, str) and attribute else None
