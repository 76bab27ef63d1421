"""Run events through the core like every engine does, with any number of shards, steps and restarts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from sources.wire import decode_records
from streaming.core.events.packet import Packet, empty_packet, pack, unpack
from streaming.core.events.route import route
from streaming.core.reporting.merge import Merged, merge
from streaming.core.settings import Settings
from streaming.core.state import tombstones
from streaming.core.state.state import ShardState
from streaming.core.track import track

T0 = 1_700_000_000_000
"""Test times are milliseconds after this epoch time."""


def event(type_: str, at_ms: int, queue: str = "orders", **fields: Any) -> dict[str, Any]:
    """Build a wire event of `at_ms` after T0."""
    return {"v": 1, "type": type_, "at": T0 + at_ms, "system": "aws_sqs", "queue": queue, **fields}


def run_steps(
    steps: Sequence[tuple[int, Sequence[dict[str, Any]]]],
    settings: Settings | None = None,
    *,
    shards: int = 1,
    restart: bool = False,
    states: list[ShardState] | None = None,
    fewest_tombstones: int = tombstones.FEWEST_TOMBSTONES,
) -> list[Merged]:
    """Return the merged report of each step `(now in ms after T0, events)`.

    `restart`: every step starts from the packed state, and events and reports go through their bytes, as between processes.
    `states`: an empty list that receives the shards' final states. `fewest_tombstones`: the fewest in a segment.
    """
    settings = settings or Settings()
    states = states if states is not None else []
    states += [ShardState.empty() for _ in range(shards)]
    out = []
    with patch.object(tombstones, "FEWEST_TOMBSTONES", fewest_tombstones):
        for (now_ms, _), events in zip(steps, _decoded([events for _, events in steps]), strict=True):
            now = T0 + now_ms
            reports = []
            for i, packet in enumerate(_packets(events, shards, settings, now)):
                if restart:
                    state = ShardState.unpack(states[i].pack(ids_apart_from=1))
                    states[i], report = track(state, unpack([pack(packet)]), now, settings)
                    reports.append(type(report).from_bytes(report.to_bytes()))
                else:
                    states[i], report = track(states[i], packet, now, settings)
                    reports.append(report)
            out.append(merge(reports, settings))
    return out


def _decoded(steps: Sequence[Sequence[dict[str, Any]]]) -> Iterator[pa.Table]:
    """Yield the events of each step, decoded together: one by one they take longer than they are tracked."""
    decoded = decode_records([json.dumps(event).encode() for events in steps for event in events])
    assert not decoded.invalid, decoded.invalid
    events, start = decoded.events.take(np.argsort(decoded.record_index, kind="stable")), 0
    for step in steps:
        yield events.slice(start, len(step))
        start += len(step)


def _packets(events: pa.Table, shards: int, settings: Settings, now: int) -> list[Packet]:
    if not len(events):
        return [empty_packet() for _ in range(shards)]
    return route(events, Counter(), [], shards, settings, None if settings.now_is_event_time else now)
