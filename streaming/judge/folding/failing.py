"""Fold the signals that a failing queue explains into its QueueFailing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streaming.core.reporting.merge import Merged
from streaming.core.settings import QueueName, Settings
from streaming.core.state.queues import dead_letter_queue
from streaming.judge.findings.signals import Finding, SignalKey, SignalName

FOLDED_AFTER_MS = 120_000
"""Signals explained by a failing consumer stay folded this long after it recovers: most of its backlog is drained by then."""

FOLDED_INTO: dict[SignalName, tuple[SignalName, ...]] = {
    "QueueFailing": ("PoisonMessage", "GroupStuck", "QueueStalled", "BatchRetryStorm", "WindowTooShort", "SlowConsumer"),
}
"""The signals of a queue that the key explains, message by message; those of its dead-letter queue (DeadLetterArrived) are folded
too. GroupStuck is explained where a delivery of the group's head failed, as did those of other groups' heads; WindowTooShort and
QueueStalled where they were not announced before, the latter only where consumers receive.
The table in `alerts.explains` holds back alerts of a coarser kind."""
HEADS_TOGETHER = 3
"""With this many groups whose heads failed, the consumer fails; a single failed head may itself cause the failures."""
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
            finding = finding.folded_into(None)
            if known is not None and known.folded and any(failed_at.get(name, 0) >= known.since_ms for name in causes):
                out[key] = finding.folded_into(known.folded)
                continue
        elif key.signal in FOLDED_INTO["QueueFailing"] and _follows(finding, before.get(key), several):
            causes = {key.queue_name}
        else:
            out[key] = finding
            continue
        explained = not causes.isdisjoint(failing) or (
            not causes.isdisjoint(pending) and key.signal in HELD_BACK and not (key in before and before[key].was_announced)
        )
        out[key] = finding.folded_into("QueueFailing") if explained and finding.alerting else finding
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
    if finding.key.signal in ("QueueStalled", "WindowTooShort") and known is not None and known.was_announced:
        return False
    return finding.key.signal != "QueueStalled" or finding.evidence["reason"] == "no_progress"


def _failed_heads(name: QueueName, merged: Merged) -> int:
    """Count a queue's oldest groups whose head failed."""
    place = merged.queues.place(name)
    ordered = merged.queues.ordered_facts(place) if place is not None else None
    heads = [group.head for group in ordered.oldest if group.head is not None] if ordered is not None else []
    return sum(_has_failed(head.receive_count, head.state) for head in heads)


def _has_failed(receive_count: int, state: str) -> bool:
    """Whether a delivery of an unsettled message has ended: it is not merely in flight for the first time."""
    return receive_count > (state == "in_flight")


def _sources_of(arrived: Finding, sources: dict[QueueName, set[QueueName]]) -> set[QueueName]:
    """Return the queue that a dead letter came from; where that is not known, those of `sources` that it may have come from."""
    reported = arrived.evidence.get("from_queue")
    queue = arrived.key.queue_name
    return {queue.sibling(str(reported))} if reported is not None else sources.get(queue, set())


def _by_dead_letter_queue(names: set[QueueName], merged: Merged, settings: Settings) -> dict[QueueName, set[QueueName]]:
    """Return some queues by their dead-letter queue, which several may share."""
    out: dict[QueueName, set[QueueName]] = {}
    for name in names:
        place = merged.queues.place(name)
        there = dead_letter_queue(merged.queues.attributes(place), settings) if place is not None else None
        if there:
            out.setdefault(name.sibling(there), set()).add(name)
    return out
