"""One look at a queue: the result of judging it, and how long that remains valid."""

from __future__ import annotations

from dataclasses import replace

from streaming.judge.again import again_at, is_steady
from streaming.judge.context import Context
from streaming.judge.drain import time_to_drain_s
from streaming.judge.looks import Look
from streaming.judge.status import queue_status


def look_at(c: Context, *, found: bool) -> Look:
    """Return the result for a queue that has just been judged. `found`: a rule found something."""
    status, drain_s, summary, top_k = queue_status(c), time_to_drain_s(c), c.summary, c.settings.top_k
    ordered = summary.ordered_facts
    groups = ordered.groups - len(ordered.oldest) if ordered is not None else len(summary.groups) - top_k + summary.folded_groups
    dead_letter_queue = c.dead_letter_queue
    waiting = summary.numbers["visible"] > 0 and not summary.dead_letter and not c.paused
    folded_messages = summary.numbers["poison"] - len(c.messages("poison"))
    again = again_at(c, status, drain_s, found=found)
    return Look(
        at=c.now,
        again_at=again,
        status=status,
        knowledge=replace(c.knowledge, near=c.near) if c.near else c.knowledge,
        basis_since=c.memory.basis_since,
        ordered=c.ordered,
        coverage_ratio=c.coverage_ratio,
        time_to_drain_s=drain_s,
        folded=(max(0, groups), max(0, len(summary.consumers) - top_k), max(0, folded_messages)),
        dead_letter_queue=c.name.sibling(dead_letter_queue) if dead_letter_queue else None,
        by_flow=c.basis == "messages" and status == "ok" and waiting,
        steady=status == "ok" and again > c.now and is_steady(c),
    )
