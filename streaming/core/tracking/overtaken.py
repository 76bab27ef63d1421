"""Drop messages of SQS FIFO queues that a later message of their group has overtaken.

SQS delivers nothing of a group behind a message that waits or is in flight. So when a later one is received, those before it are
gone, except those of the same batch. If they still seem to be there, the report of their deletion was lost, or their consumer
reports nothing. Other signs do not show that: the group goes on, and a busy queue is never counted as empty.

Positions begin again when a queue is recreated under its name, or a stand-in of SQS restarts. A message that was sent after
a receive is not before the message that was received, whatever their positions are.
"""

from __future__ import annotations

import numpy as np

from streaming.core.clock import CLOCKS_DIFFER_MS
from streaming.core.columns import Array, nonzero
from streaming.core.events.sequences import SEQUENCE_NUMBER
from streaming.core.settings import Settings
from streaming.core.state.queues import T_RECONCILED
from streaming.core.state.rows import F_RECONCILED, F_SENT_KNOWN
from streaming.core.state.state import ShardState
from streaming.core.tracking.ends import end
from streaming.core.tracking.retention import last_heard

REPORTED_BY_MS = 10_000
"""How long after a later message's receive that of an earlier one may be reported, by another consumer."""
DELAY_SLACK_MS = 60_000
"""A delayed message does not hold back its group, and by whose clock it was delayed is not known."""


def note_reached(state: ShardState, rows: Array) -> None:
    """Record, per group, the highest position that was received, and when: of messages of which events were applied.

    A lower one takes its place if its message was sent after that: positions have begun again.
    """
    live, groups = state.rows, state.groups
    if not live.has("group") or not live.has("seq_kind"):
        return
    known = (live.at("last_received", rows) > 0) & (live.at("seq_kind", rows) == SEQUENCE_NUMBER) & (live.at("group", rows) >= 0)
    rows = rows[known]
    group, hi, lo, at = (live.at(name, rows) for name in ("group", "seq_hi", "seq_lo", "last_received"))
    order = np.lexsort((at, lo, hi, group))
    rows, group, hi, lo, at = rows[order], group[order], hi[order], lo[order], at[order]
    # A clearly earlier receive of a higher position is one of before positions began again.
    higher = _is_after(hi, lo, groups.reached_hi[group], groups.reached_lo[group])
    higher &= at >= groups.reached_at[group] - CLOCKS_DIFFER_MS
    same = (hi == groups.reached_hi[group]) & (lo == groups.reached_lo[group])
    newer = higher | (same & (at > groups.reached_at[group])) | (groups.reached_at[group] == 0)
    sent = np.where((live.at("flags", rows) & F_SENT_KNOWN) != 0, live.at("sent", rows), 0)
    while True:
        # The last of each group has the highest position.
        last = nonzero(newer)
        last = last[np.diff(group[last], append=-1) != 0]
        of = group[last]
        groups.reached_hi[of], groups.reached_lo[of], groups.reached_at[of] = hi[last], lo[last], at[last]
        newer = (sent > groups.reached_at[group] + CLOCKS_DIFFER_MS) & (at > groups.reached_at[group])
        if not newer.any():
            return


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
    before &= rows.at("sent", hit) <= groups.reached_at[group] + CLOCKS_DIFFER_MS
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
