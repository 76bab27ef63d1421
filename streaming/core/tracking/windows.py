"""The state of every message at a given time: its visibility window ends with no event."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.events.events import EXTENDED, RECEIVED, RELEASED
from streaming.core.settings import Settings
from streaming.core.state.queues import NEVER
from streaming.core.state.rows import F_SENT, F_WINDOW_DEFAULT
from streaming.core.state.state import ShardState


@dataclass(slots=True)
class Windows:
    """Per row of the state, at `now`: whether it is unsettled, and whether it is visible, in flight or delayed."""

    live: Array
    in_flight: Array
    delayed: Array
    visible: Array
    window_end: Array
    """When the window of the latest receive or extension ends; 0 where there is none."""
    visible_since: Array
    """For visible messages: since when a consumer could have received them."""
    delay_end: Array
    """Until when a message that was sent is delayed; 0 where no delay is known."""
    returning: Array
    """Given back but not visible yet: one of the delayed. It was received, so on an ordered queue its group waits for it."""


def windows(state: ShardState, now: int, settings: Settings) -> Windows:
    """Return the state of every message at `now` (epoch milliseconds). A visibility window ends by time, with no event."""
    rows = state.rows
    live = rows["ended"] == 0
    end = window_ends(state, settings)
    code = rows["window_code"]
    in_flight = is_in_flight(live, code, end, now)
    delay = _delay_ends(state, settings)
    waits = live & ~in_flight
    returning = waits & (code == RELEASED) & (now < end)
    delayed = returning | (waits & (code == 0) & (now < delay))
    visible = waits & ~delayed
    since = _visible_since(rows["sent"], code, delay, end)
    return Windows(
        live=live,
        in_flight=in_flight,
        delayed=delayed,
        visible=visible,
        window_end=np.where(code == 0, 0, end),
        visible_since=since,
        delay_end=delay,
        returning=returning,
    )


def visible_since(state: ShardState, settings: Settings, chosen: Array) -> Array:
    """Return since when a consumer could have received some rows' messages, or from when on it can."""
    sent, code = (state.rows.at(name, chosen) for name in ("sent", "window_code"))
    return _visible_since(sent, code, _delay_ends(state, settings, chosen), window_ends(state, settings, chosen))


def _visible_since(sent: Array, code: Array, delay: Array, end: Array) -> Array:
    since: Array = np.maximum(sent, np.where(code == 0, delay, end))
    return since


def _delay_ends(state: ShardState, settings: Settings, chosen: Array | None = None) -> Array:
    """Return until when messages that were sent are delayed: as their event says, else by the delay of their queue.

    An ordered queue of SQS has no other delay than its own.
    """
    rows = state.rows

    def values(name: str) -> Array:
        return rows[name] if chosen is None else rows.at(name, chosen)

    end = values("delay")
    of_queue = state.queues.limit("delay_ms", settings)
    if not of_queue.any():
        return end
    by_queue = of_queue[values("queue")] * ((end == 0) & ((values("flags") & np.uint32(F_SENT)) != 0))
    ends: Array = np.where(by_queue > 0, values("sent") + by_queue, end)
    return ends


def is_in_flight(live: Array, code: Array, end: Array, now: int) -> Array:
    """Return which messages are in flight, from whether they are unsettled, the codes of their windows, and when these end."""
    in_flight: Array = live & ((code == RECEIVED) | (code == EXTENDED)) & (now < end)
    return in_flight


def window_ends(state: ShardState, settings: Settings, chosen: Array | None = None) -> Array:
    """Return when the latest windows end, even where no event reports it.

    `chosen`: row numbers; None for all rows.
    """
    rows = state.rows

    def values(name: str) -> Array:
        return rows[name] if chosen is None else rows.at(name, chosen)

    end = values("window_end")
    by_default = nonzero(values("flags") & F_WINDOW_DEFAULT)
    if len(by_default):
        end = end.copy()
        end[by_default] = default_ends(state, values("queue")[by_default], values("window_at")[by_default], settings)
    return end


def default_ends(state: ShardState, queue: Array, at: Array, settings: Settings) -> Array:
    """Return when windows end that opened `at` these times: after the visibility timeout that their queue had then."""
    window = state.queues.limit("visibility_ms", settings)[queue]
    changed_at = state.queues.timeouts_changed_at()
    latest = changed_at.max(initial=0)
    if latest:
        early = nonzero(at < latest)
        early = early[at[early] < changed_at[queue[early]]]
        window[early] = state.queues.column("timeout_before_ms")[queue[early]]
    ends: Array = np.minimum(at + window, NEVER)
    return ends
