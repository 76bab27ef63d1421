"""How long the work of deliveries takes that outlast their visibility window: from the receive by the consumer that did it.

Such a message was received again meanwhile, so the time since its last receive is only a part of that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.events.events import RECEIVED
from streaming.core.settings import Settings
from streaming.core.state.state import ShardState

MOST_TIMED = 1_000
"""Of so many deliveries in a step, the others take about as long."""


def note_late_work(state: ShardState, rows: Array, at: Array, consumer: Array, settings: Settings) -> None:
    """Note how long the work on these messages took that ended `at` these times, too late; -1: by an unknown consumer."""
    rows = rows[:MOST_TIMED]
    if not len(rows):
        return
    live, windows = state.rows, state.queues.limit("visibility_ms", settings)
    columns = (live.at("queue", rows), live.at("last_received", rows), live.at("consumer", rows), at, consumer)
    each = zip(rows.tolist(), *(column[: len(rows)].tolist() for column in columns), strict=True)
    for row, queue, received, holder, ended, who in each:
        receives = _receives_by(state, row, who)
        if not receives and (who in (-1, holder) or holder < 0):
            receives = [received] if received else []
        before = [one for one in receives if one <= ended]
        # The window of that delivery is over: one of the same consumer that still goes on is another one.
        began = [one for one in before if one + int(windows[queue]) <= ended] or before
        if began:
            state.late_work_ms[queue] = max(state.late_work_ms.get(queue, 0), ended - began[-1])


def note_refused_work(state: ShardState, keys: Array, at: Array, consumers: Sequence[str], settings: Settings) -> None:
    """Note the same of deliveries whose settlement was refused: `keys` of messages, and the names of consumers."""
    order = np.argsort(keys[:MOST_TIMED], kind="stable")
    rows, found = state.rows.find(keys[order])
    order, rows = order[found], rows[found]
    numbers = [_number_of(state, row, consumers[i]) for row, i in zip(rows.tolist(), order.tolist(), strict=True)]
    note_late_work(state, rows, at[order], np.array(numbers, dtype=np.int64), settings)


def _timeline(state: ShardState, row: int) -> slice:
    key, keys = state.rows.key[row], state.attempts["key"]
    return slice(int(keys.searchsorted(key, "left")), int(keys.searchsorted(key, "right")))


def _receives_by(state: ShardState, row: int, consumer: int) -> list[int]:
    """Return when a message was received, as far as its timeline is kept; by one consumer if that is known."""
    of = _timeline(state, row)
    chosen = state.attempts["code"][of] == RECEIVED
    if consumer >= 0:
        chosen &= state.attempts["consumer"][of] == consumer
    times: list[int] = state.attempts["at"][of][nonzero(chosen)].tolist()
    return times


def _number_of(state: ShardState, row: int, name: str) -> int:
    """Return the number of a consumer that has received a message; -1 where it has no name or is not among them."""
    numbers = np.append(state.attempts["consumer"][_timeline(state, row)], state.rows.at("consumer", np.array([row])))
    known = np.unique(numbers[numbers >= 0])
    return next((number for number, word in zip(known.tolist(), state.consumers.words(known), strict=True) if word == name), -1)
