"""The verdict: `(memory, merged report, now) -> (memory, snapshot, changes)`. Pure; run twice it says the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from streaming.core.clock import counted
from streaming.core.report import Arrival, Merged, QueueFacts
from streaming.core.settings import QueueName, Settings
from streaming.judge.context import Context
from streaming.judge.folding import fold, fold_held
from streaming.judge.knowledge.learn import learn
from streaming.judge.knowledge.needs import supported
from streaming.judge.memory import JudgeMemory, QueueMemory
from streaming.judge.rules import config, consumers, failing, groups, messages, queues, redrive, telemetry, traffic
from streaming.judge.samples import sample_table
from streaming.judge.signals import Finding, SignalChange, SignalKey, SignalStatus
from streaming.judge.snapshot import QueueView, Snapshot
from streaming.judge.status import queue_status
from streaming.judge.view import queue_view

RULES: tuple[Callable[[Context], Iterator[Finding]], ...] = (
    messages.poison_message,
    messages.message_held_too_long,
    messages.dead_letters_counted,  # before the arrivals: it knows which of them were announced already
    messages.dead_letter_arrived,
    messages.dead_letter_expiring,
    messages.message_dropped,
    groups.group_stuck,
    groups.look_ahead_saturated,
    groups.concurrency_collapsed,
    groups.noisy_group,
    queues.queue_stalled,
    queues.batch_retry_storm,
    failing.queue_failing,
    failing.window_too_short,
    traffic.queue_lagging,
    traffic.queue_silent,
    consumers.slow_consumer,
    consumers.broker_strategies,
    consumers.zombie_consumer,
    redrive.redrive_failed,
    redrive.redrive_stalled,
    config.queue_misconfigured,
    telemetry.telemetry_partial,
)

FOLDED_AFTER_MS = 120_000
"""What a failing consumer explains stays folded for so long after it: most of it is worked off by then."""

SILENT_DEPTH_MS = 600_000
"""A queue known only by its attributes vanishes when nobody has told them for this long."""


def judge(memory: JudgeMemory, merged: Merged, now: int, settings: Settings) -> tuple[JudgeMemory, Snapshot, list[SignalChange]]:
    """Judge every queue as of `now` (epoch milliseconds). `memory` is used up: go on with the one returned."""
    fired = _by_queue(memory.firing)
    clock = counted(memory.clock, merged.events_total["ahead"], now)
    watcher = (*telemetry.telemetry_stale(merged, now, settings), *telemetry.clock_untrusted(clock, now, settings))
    findings: dict[SignalKey, Finding] = {finding.key: finding for finding in watcher}
    present = _present(merged, now, settings)
    history = memory.history
    history.add(now, list(present), sample_table(list(present.values())))
    views: list[QueueView] = []
    remembered: dict[QueueName, QueueMemory] = {}
    arrivals: dict[QueueName, list[Arrival]] = {}
    for arrival in merged.arrivals:
        arrivals.setdefault(arrival.queue, []).append(arrival)
    for name, facts in present.items():
        queue_memory = memory.queues.get(name) or QueueMemory()
        context = Context(
            facts=facts,
            memory=queue_memory,
            merged=merged,
            now=now,
            settings=settings,
            firing=fired.get(name, {}),
            recent=history.recent(name),
            history=history,
            arrivals=tuple(arrivals.get(name, ())),
        )
        context.remember_holds()
        context.knowledge = learn(context)
        for rule in RULES:
            for finding in rule(context):
                if finding.key in context.firing or supported(finding.key.signal, context.basis) is not None:
                    findings[finding.key] = finding
        views.append(queue_view(context, queue_status(context)))
        remembered[name] = queue_memory
    making = {n for n, m in remembered.items() if failing.failing_in_the_making(m, now, settings.thresholds(n))}
    findings = fold(findings, merged, _failed_lately(findings, remembered, now), making, memory.firing)
    findings = fold_held(findings)
    changes, firing = _changes(memory.firing, findings, now)
    folded_now = _folded(views)
    folded = {what: memory.folded.get(what, 0) + max(0, n - memory.folded_now.get(what, 0)) for what, n in folded_now.items()}
    snapshot = Snapshot(
        now,
        tuple(views),
        tuple(firing.values()),
        dict(merged.events_total),
        dict(merged.invalid_total),
        dict(merged.collectors),
        folded,
    )
    return JudgeMemory(remembered, firing, folded, folded_now, now, history, clock), snapshot, changes


def _present(merged: Merged, now: int, settings: Settings) -> dict[QueueName, QueueFacts]:
    """The queues that have not vanished."""
    arrived = {arrival.queue for arrival in merged.arrivals}
    return {name: facts for name, facts in merged.queues.items() if name in arrived or not _vanished(facts, now, settings)}


def _failed_lately(findings: dict[SignalKey, Finding], memories: dict[QueueName, QueueMemory], now: int) -> set[QueueName]:
    """Queues that are failing, or were a moment ago: what is left of it drains before it is announced singly."""
    failing = {key.queue_name for key in findings if key.signal == "QueueFailing"}
    for name, memory in memories.items():
        if name in failing:
            memory.failed_at = now
    return {name for name, memory in memories.items() if memory.failed_at and now - memory.failed_at <= FOLDED_AFTER_MS}


def _by_queue(firing: dict[SignalKey, Finding]) -> dict[QueueName, dict[SignalKey, Finding]]:
    by_queue: dict[QueueName, dict[SignalKey, Finding]] = {}
    for key, finding in firing.items():
        by_queue.setdefault(key.queue_name, {})[key] = finding
    return by_queue


def _vanished(facts: QueueFacts, now: int, settings: Settings) -> bool:
    """Nothing in it, and nobody spoke of it for long; or only ever spoken of, and no more."""
    numbers = facts.numbers
    if numbers["visible"] + numbers["in_flight"] + numbers["delayed"] or facts.losses:
        return False
    if not facts.messages_seen and facts.last_state_at:
        return now - facts.last_state_at > SILENT_DEPTH_MS
    return now - max(facts.last_event_at, facts.last_state_at) > settings.forget_queue_after_ms


def _changes(
    before: dict[SignalKey, Finding], after: dict[SignalKey, Finding], now: int
) -> tuple[list[SignalChange], dict[SignalKey, Finding]]:
    """What began and what ended. A signal that goes on keeps the time it began with."""
    changes = []
    firing: dict[SignalKey, Finding] = {}
    for key, finding in after.items():
        known = before.get(key)
        announced = known is not None and known.was_announced
        if known is None or (finding.folded is None and not announced):
            # What another signal explained from its beginning, and no longer does, is announced by itself.
            changes.append(_change(now, "firing", finding))
        since_ms = finding.since_ms if known is None else min(known.since_ms, finding.since_ms)
        if since_ms != finding.since_ms or announced or finding.folded is None:
            finding = replace(finding, since_ms=since_ms, was_announced=announced or finding.folded is None)
        firing[key] = finding
    changes += [_change(now, "resolved", finding) for key, finding in before.items() if key not in after]
    changes.sort(key=lambda c: (c.status, _order(c.finding.key)))
    return changes, firing


def _change(now: int, status: SignalStatus, finding: Finding) -> SignalChange:
    text = "\0".join((*_order(finding.key), status, str(now), finding.folded or ""))
    return SignalChange(now, status, finding, hashlib.blake2b(text.encode(), digest_size=12).hexdigest())


def _order(key: SignalKey) -> tuple[str, ...]:
    about = (key.message_id, key.group, key.consumer, key.part)
    return (key.system, key.scope, key.queue, key.signal, *(word or "" for word in about))


def _folded(views: list[QueueView]) -> dict[str, int]:
    """How much stands behind `other`, or is left out of the lists, now; what is published counts how often that came to be."""
    listed = sum("poison" in message.why for view in views for message in view.messages)
    return {
        "groups": sum(view.other_groups for view in views),
        "consumers": sum(view.other_consumers for view in views),
        "messages": max(0, sum(view.poison_messages or 0 for view in views) - listed),
    }
