"""One incident, one page: fold signals that another signal of the same queue explains into that signal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from streaming.core.reporting.merge import Merged
from streaming.core.settings import QueueName, Settings
from streaming.core.state.queues import dead_letter_queue
from streaming.judge.signals import SEVERITY_RANK, Evidence, Finding, Severity, SignalKey, SignalName
from streaming.judge.words import plural

FOLDED_AFTER_MS = 120_000
"""Signals explained by a failing consumer stay folded this long after it recovers: most of its backlog is drained by then."""

FOLDED_INTO: dict[SignalName, tuple[SignalName, ...]] = {
    "QueueFailing": ("PoisonMessage", "GroupStuck", "QueueStalled", "BatchRetryStorm", "WindowTooShort", "SlowConsumer"),
}
"""The signals of a queue that the key explains, message by message; those of its dead-letter queue (DeadLetterArrived) are folded
too. GroupStuck is explained where a delivery of the group's head failed, as did those of other groups' heads; QueueStalled where
consumers receive and it was not announced before.
The table in `alerts.explains` holds back alerts of a coarser kind."""
HELD_TOGETHER = 3
"""With this many messages held too long by one consumer, the consumer hangs; fewer are announced individually."""
HEADS_TOGETHER = 3
"""With this many groups whose heads failed, the consumer fails; a single failed head may itself cause the failures."""
HELD_LONGER_RATIO = 1.5
"""A consumer that has finished nothing is as well as another one if it has held its message at most so many times as long."""
RAISED: frozenset[SignalName] = frozenset({"NoisyGroup", "WindowTooShort"})
"""Signals that are more severe once they explain others."""
_REFUSED: Mapping[SignalName, str] = {"PoisonMessage": "refused_settlements", "GroupStuck": "head_refused_settlements"}
"""The evidence that says how many deletions of the message, or of the group's head, were refused as too late."""
HELD_BACK: frozenset[SignalName] = frozenset({"PoisonMessage", "GroupStuck", "DeadLetterArrived"})
"""Signals held back while the signal that would explain them may be about to fire."""


def fold_explained(
    findings: dict[SignalKey, Finding],
    merged: Merged,
    failing: set[QueueName],
    pending: set[QueueName],
    before: dict[SignalKey, Finding],
    failed_at: Mapping[QueueName, int],
    settings: Settings,
) -> dict[SignalKey, Finding]:
    """Return the findings, with those marked that another one explains. These are counted and listed, but not announced.

    `failing` queues fail, `pending` queues may be about to: their new findings are held back; those already announced (among
    `before`) are not. `failed_at`: when the queues last failed, as far back as `oldest_folded`; dead letters that arrived by then
    stay explained until they end.
    """
    several = {name for name in failing | pending if _failed_heads(name, merged) >= HEADS_TOGETHER}
    sources = _by_dead_letter_queue(failing | pending | failed_at.keys(), merged, settings)
    out = {}
    for key, finding in findings.items():
        if key.signal == "DeadLetterArrived":
            causes = _sources_of(finding, sources)
            known = before.get(key)
            # What shards no longer report is taken from what fires, where it is folded.
            finding = replace(finding, folded=None)
            if known is not None and known.folded and any(failed_at.get(name, 0) >= known.since_ms for name in causes):
                out[key] = replace(finding, folded=known.folded)
                continue
        elif key.signal in FOLDED_INTO["QueueFailing"] and _follows(finding, before.get(key), several):
            causes = {key.queue_name}
        else:
            out[key] = finding
            continue
        explained = not causes.isdisjoint(failing) or (
            not causes.isdisjoint(pending) and key.signal in HELD_BACK and not (key in before and before[key].was_announced)
        )
        out[key] = replace(finding, folded="QueueFailing") if explained and finding.alerting else finding
    return out


def oldest_folded(findings: Iterable[SignalKey], before: Mapping[SignalKey, Finding]) -> int | None:
    """Return the time of the first dead letter that goes on to fire folded; None if none does.

    Further arrivals keep it firing: it is folded by a failure that lasted until then or longer, however long ago that is.
    """
    known = (before[key] for key in findings if key.signal == "DeadLetterArrived" and key in before)
    return min((finding.since_ms for finding in known if finding.folded), default=None)


def _follows(finding: Finding, known: Finding | None, several: set[QueueName]) -> bool:
    """Whether a finding of a failing queue is explained by the failure.

    `known`: the same finding before; `several`: the queues with several groups whose heads failed.
    """
    if finding.key.signal == "GroupStuck":
        count, state = finding.evidence.get("head_receive_count", 0), finding.evidence.get("head_state")
        together = finding.key.queue_name in several or (known is not None and known.folded is not None)
        return together and _has_failed(int(count), str(state))
    if finding.key.signal == "QueueStalled":
        return finding.evidence["reason"] == "no_progress" and not (known is not None and known.was_announced)
    return True


def _failed_heads(name: QueueName, merged: Merged) -> int:
    """Count a queue's oldest groups whose head failed."""
    summary = merged.queues.get(name)
    ordered = summary.ordered_facts if summary is not None else None
    heads = [group.head for group in ordered.oldest if group.head is not None] if ordered is not None else []
    return sum(_has_failed(head.receive_count, head.state) for head in heads)


def _has_failed(receive_count: int, state: str) -> bool:
    """Whether a delivery of an unsettled message has ended: it is not merely in flight for the first time."""
    return receive_count > (state == "in_flight")


def fold_into_causes(findings: dict[SignalKey, Finding], before: Mapping[SignalKey, Finding]) -> dict[SignalKey, Finding]:
    """Return the findings, with those marked that another one of the queue explains. `before`: what fired until now."""
    found = _keep_severity(_fold_late(_fold_held(_fold_crowded(findings))), before)
    return found | {key: replace(finding, folded="WindowTooShort") for key, finding in found.items() if _is_late(finding, found)}


