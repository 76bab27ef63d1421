"""Fold signals about messages, groups and consumers into the one that names their cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from streaming.core.reporting.report import FEWEST_LISTED, MOST_LISTED
from streaming.core.settings import QueueName, Settings
from streaming.judge.findings.signals import SEVERITY_RANK, Evidence, Finding, Severity, SignalKey, SignalName
from streaming.judge.findings.words import leaving, plural

HELD_TOGETHER = 3
"""With this many messages held too long by one consumer, the consumer hangs; fewer are announced individually."""
HELD_LONGER_RATIO = 1.5
"""A consumer that has finished nothing is as well as another one if it has held its message at most so many times as long."""
RAISED: frozenset[SignalName] = frozenset({"NoisyGroup", "WindowTooShort"})
"""Signals that are more severe once they explain others."""
_REFUSED: Mapping[SignalName, str] = {"PoisonMessage": "refused_settlements", "GroupStuck": "head_refused_settlements"}
"""The evidence that says how many deletions of the message, or of the group's head, were refused as too late."""


def fold_into_causes(
    findings: dict[SignalKey, Finding], before: Mapping[SignalKey, Finding], settings: Settings
) -> dict[SignalKey, Finding]:
    """Return the findings, with those marked that another one of the queue explains. `before`: what fired until now."""
    # Of very many, fewer are listed of each queue.
    most = settings.messages_per_queue if len(findings) <= MOST_LISTED // 2 else FEWEST_LISTED
    late = _fold_late(_fold_late_failures(_fold_held(_fold_crowded(findings, most)), before), most)
    found = _keep_severity(late, before)
    return found | {key: finding.folded_into("WindowTooShort") for key, finding in found.items() if _is_late(finding, found)}


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
        key: finding.folded_into("SlowConsumer")
        if key.signal == "MessageHeldTooLong" and finding.folded is None and _held_by(key, finding) in hangs
        else finding
        for key, finding in findings.items()
    }


def _fold_crowded(findings: Mapping[SignalKey, Finding], most: int) -> dict[SignalKey, Finding]:
    """Fold each SlowConsumer into the NoisyGroup of the message that it holds, where the consumer is well: the job takes long.

    It is well if it finished others meanwhile, or has not held its message for much longer than another of these; and if it
    holds no message for too long by any measure. A NoisyGroup that explains a slow consumer is a warning. `most`: how many
    findings of a kind there can be about a queue.
    """
    crowded: dict[SignalKey, list[Finding]] = {}
    too_long = {_held_by(key, finding) for key, finding in findings.items() if key.signal == "MessageHeldTooLong"}
    for key, finding in findings.items():
        if key.signal != "SlowConsumer" or not finding.announced or (key.queue_name, key.consumer) in too_long:
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
        held = "1 consumer has held one" if len(well) == 1 else f"{_counted(len(well), 'consumer', most)} have held some"
        sentence = f"{held} of its messages for much longer than is usual on this queue."
        out |= {f.key: f.folded_into("NoisyGroup") for f in well}
        out[noisy] = _explaining(findings[noisy], "warning", sentence, slow_consumers=len(well))
    return out


def _fold_late(findings: Mapping[SignalKey, Finding], most: int) -> dict[SignalKey, Finding]:
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
        counts = ((messages, "poison suspect"), (groups, "stuck group"))
        what = " and ".join(_counted(n, noun, most) for n, noun in counts if n)
        sentence = f"{what} {'comes' if len(explained) == 1 else 'come'} of that: deletions were refused as too late."
        out |= {f.key: f.folded_into("WindowTooShort") for f in explained}
        severity: Severity = "critical" if groups else findings[window].severity
        out[window] = _explaining(findings[window], severity, sentence, late_messages=messages, stuck_groups=groups)
    return out


def _fold_late_failures(findings: Mapping[SignalKey, Finding], before: Mapping[SignalKey, Finding]) -> dict[SignalKey, Finding]:
    """Fold QueueFailing into a WindowTooShort, where deliveries fail because their window ends while they are processed.

    It is critical then, as QueueFailing is. A QueueFailing that was announced stays so, and so does one that names consumers.
    """
    out = dict(findings)
    for key, finding in findings.items():
        window = SignalKey("WindowTooShort", *key.queue_name)
        if key.signal != "QueueFailing" or not finding.announced or window not in findings or not findings[window].announced:
            continue
        if _fails_late(finding.evidence) and not (key in before and before[key].was_announced):
            out[key] = finding.folded_into("WindowTooShort")
            lost = leaving(finding.evidence["lost_or_dead_lettered_per_hour"])
            out[window] = _explaining(findings[window], "critical", f"Most deliveries of the queue fail because of that{lost}.")
    return out


def _fails_late(evidence: Evidence) -> bool:
    """Whether at least half of the failed deliveries of a queue were finished after their window, and no consumer is to blame."""
    late = evidence.get("outlived_deliveries", 0)
    return bool(late and 2 * late >= evidence["failed_deliveries"]) and evidence.keys().isdisjoint(("consumer", "consumers"))


def _keep_severity(findings: Mapping[SignalKey, Finding], before: Mapping[SignalKey, Finding]) -> dict[SignalKey, Finding]:
    """Keep a signal that explained others as severe as it was, until it ends: what it explains comes and goes."""
    out = dict(findings)
    for key, finding in findings.items():
        known = before.get(key) if key.signal in RAISED else None
        if known is not None and SEVERITY_RANK[known.severity] > SEVERITY_RANK[finding.severity]:
            out[key] = replace(finding, severity=known.severity)
    return out


def _is_late(lagging: Finding, findings: Mapping[SignalKey, Finding]) -> bool:
    """Whether a finding says that a queue falls behind which is blocked, or fails, because of its window."""
    if lagging.key.signal != "QueueLagging" or not lagging.announced:
        return False
    window = findings.get(SignalKey("WindowTooShort", *lagging.key.queue_name))
    return window is not None and window.announced and window.severity == "critical"


def _explaining(cause: Finding, severity: Severity, sentence: str, **evidence: int) -> Finding:
    """Return a finding that explains others, which its evidence counts."""
    return replace(cause, severity=severity, evidence={**cause.evidence, **evidence, "summary": f"{cause.summary} {sentence}"})


def _counted(n: int, noun: str, most: int) -> str:
    """Format a count of findings, of which there can be only so many about a queue."""
    return f"{'at least ' if n >= most else ''}{plural(n, noun)}"


def _held_by(key: SignalKey, finding: Finding) -> tuple[QueueName, str | None]:
    return key.queue_name, finding.evidence.get("consumer")


def _holds_all(evidence: Evidence) -> bool:
    return evidence["held_messages"] >= HELD_TOGETHER and not evidence["finished_meanwhile"]
