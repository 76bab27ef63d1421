"""Timelines of messages delivered more than once: every receive, extension and release, in order.

A message received once needs no timeline: its row holds everything. From the second receive on, the timeline is shown to
people, determines when CloudWatch's age of the message restarts, and identifies redeliveries from failed batches.
"""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array, highest_bit, nonzero, run_starts
from streaming.core.events.events import EXTENDED, RECEIVED, RELEASED
from streaming.core.settings import Settings
from streaming.core.state.queues import NEVER, T_RETRIED
from streaming.core.state.rows import F_TIMELINE, F_TRIMMED, F_WINDOW_DEFAULT
from streaming.core.state.state import ATTEMPT_COLUMNS, ShardState
from streaming.core.state.tombstones import forgotten
from streaming.core.tracking.holds import go_on, window_ends_of
from streaming.core.tracking.windows import default_ends

RESTART_EVERY = 3
"""CloudWatch's age of a message on a standard queue restarts at the end of every third receive (measured, 2020)."""


def record(
    state: ShardState,
    columns: dict[str, Array],
    starts: Array,
    rows: Array,
    accepted: Array,
    settings: Settings,
) -> None:
    """Add this step's accepted receives, extensions and releases to their timelines.

    `columns` are events sorted by message and time, `starts` the start of each message's events, `rows` the row of each message.
    Must be called before the rows' registers change, while a message's first receive can still be copied from its row.
    """
    code = columns["code"]
    moves = accepted & ((code == RECEIVED) | (code == EXTENDED) | (code == RELEASED))
    if not moves.any():
        return
    live = state.rows
    n = np.add.reduceat(moves.astype(np.int64), starts)
    flags = live.at("flags", rows)
    has_window = live.at("window_at", rows) > 0
    # A third receive restarts CloudWatch's age even when it is the first one seen.
    counted = np.maximum.reduceat(np.where(moves, columns["receive_count"], 0), starts) >= RESTART_EVERY
    timeline = (flags & F_TIMELINE) != 0
    # Of an extension or a release, a row does not keep the count.
    counted |= np.logical_or.reduceat(moves & (code != RECEIVED) & (columns["receive_count"] > 0), starts)
    wanted = (n > 0) & (timeline | has_window | (n > 1) | counted)
    if not wanted.any():
        return
    spilled = nonzero(wanted & ~timeline & has_window)
    lengths = np.diff(np.append(starts, len(code)))
    events = nonzero(moves & np.repeat(wanted, lengths))
    source = rows[spilled]
    by_default = (live.at("flags", source) & F_WINDOW_DEFAULT) != 0
    added = {
        "key": np.concatenate([live.key[source], columns["key"][events]]),
        "at": np.concatenate([live.at("window_at", source), columns["at"][events]]),
        "code": np.concatenate([live.at("window_code", source), code[events]]),
        "receive_count": np.concatenate([live.at("receive_count", source), columns["receive_count"][events]]),
        "end": np.concatenate([np.where(by_default, 0, live.at("window_end", source)), columns["end"][events]]),
        "consumer": np.concatenate([live.at("consumer", source), columns["consumer"][events]]),
        "batch": np.concatenate([live.at("batch", source), columns["batch"][events]]),
    }
    # The row's count already includes this step's receives; the copied receive has the count before them.
    before = _count_before(state, columns, starts, moves, spilled, source)
    added["receive_count"][: len(spilled)] = np.where(added["code"][: len(spilled)] == RECEIVED, before, 0)
    # The consumer and the batch belong to the receive: a row does not record who extended or released.
    for name, nothing in (("consumer", -1), ("batch", 0)):
        added[name] = np.where(added["code"] == RECEIVED, added[name], nothing)
    merged = {name: np.concatenate([state.attempts[name], added[name].astype(dtype)]) for name, dtype in ATTEMPT_COLUMNS.items()}
    order = merged_order(merged, len(state.attempts["key"]))
    state.attempts = {name: values[order] for name, values in merged.items()}
    live.put("flags", rows[wanted], flags[wanted] | np.uint32(F_TIMELINE))
    new = np.zeros(len(order), dtype=bool)
    new[len(order) - len(events) :] = True
    refold(state, live.key[rows[wanted]], settings, new=new[order])


