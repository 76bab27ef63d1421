"""Rewind the judge's memory when `now` moves back: entries dated later are forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streaming.judge.findings.firing import FiringSignals
from streaming.judge.findings.signals import Finding
from streaming.judge.knowledge.evidence import Evidence
from streaming.judge.memory.evaluation_schedule import EvaluationSchedule
from streaming.judge.memory.memory import JudgeMemory


def rewind_memory(memory: JudgeMemory, now: int) -> JudgeMemory:
    """Return `memory` with nothing later than `now` (epoch milliseconds). It is consumed: continue with the one returned."""
    memory.history.forget_after(now)
    for name, queue in memory.queues.items():
        of_counts = queue.evidence
        if max(of_counts.seen_at, of_counts.counted_at, of_counts.backlog_at, of_counts.visible_at) > now:
            queue.evidence = Evidence()
        queue.evidence.arrived_at = min(queue.evidence.arrived_at, now)
        queue.evidence.group_passed_at = min(queue.evidence.group_passed_at, now)
        queue.consumer_marks = [mark for mark in queue.consumer_marks if mark.at <= now]
        queue.failed_at = min(queue.failed_at, now)
        queue.pending_at = min(queue.pending_at, now)
        queue.basis_since = min(queue.basis_since, now)
        queue.counted_arrivals.since = min(queue.counted_arrivals.since, now)
        queue.counted_arrivals.at = min(queue.counted_arrivals.at, now)
        queue.counted_arrivals.uncounted_at = min(queue.counted_arrivals.uncounted_at, now)
        queue.counted_arrivals.rose_at = min(queue.counted_arrivals.rose_at, now)
        queue.counted_arrivals.shown_at = min(queue.counted_arrivals.shown_at, now)
        queue.counted_arrivals.fell_at = min(queue.counted_arrivals.fell_at, now)
        queue.since = {condition: min(at, now) for condition, at in queue.since.items()}
        queue.noisy = {group: min(at, now) for group, at in queue.noisy.items()}
        queue.purges = [purge for purge in queue.purges if purge.quiet_from <= now]
        queue.pauses = [pause for pause in queue.pauses if pause.ended_at <= now]
        queue.paused_at = min(queue.paused_at, now)
        queue.holds_at = min(queue.holds_at, now)
        queue.at_work = {consumer: since for consumer, since in queue.at_work.items() if since <= now}
        queue.turns = {bucket: at for bucket, at in queue.turns.items() if at <= now}
        queue.strategies = {key: _strategy(strategy, now) for key, strategy in queue.strategies.items()}
        memory.queues.put(name, queue)
    memory.firing = FiringSignals({finding.key: _finding(finding, now) for finding in memory.firing})
    memory.at, memory.newest_event_at = min(memory.at, now), min(memory.newest_event_at, now)
    memory.schedule = EvaluationSchedule()
    return memory


def _strategy(strategy: Mapping[str, Any], now: int) -> dict[str, Any]:
    """Return a strategy's memory of a consumer that has not been slow since later than `now`."""
    since_ms = strategy["since_ms"]
    return {**strategy, "since_ms": since_ms if since_ms is None else min(since_ms, now)}


def _finding(finding: Finding, now: int) -> Finding:
    """Return a finding that began, and whose quiet begins, at `now` at the latest."""
    evidence = finding.evidence
    # The time of a dead letter or a loss also identifies it: if it changed, the same one would be announced again.
    if any(evidence.get(happened, 0) > now for happened in ("arrived_at", "lost_at", "noticed_at")):
        evidence = {**evidence, "noticed_at": now}
    return replace(finding, since_ms=min(finding.since_ms, now), evidence=evidence)
