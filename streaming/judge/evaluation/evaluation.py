"""The evaluation of one queue: its result, and how long that remains valid."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from streaming.core.settings import QueueName
from streaming.judge.context import Context
from streaming.judge.drain import time_to_drain_s
from streaming.judge.evaluation.next_evaluation import NextEvaluation, is_steady, next_evaluation
from streaming.judge.findings.measured import Measured
from streaming.judge.findings.signals import SignalKey, SignalName
from streaming.judge.knowledge.queue import Knowledge
from streaming.judge.rules.status import queue_status
from streaming.judge.snapshot import QueueStatus


class Evaluation(NamedTuple):
    """The result of the last time one queue was judged. Times are epoch milliseconds."""

    at: int
    judge_again: NextEvaluation
    """The result does not change before this, as long as nothing arrives."""
    status: QueueStatus
    knowledge: Knowledge
    basis_since: int
    ordered: bool
    stuck_groups: frozenset[str]
    """The groups that GroupStuck is about."""
    coverage_ratio: float | None
    time_to_drain_s: float | None
    folded: tuple[int, int, int]
    """How many of each of `evaluation_schedule.FOLDED` are folded into `other` or left out of the lists."""
    dead_letter_queue: QueueName | None
    by_flow: bool
    """Its status follows from the flow of the last minutes, so it may change with every step: see `flow_status`."""
    steady: bool
    """A count equal to the previous one adds nothing."""


def evaluate(c: Context, found: Collection[SignalKey], near: dict[SignalName, Measured]) -> Evaluation:
    """Return the result for a queue that has just been judged.

    `found`: what its rules found; `near`: the distance to firing of signals that only their rule can measure.
    """
    status, drain_s, summary, top_k = queue_status(c), time_to_drain_s(c), c.summary, c.settings.top_k
    ordered = summary.ordered_facts
    groups = ordered.groups - len(ordered.oldest) if ordered is not None else len(summary.groups) - top_k + summary.folded_groups
    dead_letter_queue = c.dead_letter_queue
    waiting = summary.numbers["visible"] > 0 and not summary.dead_letter and not c.paused
    folded_messages = summary.numbers["poison"] - len(c.messages("poison"))
    again = next_evaluation(c, status, drain_s, found)
    return Evaluation(
        at=c.now,
        judge_again=again,
        status=status,
        knowledge=c.knowledge._replace(near=near) if near else c.knowledge,
        basis_since=c.memory.basis_since,
        ordered=c.ordered,
        stuck_groups=frozenset(key.group for key in found if key.signal == "GroupStuck" and key.group is not None),
        coverage_ratio=c.coverage_ratio,
        time_to_drain_s=drain_s,
        folded=(max(0, groups), max(0, len(summary.consumers) - top_k), max(0, folded_messages)),
        dead_letter_queue=c.name.sibling(dead_letter_queue) if dead_letter_queue else None,
        by_flow=c.basis == "messages" and status == "ok" and waiting,
        steady=status == "ok" and again.at > c.now and is_steady(c),
    )
