"""Run events through the core like every engine does, with any number of shards, steps and restarts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from sources.wire import decode_records
from streaming.core.events.packet import pack, unpack
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
    """Return the merged report of each step `(now in ms after T0, events)`. `restart`: every step starts from the packed state.

    `states`: an empty list that receives the shards' final states. `fewest_tombstones`: the fewest in a segment.
    """
    settings = settings or Settings()
    states = states if states is not None else []
    states += [ShardState.empty() for _ in range(shards)]
    out = []
    for now_ms, events in steps:
        decoded = decode_records([json.dumps(e).encode() for e in events])
        assert not decoded.invalid, decoded.invalid
        packets = route(decoded.events, Counter(), [], shards, settings, None if settings.now_is_event_time else T0 + now_ms)
        reports = []
        for i, packet in enumerate(packets):
            if restart:
                states[i] = ShardState.unpack(states[i].pack(ids_apart_from=1))
            with patch.object(tombstones, "FEWEST_TOMBSTONES", fewest_tombstones):
                states[i], report = track(states[i], unpack([pack(packet)]), T0 + now_ms, settings)
            reports.append(type(report).from_bytes(report.to_bytes()))
        out.append(merge(reports, settings))
    return out