def merged_order(attempts: dict[str, Array], known: int) -> Array:
    """Return the order of `attempts` by message, time and kind, of which the first `known` are in that order already.

    Only the messages with others among the rest are sorted. There may be hundreds of thousands of attempts, and a message that
    ends and is delivered again hundreds of times in a step adds to them as often.
    """
    key, at, code = attempts["key"], attempts["at"], attempts["code"]
    if known < len(key) - known:
        return np.lexsort((code, at, key))
    keys = np.unique(key[known:])
    left, right = (np.searchsorted(key[:known], keys, side=side) for side in ("left", "right"))
    lengths = right - left
    before = np.cumsum(lengths) - lengths
    theirs = np.repeat(left - before, lengths) + np.arange(int(lengths.sum()))
    some = np.concatenate([theirs, np.arange(known, len(key))])
    some = some[np.lexsort((code[some], at[some], key[some]))]
    others = np.delete(np.arange(known), theirs)
    order: Array = np.insert(others, (left - before)[np.searchsorted(keys, key[some])], some)
    return order


def _count_before(
    state: ShardState, columns: dict[str, Array], starts: Array, moves: Array, spilled: Array, source: Array
) -> Array:
    seen = state.rows.at("seen", source)
    counts = columns["receive_count"]
    numbered = moves & (columns["code"] == RECEIVED) & (counts > 0) & (counts <= 64)
    bits = np.where(numbered, np.uint64(1) << np.maximum(counts - 1, 0).astype(np.uint64), np.uint64(0))
    now = np.bitwise_or.reduceat(bits, starts)[spilled]
    return highest_bit(seen & ~now)


def refold(state: ShardState, keys: Array, settings: Settings, *, new: Array | None = None) -> None:
    """Recompute, for the messages of `keys`, when CloudWatch's age restarts; trim timelines that grew too long.

    `new` marks this step's attempts: redeliveries from failed batches among them are counted.
    """
    table = state.attempts
    keys = np.sort(keys)
    left = np.searchsorted(table["key"], keys, side="left")
    right = np.searchsorted(table["key"], keys, side="right")
    lengths = right - left
    has = lengths > 0
    keys, left, lengths = keys[has], left[has], lengths[has]
    if not len(keys):
        return
    starts = np.append(0, np.cumsum(lengths)[:-1])
    segment = np.repeat(np.arange(len(keys)), lengths)
    at_row = np.repeat(left - starts, lengths) + np.arange(int(lengths.sum()))
    rows, found = state.rows.find(keys)
    assert found.all()
    part = {name: values[at_row] for name, values in table.items()}
    if new is not None and state.failed_batches:
        _count_retried(state, part, starts, segment, new[at_row], rows)
    last, before_last = _restarts(state, part, starts, segment, rows, settings)
    live = state.rows
    dropped = dropped_receives(state, rows, np.bincount(segment[part["code"] == RECEIVED], minlength=len(rows))) > 0
    if dropped.any():
        old, older = live.at("restart", rows), live.at("restart_before", rows)
        none, one = dropped & (last == 0), dropped & (last > 0) & (before_last == 0)
        last, before_last = np.where(none, old, last), np.where(none, older, np.where(one, old, before_last))
    live.put("restart", rows, last)
    live.put("restart_before", rows, before_last)
    _trim(state, at_row, lengths, starts, rows, settings)


def _previous_receive(is_receive: Array, starts: Array, segment: Array) -> Array:
    """Return, for each attempt, the position of the message's latest receive before it, -1 for none."""
    position = np.where(is_receive, np.arange(len(is_receive)), -1)
    latest = np.maximum.accumulate(position)
    before = np.append(-1, latest[:-1])
    result: Array = np.where(before >= starts[segment], before, -1)
    return result


