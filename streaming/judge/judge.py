"""The verdict: `(memory, merged report, now) -> (memory, snapshot, changes)`. A repeated run gives the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from streaming.core.clock import record_future_events
from streaming.core.columns import nonzero
from streaming.core.reporting.merge import LOADED_TOGETHER, Merged, MergedQueues
from streaming.core.settings import QueueName, Settings
from streaming.judge.broker_counts import OVERDUE_RATIO
from streaming.judge.context import Context
from streaming.judge.evaluation.evaluation import Evaluation, evaluate
from streaming.judge.findings.firing import NO_QUEUE
from streaming.judge.findings.measured import Measured, Near
from streaming.judge.findings.signals import Finding, SignalChange, SignalKey, SignalName
from streaming.judge.folding.causes import fold_into_causes
from streaming.judge.folding.failing import FOLDED_AFTER_MS, fold_explained, oldest_folded
from streaming.judge.history.samples import sample_table
from streaming.judge.history.window import Bools, Ints
from streaming.judge.knowledge.dead_letter_sources import DeadLetterSources
from streaming.judge.knowledge.learn import learn
from streaming.judge.knowledge.signal_requirements import supported
from streaming.judge.memory.memory import JudgeMemory
from streaming.judge.memory.queue_memory import QueueMemory
from streaming.judge.remember import PROCESSING, remember, remember_holds, remember_turns
from streaming.judge.rules import failing, telemetry
from streaming.judge.rules.status import flows_not_ok, recent_flows
from streaming.judge.rules.table import RULES
from streaming.judge.snapshot import QueueStatus, Snapshot
from streaming.judge.views.aggregated_queues import AggregatedQueues
from streaming.judge.views.view import Views

UNCOUNTED_VANISH_MS = 600_000
"""A queue known only by the broker's reports vanishes when none came for this long, and the next one is overdue."""


def judge(memory: JudgeMemory, merged: Merged, now: int, settings: Settings) -> tuple[JudgeMemory, Snapshot, list[SignalChange]]:
    """Judge every queue at `now` (epoch milliseconds). `memory` is consumed: continue with the one returned.

    Only queues with new data, or whose next evaluation is due, are judged: see `evaluation_schedule`.
    """
    queues, schedule = merged.queues, memory.schedule
    clock = record_future_events(memory.clock, merged.events_total["ahead"], now)
    watcher = (*telemetry.telemetry_stale(merged, now, settings), *telemetry.clock_untrusted(clock, now, settings))
    present = _present(merged, now, settings)
    places = nonzero(present)
    newest_at, delay_ms = _reading(memory, merged, now)
    # Most of the time all queues are there, and the history recognizes the names of the step before at once.
    names = queues.names if present.all() else tuple(queues.names[place] for place in places.tolist())
    memory.history.add(now, names, sample_table(queues, places), delay_ms=delay_ms)
    due = _due(memory, merged, present, now) & present
    evaluated = nonzero(due)
    flows = _flows(memory, merged, evaluated, present, now)
    found, pending = _evaluate(memory, merged, evaluated.tolist(), flows, now, settings)
    # What fires about the other queues goes on: only reports end it, and it explains nothing and is not explained.
    findings = {finding.key: finding for finding in watcher} | found
    vanished = nonzero(~present).tolist()
    memory.queues.forget(queues.names[place] for place in vanished)
    for place in vanished:
        schedule.forget(place)
    memory.queues.fail((key.queue_name for key in findings if key.signal == "QueueFailing"), now)
    # What is left of a failure drains before it is announced individually.
    failed_lately = memory.queues.failed_since(now - FOLDED_AFTER_MS)
    folded_from = oldest_folded(findings, memory.firing.findings)
    failed_at = memory.queues.failed_since(folded_from) if folded_from is not None else {}
    findings = fold_explained(findings, merged, set(failed_lately), pending, memory.firing.findings, failed_at, settings)
    findings = fold_into_causes(findings, memory.firing.findings, settings)
    judged = (queues.names[place] for place in (*evaluated.tolist(), *vanished))
    changes = memory.firing.update((NO_QUEUE, *judged, *memory.firing.forgotten(queues)), findings, now)
    folded_now = schedule.folded(places)
    folded = {what: memory.folded.get(what, 0) + max(0, n - memory.folded_now.get(what, 0)) for what, n in folded_now.items()}
    views = Views(
        queues,
        places.tolist(),
        evaluations=schedule.latest(),
        backlogs=schedule.backlogs(places),
        made=schedule.views,
        settings=settings,
    )
    snapshot = Snapshot(
        at_ms=now,
        queues=views,
        firing=tuple(memory.firing),
        events_total=dict(merged.events_total),
        invalid_total=dict(merged.invalid_total),
        collectors=dict(merged.collectors),
        folded=folded,
        aggregated_queues=AggregatedQueues(queues, views, memory.firing, settings) if settings.folds else (),
    )
    memory = replace(
        memory, folded=folded, folded_now=folded_now, clock=clock, at=now, newest_event_at=newest_at, delay_ms=delay_ms
    )
    return memory, snapshot, changes


