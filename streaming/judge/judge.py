"""The verdict: `(memory, merged report, now) -> (memory, snapshot, changes)`. Pure; run twice it says the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from streaming.core.report import Arrival, Merged, QueueFacts
from streaming.core.settings import QueueName, Settings
from streaming.judge.context import Context
from streaming.judge.memory import JudgeMemory, QueueMemory, RateSample
from streaming.judge.rules import config, consumers, groups, messages, queues, telemetry
from streaming.judge.signals import Finding, SignalChange, SignalKey, SignalStatus
from streaming.judge.snapshot import QueueView, Snapshot
from streaming.judge.status import queue_status
from streaming.judge.view import queue_view

RULES: tuple[Callable[[Context], Iterator[Finding]], ...] = (
    messages.poison_message,
    messages.message_held_too_long,
    messages.dead_letter_arrived,
    messages.dead_letter_expiring,
    messages.message_dropped,
    groups.group_stuck,
    groups.look_ahead_saturated,
    groups.concurrency_collapsed,
    groups.noisy_group,
    queues.queue_stalled,
    queues.batch_retry_storm,
    consumers.slow_consumer,
    consumers.broker_strategies,
    consumers.zombie_consumer,
    config.queue_misconfigured,
    telemetry.telemetry_partial,
)

SILENT_DEPTH_MS = 600_000
"""A queue known only by its attributes vanishes when nobody has told them for this long."""


def judge(memory: JudgeMemory, merged: Merged, now: int, settings: Settings) -> tuple[JudgeMemory, Snapshot, list[SignalChange]]:
    """Judge every queue as of `now` (epoch milliseconds). `memory` is used up: go on with the one returned."""
    fired = _by_queue(memory.firing)
    findings: dict[SignalKey, Finding] = {f.key: f for f in telemetry.telemetry_stale(merged, now, settings)}
    views: list[QueueView] = []
    remembered: dict[QueueName, QueueMemory] = {}
    arrivals: dict[QueueName, list[Arrival]] = {}
    for arrival in merged.arrivals:
        arrivals.setdefault(arrival.queue, []).append(arrival)
    for name, facts in merged.queues.items():
        if name not in arrivals and _vanished(facts, now, settings):
            continue
        queue_memory = memory.queues.get(name) or QueueMemory()
        context = Context(facts, queue_memory, merged, now, settings, fired.get(name, {}), tuple(arrivals.get(name, ())))
        context.remember_holds()
        queue_memory.sample(_sample(context))
        for rule in RULES:
            for finding in rule(context):
                findings[finding.key] = finding
        views.append(queue_view(context, queue_status(context)))
        remembered[name] = queue_memory
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
    return JudgeMemory(remembered, firing, folded, folded_now, now), snapshot, changes


def _by_queue(firing: dict[SignalKey, Finding]) -> dict[QueueName, dict[SignalKey, Finding]]:
    by_queue: dict[QueueName, dict[SignalKey, Finding]] = {}
    for key, finding in firing.items():
        by_queue.setdefault((key.system, key.scope, key.queue), {})[key] = finding
    return by_queue


def _vanished(facts: QueueFacts, now: int, settings: Settings) -> bool:
    """Nothing in it, and nobody spoke of it for long; or only ever spoken of, and no more."""
    numbers = facts.numbers
    if numbers["visible"] + numbers["in_flight"] + numbers["delayed"] or facts.losses:
        return False
    if not facts.messages_seen and facts.last_state_at:
        return now - facts.last_state_at > SILENT_DEPTH_MS
    return now - max(facts.last_event_at, facts.last_state_at) > settings.forget_queue_after_ms


def _sample(c: Context) -> RateSample:
    visible = c.facts.oldest[1] if c.facts.numbers["visible"] else 0
    return RateSample(c.now, c.facts.total("received"), c.settled_total, c.facts.total("retried"), c.tracked, visible)


def _changes(
    before: dict[SignalKey, Finding], after: dict[SignalKey, Finding], now: int
) -> tuple[list[SignalChange], dict[SignalKey, Finding]]:
    """What began and what ended. A signal that goes on keeps the time it began with."""
    changes = []
    firing: dict[SignalKey, Finding] = {}
    for key, finding in after.items():
        known = before.get(key)
        if known is None:
            changes.append(_change(now, "firing", finding))
        elif known.since_ms < finding.since_ms:
            finding = replace(finding, since_ms=known.since_ms)
        firing[key] = finding
    changes += [_change(now, "resolved", finding) for key, finding in before.items() if key not in after]
    changes.sort(key=lambda c: (c.status, _order(c.finding.key)))
    return changes, firing


def _change(now: int, status: SignalStatus, finding: Finding) -> SignalChange:
    text = "\0".join((*_order(finding.key), status, str(now)))
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
        "messages": max(0, sum(view.poison_messages for view in views) - listed),
    }
