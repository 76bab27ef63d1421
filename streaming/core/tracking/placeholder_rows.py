"""Dead letters inferred in an ordered queue, whose shard is not that of the source: their placeholder rows.

Such a row is in the shard of the source queue, which inferred the move. It is a message of the dead-letter queue like any other
(counted, listed, expired by time, reconciled by counts) until an event shows the message itself: its own row is then in the
shard of the dead-letter queue, and this one goes. The key of a placeholder differs from that of the message's own row, so that it
makes no difference whether the two shards are the same.
"""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.events.events import DEAD_LETTERED, REDRIVEN_IN
from streaming.core.state.queues import T_ARRIVED
from streaming.core.state.rows import F_PLACEHOLDER, F_REDRIVEN, keys_of
from streaming.core.state.state import ShardState
from streaming.core.tracking.ends import end
from streaming.core.tracking.segments import count_rows


def replace_placeholders(state: ShardState, columns: dict[str, Array], late: Array) -> None:
    """Remove the placeholders of messages whose move is reported, and end those of messages that were moved back.

    `columns` are the step's events; their `peer` is the dead-letter queue. The arrival is counted once more with the message's
    own row, so it is uncounted here. Positions of rows become invalid.
    """
    if not state.rows.has("arrived"):
        return
    code = columns["code"]
    shows = nonzero(((code == DEAD_LETTERED) | (code == REDRIVEN_IN)) & (columns["peer"] >= 0) & ~late)
    if not len(shows):
        return
    hashes = state.queues.hashes[columns["peer"][shows]]
    keys = keys_of(columns["hi"][shows], columns["lo"][shows], hashes, np.uint32(F_PLACEHOLDER))
    at, found = state.rows.find(keys)
    moved = code[shows] == DEAD_LETTERED
    replaced = np.unique(at[found & moved])
    back = np.setdiff1d(at[found & ~moved], replaced)
    back = back[state.rows.at("ended", back) == 0]
    order = np.argsort(at[found & ~moved], kind="stable")
    when = columns["at"][shows][found & ~moved][order]
    end(state, back, when[np.searchsorted(at[found & ~moved][order], back)], F_REDRIVEN)
    count_rows(state, replaced, T_ARRIVED, sign=-1)
    if len(replaced):
        keep = np.ones(len(state.rows), dtype=bool)
        keep[replaced] = False
        state.rows.keep(keep)