def _reading(memory: JudgeMemory, merged: Merged, now: int) -> tuple[int, int]:
    """Return the time of the newest event, and how many milliseconds later it was read.

    Where none is newer than those of the steps before, it is quiet, which says nothing about the delay: it stays the same.
    """
    if merged.high_water <= memory.newest_event_at:
        return memory.newest_event_at, memory.delay_ms
    return merged.high_water, max(0, now - merged.high_water)


def _due(memory: JudgeMemory, merged: Merged, present: Bools, now: int) -> Bools:
    """Return which queues to judge: those with new data or due by time, and those that something fires or may change for."""
    queues = merged.queues
    due = memory.schedule.due(queues, (*memory.firing.changing(), *merged.arrivals_by_queue), now)
    due[list({*queues.places_of("losses"), *queues.places_of("purges")})] = True
    due |= _flows_otherwise(memory, present, due, now)
    return due


def _evaluate(
    memory: JudgeMemory,
    merged: Merged,
    places: Sequence[int],
    flows: Mapping[int, QueueStatus | None],
    now: int,
    settings: Settings,
) -> tuple[dict[SignalKey, Finding], set[QueueName]]:
    """Judge the queues of some rows. Return what was found, and the queues that may be about to fail.

    `flows`: see `_flows`.
    """
    queues, history = merged.queues, memory.history
    findings: dict[SignalKey, Finding] = {}
    pending: set[QueueName] = set()
    sources = DeadLetterSources(queues, memory.queues.on_basis, settings)
    for first in range(0, len(places), LOADED_TOGETHER):
        together = places[first : first + LOADED_TOGETHER]
        if first:
            queues.unload()
        history.gather([queues.names[place] for place in together])
        queues.load(together)
        memories = {place: memory.queues.get(queues.names[place]) or QueueMemory() for place in together}
        finishing = [place for place, before in memories.items() if queues.summary(place).total("processed") != before.processed]
        processed = queues.durations_by_bucket(finishing, PROCESSING)
        evaluations: dict[int, Evaluation] = {}
        for place in together:
            name = queues.names[place]
            context = Context(
                summary=queues.summary(place),
                memory=memories[place],
                merged=merged,
                now=now,
                settings=settings,
                firing=memory.firing.of(name),
                recent=history.recent(name),
                history=history,
                arrivals=tuple(merged.arrivals_by_queue.get(name, ())),
                sources=sources,
                flow_status=flows.get(place),
                processed=processed.get(place),
            )
            found, near = _conclude(context)
            findings |= found
            evaluations[place] = evaluate(context, found, near)
            memory.queues.put(name, context.memory)
            if failing.failure_pending(context.memory, now, context.thresholds):
                pending.add(name)
        memory.schedule.put(evaluations, queues)
    return findings, pending