def _restarts(
    state: ShardState,
    part: dict[str, Array],
    starts: Array,
    segment: Array,
    rows: Array,
    settings: Settings,
) -> tuple[Array, Array]:
    """Return, per message, the last two times at which CloudWatch's age restarts (0: never; may be in the future)."""
    code, at = part["code"], part["at"]
    receives = nonzero(code == RECEIVED)
    n_messages = len(starts)
    nothing = np.zeros(n_messages, dtype=np.int64)
    if not len(receives):
        return nothing, nothing.copy()
    segments = segment[receives]
    same_next = np.append(segments[1:] == segments[:-1], False)
    next_at = np.where(same_next, np.append(at[receives][1:], 0), NEVER)
    bounds = np.append(starts[1:], len(code))
    last_op = np.where(same_next, np.append(receives[1:], 0), bounds[segments]) - 1
    by_default = default_ends(state, state.rows.at("queue", rows[segments]), at[last_op], settings)
    end = np.where(part["end"][last_op] > 0, part["end"][last_op], by_default)
    over = np.minimum(np.where(code[last_op] == RELEASED, at[last_op], end), next_at)
    # Receives without a count are numbered from the first one seen, whose attempt may have been dropped since.
    first_of_message = run_starts(segments)
    index = np.arange(len(receives))
    ordinal = index - np.maximum.accumulate(np.where(first_of_message, index, 0)) + 1
    ordinal += dropped_receives(state, rows, np.bincount(segments, minlength=n_messages))[segments]
    count = np.where(part["receive_count"][receives] > 0, part["receive_count"][receives], ordinal)
    count_before = np.where(first_of_message, 0, np.append(0, count[:-1]))
    # A third receive that was not seen ended no later than the next one.
    missed = np.where((count - 1) // RESTART_EVERY > count_before // RESTART_EVERY, at[receives], 0)
    own = np.where(count % RESTART_EVERY == 0, over, 0)
    times = np.stack([missed, own], axis=1).reshape(-1)
    of_message = np.repeat(segments, 2)
    known = nonzero(times > 0)
    times, of_message = times[known], of_message[known]
    last, before_last = nothing, nothing.copy()
    if len(times):
        is_last = np.append(of_message[1:] != of_message[:-1], True)
        last[of_message[is_last]] = times[is_last]
        is_before = np.append(is_last[1:], False) & ~is_last
        before_last[of_message[is_before]] = times[is_before]
    return last, before_last


def dropped_receives(state: ShardState, rows: Array, kept: Array) -> Array:
    """Return, per message, how many of its receives are no longer among its `kept` attempts."""
    live = state.rows
    seen = np.bitwise_count(live.at("seen", rows)).astype(np.int64) + live.at("seen_uncounted", rows)
    trimmed = (live.at("flags", rows) & F_TRIMMED) != 0
    result: Array = np.where(trimmed, np.maximum(seen - kept, 0), 0)
    return result


def _count_retried(state: ShardState, part: dict[str, Array], starts: Array, segment: Array, new: Array, rows: Array) -> None:
    """Count redeliveries from failed batches: those there are now, minus those there were without the `new` attempts.

    A late receive may fall between two others and change what the second was a redelivery of.
    """
    is_receive = part["code"] == RECEIVED
    # There may be many more failed batches than attempts here.
    out_of_failed = np.array([*(batch in state.failed_batches for batch in part["batch"].tolist()), False])
    queue = state.rows.at("queue", rows)[segment]
    for mask, sign in ((is_receive, 1), (is_receive & ~new, -1)):
        hit = mask & out_of_failed[_previous_receive(mask, starts, segment)]
        _add_retried(state, queue[hit], sign)


def count_retried_of(state: ShardState, failed: set[int], settings: Settings) -> None:
    """Count redeliveries from batches whose failure became known only now: they may have arrived before the batch's outcome.

    Those of forgotten messages are not counted, because only some of their rows are still there.
    """
    table = state.attempts
    receives = nonzero(table["code"] == RECEIVED)
    key, batch = table["key"][receives], table["batch"][receives]
    again = np.isin(batch[:-1], np.array(sorted(failed), dtype=np.uint64)) & (key[1:] == key[:-1])
    rows, found = state.rows.find(key[:-1][again])
    rows = rows[found]
    _add_retried(state, state.rows.at("queue", rows[~forgotten(state, state.rows.at("ended", rows), settings)]), 1)


def _add_retried(state: ShardState, queue: Array, sign: int) -> None:
    state.queues.count(queue, T_RETRIED, sign)


def _trim(state: ShardState, at_row: Array, lengths: Array, starts: Array, rows: Array, settings: Settings) -> None:
    excess = lengths - settings.attempts_per_message
    long = nonzero(excess > 0)
    if not len(long):
        return
    _keep_first_received(state, at_row, starts[long], lengths[long], rows[long])
    table, live = state.attempts, state.rows
    code, end = table["code"], table["end"].copy()
    keep = np.ones(len(code), dtype=bool)
    received, queue = live.at("last_received", rows[long]) > 0, live.at("queue", rows[long])
    for i, was_received, number, n in zip(long.tolist(), received.tolist(), queue, excess[long].tolist(), strict=True):
        span = at_row[starts[i] : starts[i] + lengths[i]]
        if was_received or (code[span] == RECEIVED).any():
            dropped = _in_order_of_dropping(_between(code[span]))[:n]
        else:
            of_queue = np.full(len(span), number)
            goes_on = go_on(state, span, of_queue, settings)
            dropped = _in_order_of_dropping(goes_on & np.append(goes_on[1:], False))[:n]
            _prolong(end, span, dropped, window_ends_of(state, span, of_queue, settings))
        keep[span[dropped]] = False
    state.attempts = {name: values[keep] for name, values in (table | {"end": end}).items()}
    flags = live.at("flags", rows[long])
    live.put("flags", rows[long], flags | np.uint32(F_TRIMMED))


def _between(code: Array) -> Array:
    """Return which extensions and releases are not the last of their delivery.

    They determine neither whose it was nor when it ended.
    """
    result: Array = (code != RECEIVED) & np.append(code[1:] != RECEIVED, False)
    return result


def _in_order_of_dropping(needless: Array) -> Array:
    """Return a message's attempts in the order in which they are dropped: first those that are `needless`, then the oldest."""
    return np.concatenate([nonzero(needless), nonzero(~needless)])


def _prolong(end: Array, span: Array, dropped: Array, window_ends: Array) -> None:
    """Let the last extension kept before each that is `dropped` last until the window of that one ends (`window_ends`).

    Where no receive is reported, only an unbroken row of extensions shows since when their message is held.
    """
    kept = np.arange(len(span))
    kept[dropped] = -1
    before = np.maximum.accumulate(kept)
    dropped = np.sort(dropped)
    dropped = dropped[before[dropped] >= 0]
    end[span[before[dropped]]] = window_ends[dropped]


def _keep_first_received(state: ShardState, at_row: Array, starts: Array, lengths: Array, rows: Array) -> None:
    """Keep in the rows when these messages were first received: the timelines no longer tell once they are trimmed."""
    code, at, live = state.attempts["code"], state.attempts["at"], state.rows
    spans = [at_row[start : start + length] for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)]
    seen = np.array([at[span[code[span] == RECEIVED]].min(initial=NEVER) for span in spans], dtype=np.int64)
    known = live.at("first_received", rows)
    # Of a dead letter it may be known of the queue that it comes from.
    here = (known > 0) & (known >= live.at("arrived", rows))
    live.put("first_received", rows, np.where(seen < NEVER, np.where(here, np.minimum(known, seen), seen), known))
