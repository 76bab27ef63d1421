"""One incident, one page: signals that another one of the same queue explains are folded into it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from streaming.core.reporting.merge import Merged
from streaming.core.settings import QueueName
from streaming.judge.signals import Evidence, Finding, SignalKey, SignalName

FOLDED_AFTER_MS = 120_000
"""What a failing consumer explains stays folded for so long after it: most of it is worked off by then."""

FOLDED_INTO: dict[SignalName, tuple[SignalName, ...]] = {
    "QueueFailing": ("PoisonMessage", "BatchRetryStorm", "WindowTooShort", "SlowConsumer"),
}
"""Which signals of a queue the key explains, message by message; the DeadLetterArrived of its dead-letter queue are folded too.
Alerts of a coarser kind are held back by the table in `alerts.explains`."""
HELD_TOGETHER = 3
"""From so many messages held too long by one consumer on, the consumer is what hangs; fewer are told one by one."""
HELD_BACK: frozenset[SignalName] = frozenset({"PoisonMessage", "DeadLetterArrived"})
"""What is held back while the signal that would explain it is in the making."""


def fold(
    findings: dict[SignalKey, Finding],
    merged: Merged,
    failing: set[QueueName],
    making: set[QueueName],
    before: dict[SignalKey, Finding],
) -> dict[SignalKey, Finding]:
    """The findings with those marked that another explains. They are counted and listed, and not announced by themselves.

    `failing` are queues that fail, `making` those that may be about to: what is new there is held back, what was announced
    (among `before`) stays.
    """
    if not failing and not making:
        return findings
    targets = {target: name for name in (*making, *failing) if (target := _dead_letters_of(name, merged)) is not None}
    out = {}
    for key, finding in findings.items():
        source = key.queue_name
        if key.signal == "DeadLetterArrived" and key.queue_name in targets:
            told = finding.evidence.get("from_queue")
            source = targets[key.queue_name]
            if told is not None and told != source.queue:
                source = key.queue_name
        elif key.signal not in FOLDED_INTO["QueueFailing"]:
            out[key] = finding
            continue
        explained = source in failing or (
            source in making and key.signal in HELD_BACK and not (key in before and before[key].was_announced)
        )
        out[key] = replace(finding, folded="QueueFailing") if explained and finding.alerting else finding
    return out


def fold_held(findings: dict[SignalKey, Finding]) -> dict[SignalKey, Finding]:
    """The findings with each MessageHeldTooLong folded into the SlowConsumer of its consumer, where that holds several: three
    are held too long, or it holds three or more and has finished nothing since it received the oldest."""
    slow = {
        (key.queue_name, key.consumer): finding
        for key, finding in findings.items()
        if key.signal == "SlowConsumer" and finding.alerting and key.part is None
    }
    held = Counter(_held_by(key, finding) for key, finding in findings.items() if key.signal == "MessageHeldTooLong")
    hangs = {holder for holder, n in held.items() if holder in slow and (n >= HELD_TOGETHER or _holds_all(slow[holder].evidence))}
    if not hangs:
        return findings
    return {
        key: replace(finding, folded="SlowConsumer")
        if key.signal == "MessageHeldTooLong" and finding.folded is None and _held_by(key, finding) in hangs
        else finding
        for key, finding in findings.items()
    }


def _held_by(key: SignalKey, finding: Finding) -> tuple[QueueName, str | None]:
    return key.queue_name, finding.evidence.get("consumer")


def _holds_all(evidence: Evidence) -> bool:
    return evidence["held_messages"] >= HELD_TOGETHER and not evidence["finished_meanwhile"]


def _dead_letters_of(name: QueueName, merged: Merged) -> QueueName | None:
    facts = merged.queues.get(name)
    attribute = facts.attribute("dead_letter_queue") if facts is not None else None
    return name.sibling(attribute) if isinstance(attribute, str) and attribute else None