def _conclude(c: Context) -> tuple[dict[SignalKey, Finding], dict[SignalName, Measured]]:
    """Learn from what is new about a queue, apply the rules, and remember what they concluded."""
    remember_holds(c)
    remember_turns(c)
    c.knowledge = learn(c)
    concluded = _apply_rules(c)
    remember(c)
    return concluded


def _flows_otherwise(memory: JudgeMemory, present: Bools, due: Bools, now: int) -> Bools:
    """Return which of the present queues that are not due were well and, by the flow of the last minutes, no longer are."""
    otherwise = np.zeros(len(present), dtype=bool)
    places = nonzero(present & ~due & memory.schedule.by_flow())
    if not len(places):
        return otherwise
    otherwise[places] = flows_not_ok(memory.history, _rank(present)[places], now)
    return otherwise


def _flows(memory: JudgeMemory, merged: Merged, evaluated: Ints, present: Bools, now: int) -> dict[int, QueueStatus | None]:
    """Return the status by the flow of the last minutes of the queues to judge in which something waits for consumers."""
    columns = merged.queues.columns
    waits = evaluated[(columns["visible"] > 0)[evaluated] & ~columns["dead_letter"][evaluated]]
    return dict(zip(waits.tolist(), recent_flows(memory.history, _rank(present)[waits], now), strict=True)) if len(waits) else {}


def _rank(present: Bools) -> Ints:
    """Return the index of each present queue among all that are present."""
    rank: Ints = np.cumsum(present) - 1
    return rank


def _apply_rules(c: Context) -> tuple[dict[SignalKey, Finding], dict[SignalName, Measured]]:
    """Return what every rule finds, as far as the queue's basis supports it, and how near the queue is to other signals."""
    found: dict[SignalKey, Finding] = {}
    near: dict[SignalName, Measured] = {}
    for rule in RULES:
        for result in rule(c):
            if isinstance(result, Near):
                near[result.signal] = result.measured
            elif result.key in c.firing or supported(result.key.signal, c.basis) is not None:
                found[result.key] = result
    return found, near


def _present(merged: Merged, now: int, settings: Settings) -> Bools:
    """Return which queues have not vanished.

    A queue vanishes when it is empty and had no event for long, or when it was only ever counted and the next count is
    overdue.
    """
    queues = merged.queues
    column = queues.columns
    heard = np.maximum(column["last_event_at"], column["last_state_at"])
    silent = now - heard > settings.forget_queue_after_ms
    reported_only = ~column["messages_seen"] & (column["last_state_at"] > 0)
    unreported_ms = now - column["last_state_at"]
    silent = np.where(reported_only, unreported_ms > UNCOUNTED_VANISH_MS, silent)
    uncounted = nonzero(reported_only & silent)
    silent[uncounted] = unreported_ms[uncounted] > OVERDUE_RATIO * _between_counts(queues, uncounted)
    present: Bools = ~silent | (column["visible"] + column["in_flight"] + column["delayed"] > 0)
    present[list({*queues.places_of("losses"), *queues.places_of("purges")})] = True
    for name in merged.arrivals_by_queue:
        place = queues.place(name)
        if place is not None:
            present[place] = True
    return present


def _between_counts(queues: MergedQueues, places: Ints) -> Ints:
    """Return the milliseconds between the last two counts of each of the queues at `places`; 0 where there are fewer."""
    between = np.zeros(len(places), dtype=np.int64)
    for shard, rows in queues.shard_rows(places):
        queue, at, *_ = shard.depths
        first, end = np.searchsorted(queue, rows), np.searchsorted(queue, rows, side="right")
        twice = nonzero(end - first > 1)
        between[twice] = np.maximum(between[twice], at[end[twice] - 1] - at[end[twice] - 2])
    return between
