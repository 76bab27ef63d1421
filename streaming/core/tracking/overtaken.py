"""Drop messages of SQS FIFO queues that a later message of their group has overtaken.

SQS delivers nothing of a group behind a message that waits or is in flight. So when a later one is received, those before it are
gone, except those of the same batch. If they still seem to be there, the report of their deletion was lost, or their consumer
reports nothing. Other signs do not show that: the group goes on, and a busy queue is never counted as empty.
"""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.events.sequences import SEQUENCE_NUMBER
from streaming.core.settings import Settings
from streaming.core.state.queues import T_RECONCILED
from streaming.core.state.rows import F_RECONCILED
from streaming.core.state.state import ShardState
from streaming.core.tracking.ends import end
from streaming.core.tracking.retention import last_heard

REPORTED_BY_MS = 10_000
"""How long after a later message's receive that of an earlier one may be reported, by another consumer."""
DELAY_SLACK_MS = 60_000
"""A delayed message does not hold back its group, and by whose clock it was delayed is not known."""


def note_reached(state: ShardState, rows: Array) -> None:
    """Record, per group, the highest position that was received, and when: of messages of which events were applied."""
    live, groups = state.rows, state.groups
    if not live.has("group") or not live.has("seq_kind"):
        return
    known = (live.at("last_received", rows) > 0) & (live.at("seq_kind", rows) == SEQUENCE_NUMBER) & (live.at("group", rows) >= 0)
    rows = rows[known]
    group, hi, lo, at = (live.at(name, rows) for name in ("group", "seq_hi", "seq_lo", "last_received"))
    order = np.lexsort((at, lo, hi, group))
    last = order[np.append(group[order][1:] != group[order][:-1], True)] if len(rows) else order
    group, hi, lo, at = group[last], hi[last], lo[last], at[last]
    higher = _is_after(hi, lo, groups.reached_hi[group], groups.reached_lo[group])
    same = (hi == groups.reached_hi[group]) & (lo == groups.reached_lo[group])
    newer = higher | (same & (at > groups.reached_at[group])) | (groups.reached_at[group] == 0)
    group = group[newer]
    groups.reached_hi[group], groups.reached_lo[group], groups.reached_at[group] = hi[newer], lo[newer], at[newer]


def drop_overtaken(state: ShardState, now: int, settings: Settings) -> None:
    """Drop messages behind which one of their group was received.

    One that was never received, `REPORTED_BY_MS` after that became known; until then it is marked, and not taken for the head of
    its group. Another if it was last heard of `reconcile_after_s` before: the later one may be of the same batch.
    """
    rows, groups, queues = state.rows, state.groups, state.queues
    if not groups.reached_at.any() or not rows.has("seq_kind"):
        return
    # Whether dead letters keep the positions of their source is not known.
    concerned = queues.keeps_order(settings) & (queues.limit("blocks_groups", settings) > 0) & ~queues.column("dead_letter")
    hit = nonzero(concerned[rows["queue"]] & (rows["ended"] == 0) & (rows["group"] >= 0))
    group = rows.at("group", hit)
    before = _is_after(groups.reached_hi[group], groups.reached_lo[group], rows.at("seq_hi", hit), rows.at("seq_lo", hit))
    before &= rows.at("seq_kind", hit) == SEQUENCE_NUMBER
    hit, group = hit[before], group[before]
    reached_at, delay, heard = groups.reached_at[group], rows.at("delay", hit), last_heard(state, hit)
    after_ms = queues.limit("reconcile_after_ms", settings)[rows.at("queue", hit)]
    never = (rows.at("last_received", hit) == 0) & (rows.at("window_at", hit) == 0)
    never &= (delay == 0) | (delay <= reached_at - DELAY_SLACK_MS)
    since = rows.at("overtaken_since", hit)
    since = np.where(never, np.where(since > 0, since, now), 0)
    rows.put("overtaken_since", hit, since)
    gone = (np.maximum(heard, delay) <= reached_at - after_ms) | (never & (now - since >= REPORTED_BY_MS))
    # The receive of one of the same batch, should it be reported yet, is after that.
    end(state, hit[gone], reached_at[gone] - 1, F_RECONCILED, T_RECONCILED)


def _is_after(hi: Array, lo: Array, other_hi: Array, other_lo: Array) -> Array:
    result: Array = (hi > other_hi) | ((hi == other_hi) & (lo > other_lo))
    return result
