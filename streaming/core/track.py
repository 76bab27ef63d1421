"""One step of one shard: `(state, events, now) -> (state, report)`. Pure: no clock, no network, no Spark."""

from __future__ import annotations

from streaming.core.clock import LARGEST_STEP_BACK_MS
from streaming.core.events.packet import Packet
from streaming.core.reporting.aggregate import report
from streaming.core.reporting.shard_report import ShardReport
from streaming.core.settings import Settings
from streaming.core.state.rewind import rewind
from streaming.core.state.state import ShardState
from streaming.core.state.sweep import sweep
from streaming.core.tracking.apply import apply_events
from streaming.core.tracking.facts import apply_facts
from streaming.core.tracking.settle import settle_by_time


def track(state: ShardState, packet: Packet, now: int, settings: Settings) -> tuple[ShardState, ShardReport]:
    """Take in what happened, let time pass until `now` (epoch milliseconds), say how things stand.

    `state` is used up: go on with the one returned. An earlier `now` counts as the latest seen, unless it is so much
    earlier that the latest was wrong: see `clock`.
    """
    if now <= state.now - LARGEST_STEP_BACK_MS:
        rewind(state, now, settings)
    now, before = max(now, state.now), state.now
    apply_facts(state, packet.events, settings)
    apply_events(state, packet.events, settings)
    for name, skew_ms in packet.events.skews.items():
        if name in state.queues.index:
            record = state.queues[state.queues.index[name]]
            record.skew_ms = max(record.skew_ms, skew_ms)
    state.invalid_total.update(packet.invalid)
    state.events_total["invalid"] += sum(packet.invalid.values())
    state.high_water = max(state.high_water, _newest(packet, now, settings))
    state.now = now
    settle_by_time(state, now, settings)
    said = report(state, now, before, packet.quarantine, settings)
    sweep(state, settings)
    return state, said


def _newest(packet: Packet, now: int, settings: Settings) -> int:
    """How far event time has got. A sender whose clock runs ahead must not make everybody else's events late."""
    if settings.now_is_event_time:
        return now
    times = packet.events.columns["at"]
    latest = int(times[times <= now].max()) if len(times) and (times <= now).any() else 0
    return latest or max((fact.at for fact in packet.events.facts if fact.at <= now), default=0)
