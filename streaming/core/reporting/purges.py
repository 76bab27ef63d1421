"""The purges of the last minutes that removed messages nobody had processed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from streaming.core.columns import nonzero, run_starts
from streaming.core.events.events import EXTENDED, RECEIVED
from streaming.core.reporting.listing import quiet_start
from streaming.core.reporting.report import Purge
from streaming.core.settings import Settings
from streaming.core.state.queues import NEVER
from streaming.core.state.rows import F_ENDED, F_PURGED
from streaming.core.state.state import ShardState
from streaming.core.tracking.windows import Windows


def recent_purges(state: ShardState, w: Windows, now: int, since: int, settings: Settings) -> dict[int, list[Purge]]:
    """Return, per queue (by index), the purges after `since` that removed unprocessed messages, oldest first.

    A message that was in flight counts once its window is over: until then its consumer may still acknowledge it.
    """
    if not (state.queues.column("purged_at") > since).any():
        return {}
    rows = state.rows
    # An acknowledgement reported later shows that the message was processed.
    gone = nonzero(((rows["flags"] & np.uint32(F_ENDED)) == F_PURGED) & (rows["ended"] > since))
    code = rows.at("window_code", gone)
    held = ((code == RECEIVED) | (code == EXTENDED)) & (w.window_end[gone] > now)
    gone = gone[~held]
    if not len(gone):
        return {}
    queue, at = rows.at("queue", gone), rows.at("ended", gone)
    order = np.lexsort((at, queue))
    gone, queue, at = gone[order], queue[order], at[order]
    quiet_ms = state.queues.limit("dropped_quiet_ms", settings)[queue]
    quiet_from = quiet_start(at, rows.at("ended_noticed", gone), quiet_ms)
    sent, received = rows.at("sent", gone), rows.at("last_received", gone) > 0
    first = nonzero(run_starts(queue, at))
    fields = zip(
        at[first].tolist(),
        # The purge became known with the first of its messages.
        np.minimum.reduceat(quiet_from, first).tolist(),
        np.diff(np.append(first, len(gone))).tolist(),
        np.add.reduceat(received.astype(np.int64), first).tolist(),
        np.minimum.reduceat(sent, first).tolist(),
        np.minimum.reduceat(np.where(received, sent, NEVER), first).tolist(),
        strict=True,
    )
    out: dict[int, list[Purge]] = {}
    for number, purge in zip(queue[first].tolist(), fields, strict=True):
        out.setdefault(number, []).append(Purge(*purge))
    return out


def merge_purges(a: Iterable[Purge], b: Iterable[Purge]) -> list[Purge]:
    """Combine what two shards report of one queue: every purge reaches all shards."""
    known = {purge.at: purge for purge in a}
    for purge in b:
        other = known.get(purge.at)
        if other is not None:
            purge = Purge(
                at=purge.at,
                quiet_from=min(purge.quiet_from, other.quiet_from),
                messages=purge.messages + other.messages,
                received=purge.received + other.received,
                oldest_sent_at=min(purge.oldest_sent_at, other.oldest_sent_at),
                oldest_received_sent_at=min(purge.oldest_received_sent_at, other.oldest_received_sent_at),
            )
        known[purge.at] = purge
    return sorted(known.values())