def _fold_held(findings: dict[SignalKey, Finding]) -> dict[SignalKey, Finding]:
    """Fold each MessageHeldTooLong into the SlowConsumer of its consumer, where the consumer holds several messages.

    Several: three are held too long, or it holds three or more and has finished none since it received the oldest.
    """
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


def _fold_crowded(findings: Mapping[SignalKey, Finding]) -> dict[SignalKey, Finding]:
    """Fold each SlowConsumer into the NoisyGroup of the message that it holds, where the consumer is well: the job takes long.

    It is well if it finished others meanwhile, or has not held its message for much longer than another of these. A NoisyGroup
    that explains a slow consumer is a warning.
    """
    crowded: dict[SignalKey, list[Finding]] = {}
    for key, finding in findings.items():
        if key.signal != "SlowConsumer" or not finding.announced:
            continue
        noisy = key._replace(signal="NoisyGroup", consumer=None, group=finding.evidence.get("message_group"))
        if noisy in findings:
            crowded.setdefault(noisy, []).append(finding)
    out = dict(findings)
    for noisy, slow in crowded.items():
        longest_s = max((f.evidence["held_s"] for f in slow if f.evidence["finished_meanwhile"]), default=0)
        well = [f for f in slow if f.evidence["finished_meanwhile"] or f.evidence["held_s"] <= longest_s * HELD_LONGER_RATIO]
        if not well:
            continue
        held = "1 consumer has held one" if len(well) == 1 else f"{len(well)} consumers have held some"
        sentence = f"{held} of its messages for much longer than is usual on this queue."
        out |= {f.key: replace(f, folded="NoisyGroup") for f in well}
        out[noisy] = _explaining(findings[noisy], "warning", sentence, slow_consumers=len(well))
    return out


def _fold_late(findings: Mapping[SignalKey, Finding]) -> dict[SignalKey, Finding]:
    """Fold what comes of work that outlasts its visibility window into WindowTooShort: messages of which a deletion was refused.

    These are poison suspects, and heads of stuck groups. A WindowTooShort that explains stuck groups is critical, as they are.
    """
    late: dict[SignalKey, list[Finding]] = {}
    for key, finding in findings.items():
        if key.signal not in _REFUSED or not finding.evidence.get(_REFUSED[key.signal]) or not finding.announced:
            continue
        window = SignalKey("WindowTooShort", *key.queue_name)
        if window in findings and findings[window].announced:
            late.setdefault(window, []).append(finding)
    out = dict(findings)
    for window, explained in late.items():
        groups = sum(finding.key.signal == "GroupStuck" for finding in explained)
        messages = len(explained) - groups
        of = [plural(messages, "poison suspect")] * (messages > 0) + [plural(groups, "stuck group")] * (groups > 0)
        comes = "comes" if len(explained) == 1 else "come"
        sentence = f"{' and '.join(of)} {comes} of that: deletions were refused as too late."
        out |= {f.key: replace(f, folded="WindowTooShort") for f in explained}
        severity: Severity = "critical" if groups else findings[window].severity
        out[window] = _explaining(findings[window], severity, sentence, late_messages=messages, stuck_groups=groups)
    return out


def _keep_severity(findings: Mapping[SignalKey, Finding], before: Mapping[SignalKey, Finding]) -> dict[SignalKey, Finding]:
    """Keep a signal that explained others as severe as it was, until it ends: what it explains comes and goes."""
    out = dict(findings)
    for key, finding in findings.items():
        known = before.get(key) if key.signal in RAISED else None
        if known is not None and SEVERITY_RANK[known.severity] > SEVERITY_RANK[finding.severity]:
            out[key] = replace(finding, severity=known.severity)
    return out


def _is_late(lagging: Finding, findings: Mapping[SignalKey, Finding]) -> bool:
    """Whether a finding says that a queue falls behind of which groups are stuck because of its window."""
    if lagging.key.signal != "QueueLagging" or not lagging.announced:
        return False
    window = findings.get(SignalKey("WindowTooShort", *lagging.key.queue_name))
    return window is not None and window.announced and window.severity == "critical"


def _explaining(cause: Finding, severity: Severity, sentence: str, **evidence: int) -> Finding:
    """Return a finding that explains others, which its evidence counts."""
    return replace(cause, severity=severity, evidence={**cause.evidence, **evidence, "summary": f"{cause.summary} {sentence}"})


def _held_by(key: SignalKey, finding: Finding) -> tuple[QueueName, str | None]:
    return key.queue_name, finding.evidence.get("consumer")


def _holds_all(evidence: Evidence) -> bool:
    return evidence["held_messages"] >= HELD_TOGETHER and not evidence["finished_meanwhile"]


def _sources_of(arrived: Finding, sources: dict[QueueName, set[QueueName]]) -> set[QueueName]:
    """Return the queue that a dead letter came from; where that is not known, those of `sources` that it may have come from."""
    reported = arrived.evidence.get("from_queue")
    queue = arrived.key.queue_name
    return {queue.sibling(str(reported))} if reported is not None else sources.get(queue, set())


def _by_dead_letter_queue(names: set[QueueName], merged: Merged, settings: Settings) -> dict[QueueName, set[QueueName]]:
    """Return some queues by their dead-letter queue, which several may share."""
    out: dict[QueueName, set[QueueName]] = {}
    for name in names:
        summary = merged.queues.get(name)
        there = dead_letter_queue(summary, settings) if summary is not None else None
        if there:
            out.setdefault(name.sibling(there), set()).add(name)
    return out
