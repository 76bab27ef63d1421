"""Merged segments of ended messages go soon after the last message in them is older than the lateness."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from sources.wire import decode_records
from streaming.core.events.packet import Packet, pack, unpack
from streaming.core.events.route import route
from streaming.core.settings import Settings
from streaming.core.state import tombstones
from streaming.core.state.state import ShardState
from streaming.core.track import track
from tests.core.driving import T0, event

STEP_S, PER_STEP, LATENESS_S = 5, 20, 600


def _step(number: int) -> list[dict[str, Any]]:
    events = []
    for n in range(PER_STEP):
        about = {"message_id": f"{number:08d}-0000-4000-8000-{n:012d}"}
        at = 1_000 * STEP_S * number + n
        events += [event("received", at, receive_count=1, **about), event("deleted", at + 1, **about)]
    return events


def _packet(events: list[dict[str, Any]], settings: Settings) -> Packet:
    decoded = decode_records([json.dumps(e).encode() for e in events])
    (packet,) = route(decoded.events, Counter(), [], 1, settings)
    return unpack([pack(packet)])


@pytest.mark.slow
def test_little_more_is_kept_than_the_lateness_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging saves segments, but a merged segment may be kept at most a sixth of the lateness longer than needed."""
    monkeypatch.setattr(tombstones, "FEWEST_TOMBSTONES", PER_STEP)
    settings = Settings(lateness_ms=1_000 * LATENESS_S)
    needed = PER_STEP * LATENESS_S / STEP_S
    kept, segments = [], []
    state = ShardState.empty()
    for number in range(4 * LATENESS_S // STEP_S):
        now_ms = 1_000 * STEP_S * (number + 1)
        packet = _packet(_step(number), settings)
        state, _ = track(state, packet, T0 + now_ms, settings)
        kept.append(state.messages / needed)
        segments.append(len(state.segments))
    settled = slice(2 * LATENESS_S // STEP_S, None)
    assert min(kept[settled]) >= 1
    assert max(kept[settled]) <= 1.2
    assert max(segments[settled]) <= LATENESS_S // STEP_S // 2
