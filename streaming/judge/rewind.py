"""Rewind the judge's memory when `now` moves back: entries dated later are forgotten."""

from __future__ import annotations

from streaming.judge.evaluation_schedule import EvaluationSchedule
from streaming.judge.knowledge.evidence import Evidence
from streaming.judge.memory import JudgeMemory


def rewind_memory(memory: JudgeMemory, now: int) -> JudgeMemory:
    """Return `memory` with nothing later than `now` (epoch milliseconds). It is consumed: continue with the one returned."""
    memory.history.forget_after(now)
    for name, queue in memory.queues.items():
        if queue.evidence.seen_at > now:
            queue.evidence = Evidence()
        queue.consumer_marks = [mark for mark in queue.consumer_marks if mark.at <= now]
        queue.failed_at = min(queue.failed_at, now)
        queue.basis_since = min(queue.basis_since, now)
        queue.counted_arrivals.since = min(queue.counted_arrivals.since, now)
        queue.counted_arrivals.at = min(queue.counted_arrivals.at, now)
        queue.counted_arrivals.uncounted_at = min(queue.counted_arrivals.uncounted_at, now)
        queue.counted_arrivals.rose_at = min(queue.counted_arrivals.rose_at, now)
        queue.counted_arrivals.fell_at = min(queue.counted_arrivals.fell_at, now)
        queue.since = {condition: min(at, now) for condition, at in queue.since.items()}
        queue.noisy = {group: min(at, now) for group, at in queue.noisy.items()}
        queue.purges = [purge for purge in queue.purges if purge.quiet_from <= now]
        queue.pauses = [pause for pause in queue.pauses if pause.ended_at <= now]
        queue.paused_at = min(queue.paused_at, now)
        queue.holds_at = min(queue.holds_at, now)
        memory.queues.put(name, queue)
    memory.at, memory.newest_event_at = min(memory.at, now), min(memory.newest_event_at, now)
    memory.schedule = EvaluationSchedule()
    return memory
