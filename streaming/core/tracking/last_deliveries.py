"""End messages of which the last delivery failed, where the platform moves or deletes them at once and reports it to nobody.

Cloudflare Queues does: what a consumer gives back at its last delivery goes to the dead-letter queue or, without one, is deleted.
A consumer that does not know its queue's limit reports it as given back. It would seem to wait until its retention runs out.
(SQS moves a message at the receive that would be one too many: see `inferred_moves`.)
"""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.events.events import RELEASED
from streaming.core.settings import Settings
from streaming.core.state.queue_row import QueueRow
from streaming.core.state.queues import (
    T_DEAD_LETTERED,
    T_DROPPED,
    T_RECONCILED,
    dead_letter_queue,
    max_receive_count,
    reports_no_dead_letter_queue,
)
from streaming.core.state.rows import F_DEAD_LETTERED, F_DROPPED, F_MOVE_INFERRED, F_RECONCILED
from streaming.core.state.state import ShardState
from streaming.core.tracking.apply_deliveries import COUNTED_RECEIVES
from streaming.core.tracking.ends import end
from streaming.core.tracking.inferred_moves import add_dead_letters
from streaming.core.tracking.windows import window_ends

WAIT_MS = 60_000
"""A message is delivered again at once, or reported late, within this time."""
UNKNOWN_WAIT_MS = 240_000
"""Where the limit is not known, a message that is given back and not delivered again for so long is no longer tracked: less than
the five minutes after which a queue counts as stalled."""
LOST = "given back at its last delivery, and there is no dead-letter queue"


def end_last_deliveries(state: ShardState, now: int, settings: Settings) -> None:
    """End the messages given back at their last delivery, and those whose last window ran out.

    A message that was delivered more often than that shows that the limit is another one: it is left alone. A dead letter's
    deliveries are counted anew in the dead-letter queue, whatever is known of those before.
    """
    rows, queues = state.rows, state.queues
    last = queues.limit("last_delivery", settings)
    if not last.any():
        return
    last = np.where(last > 0, last, np.iinfo(np.int64).max)
    hit = nonzero((rows["ended"] == 0) & (rows["window_code"] > 0) & (rows["receive_count"] >= last[rows["queue"]]))
    arrived, limit = rows.at("arrived", hit) > 0, last[rows.at("queue", hit)]
    hit = hit[np.where(arrived, _was_last_seen(rows.at("seen", hit), limit), rows.at("receive_count", hit) == limit)]
    for number in np.unique(rows.at("queue", hit)).tolist():
        name = queues.names[number]
        keys = rows.key[hit[rows.at("queue", hit) == number]]
        # Adding dead letters moves rows.
        _end_in(state, state.queues[state.queues.index[name]], keys, now, settings)
    _end_given_back(state, now, settings)


def _end_given_back(state: ShardState, now: int, settings: Settings) -> None:
    """End the messages given back long ago in queues of which the limit is only assumed: it may be lower than that."""
    rows, queues = state.rows, state.queues
    assumed = (queues.limit("last_delivery", settings) > 0) & (queues.limit("max_receive_count", settings) == 0)
    if not assumed.any():
        return
    hit = nonzero((rows["ended"] == 0) & (rows["window_code"] == RELEASED) & assumed[rows["queue"]])
    hit = hit[rows.at("arrived", hit) == 0]
    over = window_ends(state, settings, hit)
    gone = over + UNKNOWN_WAIT_MS <= now
    end(state, hit[gone], over[gone], F_RECONCILED, T_RECONCILED)


def _was_last_seen(seen: Array, limit: Array) -> Array:
    """Whether the latest of the receives in `seen`, a bit for each, was the last one that `limit` allows."""
    shift = np.minimum(limit, COUNTED_RECEIVES).astype(np.uint64) - np.uint64(1)
    result: Array = (limit <= COUNTED_RECEIVES) & (seen >> shift == 1)
    return result


def _end_in(state: ShardState, record: QueueRow, keys: Array, now: int, settings: Settings) -> None:
    rows = state.rows
    at, _ = rows.find(keys)
    given_back = rows.at("window_code", at) == RELEASED
    over = window_ends(state, settings, at)
    target = dead_letter_queue(record, settings)
    is_known = max_receive_count(record, settings) is not None
    if is_known and (target is not None or reports_no_dead_letter_queue(record.attributes)):
        # A delay that was asked for at the last delivery is not waited for.
        sure = at[given_back]
        ended_at = rows.at("window_at", sure)
        if target is not None:
            end(state, sure, ended_at, F_DEAD_LETTERED | F_MOVE_INFERRED, T_DEAD_LETTERED)
        else:
            end(state, sure, ended_at, F_DROPPED, T_DROPPED)
            state.loss_reasons.update(dict.fromkeys(rows.key[sure].tolist(), LOST))
        record.last_settled_at = max(record.last_settled_at, int(ended_at.max(initial=0)))
        at, over = at[~given_back], over[~given_back]
        moved = keys[given_back]
    else:
        moved, ended_at = keys[:0], over[:0]
    # Whether it was moved, lost, or acknowledged with no report is not known.
    gone = over + WAIT_MS <= now
    end(state, at[gone], over[gone], F_RECONCILED, T_RECONCILED)
    if target is not None and len(moved):
        add_dead_letters(state, record, moved, ended_at, settings)
