"""One step of one shard: `(state, events, now) -> (state, report)`. No clock, network or Spark; the state is consumed."""

from __future__ import annotations

from streaming.core.clock import LARGEST_STEP_BACK_MS
from streaming.core.events.packet import Packet
from streaming.core.maintenance.compact import compact
from streaming.core.maintenance.rewind import rewind
from streaming.core.reporting.aggregate import report
from streaming.core.reporting.shard_report import ShardReport
from streaming.core.settings import Settings
from streaming.core.state.state import ShardState
from streaming.core.tracking.admission import admit
from streaming.core.tracking.apply import apply_events
from streaming.core.tracking.queue_events import apply_queue_events
from streaming.core.tracking.settle import settle_by_time

SKEW_KEPT_MS = 3_600_000
"""At every multiple of this the recorded clock skew of senders is cleared, so that a corrected clock is no longer reported."""


def track(state: ShardState, packet: Packet, now: int, settings: Settings) -> tuple[ShardState, ShardReport]:
    """Apply events, advance time to `now` (epoch milliseconds) and report the shard's state.

    `state` is consumed: continue with the one returned. An earlier `now` counts as the latest one seen, unless it is so much
    earlier that the latest must have been wrong: see `clock`.
    """
    if now <= state.now - LARGEST_STEP_BACK_MS:
        rewind(state, now, settings)
    now, before = max(now, state.now), state.now
    if now // SKEW_KEPT_MS > before // SKEW_KEPT_MS:
        state.queues.column("skew_ms")[:] = 0
    events, refused = admit(state, packet.events, settings)
    for name in sorted(events.unordered_queues):
        state.queues[state.queue_number(name)].deny_order()
    apply_queue_events(state, events, settings)
    left_out = apply_events(state, events, settings)
    refused += left_out.events
    for name, skew_ms in events.skews.items():
        if name in state.queues.index:
            record = state.queues[state.queues.index[name]]
            record.skew_ms = max(record.skew_ms, skew_ms)
    invalid = packet.invalid + refused
    state.invalid_total.update(invalid)
    state.events_total["invalid"] += sum(invalid.values())
    state.now = now
    settle_by_time(state, events, now, settings)
    # Not earlier: a step may be longer than the lateness, and what ended during it must not count as forgotten before this.
    state.high_water = max(state.high_water, _newest(packet, now, settings))
    shard_report = report(state, now, before, [*packet.quarantine, *left_out.examples], settings)
    state.late_work_ms.clear()
    compact(state, settings)
    return state, shard_report


def _newest(packet: Packet, now: int, settings: Settings) -> int:
    """Return how far event time has advanced. A sender whose clock is ahead must not make everyone else's events late."""
    if settings.now_is_event_time:
        return now
    of_messages, of_queues = (times[times <= now] for times in (packet.events.columns["at"], packet.events.about_queues["at"]))
    # Counts come straight from a collector. Events of messages may be far behind them (spooled, or in a slow topic), and must not
    # all be late then. In a step without any, counts do advance time: where nothing else is reported, old state must go too.
    return int(of_messages.max(initial=0)) or int(of_queues.max(initial=0))
