"""One look at a queue: what was concluded of it when it was judged, and until when that stands."""

from __future__ import annotations

from streaming.judge.again import again_at
from streaming.judge.context import Context
from streaming.judge.drain import time_to_drain_s
from streaming.judge.looks import Look
from streaming.judge.status import queue_status


def look_at(c: Context, *, found: bool) -> Look:
    """What there is to say of a queue that has just been judged. `found`: a rule found something."""
    status, drain_s, facts, top_k = queue_status(c), time_to_drain_s(c), c.facts, c.settings.top_k
    ordered = facts.ordered_facts
    groups = ordered.groups - len(ordered.oldest) if ordered is not None else len(facts.groups) - top_k + facts.folded_groups
    dead_letter_queue = c.dead_letter_queue
    waiting = facts.numbers["visible"] > 0 and not facts.dead_letter and not c.paused
    folded_messages = facts.numbers["poison"] - len(c.messages("poison"))
    return Look(
        at=c.now,
        again_at=again_at(c, status, drain_s, found=found),
        status=status,
        knowledge=c.knowledge,
        basis_since=c.memory.basis_since,
        ordered=c.ordered,
        coverage_ratio=c.coverage_ratio,
        time_to_drain_s=drain_s,
        folded=(max(0, groups), max(0, len(facts.consumers) - top_k), max(0, folded_messages)),
        dead_letter_queue=c.name.sibling(dead_letter_queue) if dead_letter_queue else None,
        by_flow=c.basis == "messages" and status == "ok" and waiting,
    )
