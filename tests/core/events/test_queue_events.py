"""Queue events from the wire: attributes that repeat are parsed once, and read the same as at first."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from sources.wire import decode_records
from streaming.core.events.events import QueueEvent
from streaming.core.events.prepare import REMEMBERED_CHARS
from streaming.core.events.route import route
from streaming.core.settings import Settings
from tests.core.driving import event


def facts(*attributes: dict[str, object]) -> list[QueueEvent]:
    """Return the queue events of as many reports on one queue, a second apart."""
    lines = [json.dumps(event("queue_state", 1_000 * i, attributes=one)).encode() for i, one in enumerate(attributes)]
    return route(decode_records(lines).events, Counter(), [], 1, Settings())[0].events.facts


@pytest.mark.parametrize("tag", ["", "x" * REMEMBERED_CHARS])
def test_attributes_that_repeat_are_read_like_the_first(tag: str) -> None:
    """Whether they are remembered or too long for that."""
    counted = {"visible": 3.0, "in_flight": 1, "paused": "no", "tag": tag}
    first, again, other = facts(counted, counted, counted | {"in_flight": 2})
    assert first.counts == again.counts == (3, 1, -1)
    assert (
        first.attributes
        == again.attributes
        == json.dumps({"visible": [0, 3], "in_flight": [0, 1], "tag": [0, tag]}, separators=(",", ":"))
    )
    assert other.counts == (3, 2, -1)
    assert len({first.identity, again.identity, other.identity}) == 3
