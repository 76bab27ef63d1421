"""More findings at once than are listed: the latest are shown, none is announced twice, and none is kept for long."""

from __future__ import annotations

import re
from typing import Any

import pytest

from streaming.core.settings import Settings
from streaming.judge.memory.memory import JudgeMemory
from tests.core.driving import T0, event
from tests.judge.driving import Step, in_steps, judged

pytestmark = pytest.mark.simulation

LISTED = 5
EVENT_TIME = Settings(now_is_event_time=True, messages_per_queue=LISTED)
LIVE = Settings(messages_per_queue=LISTED)
SIGNALS = {"dropped": "MessageDropped", "dead_lettered": "DeadLetterArrived"}


def burst(kind: str, n: int, at_ms: int = 0, first: int = 0) -> list[dict[str, Any]]:
    """Return this many messages lost or dead-lettered, one every 10 ms."""
    to = {"to_queue": "dead"} if kind == "dead_lettered" else {}
    return [event(kind, at_ms + 10 * i, message_id=f"m{first + i}", **to) for i in range(n)]


@pytest.mark.parametrize("kind", SIGNALS)
def test_the_latest_are_announced_once_and_end_together(kind: str) -> None:
    """Also where shards learn the time at different steps: a repeated report from one of them is not new."""
    alone = [event("sent", 1_000 * t, "other", message_id="one") for t in (310, 610, 700, 910, 1_300)]
    steps: list[Step] = [(1_000, burst(kind, 30)), *((e["at"] - T0, [e]) for e in alone)]
    reported = [(at, status) for at, signal, status, _ in judged(steps, LIVE, shards=3).changes_seen() if signal == SIGNALS[kind]]
    assert reported == [(1_000, "firing")] * LISTED + [(310_000, "resolved")] * LISTED


@pytest.mark.parametrize("kind", SIGNALS)
def test_the_same_are_announced_however_many_shards_there_are(kind: str) -> None:
    """Each shard lists the latest it knows, some of the same millisecond."""
    events = [e for n in range(9) for e in burst(kind, 4, at_ms=7_000 * n, first=4 * n)]
    events += [{**e, "message_id": e["message_id"] + "b"} for e in events]
    steps = in_steps(events, 20, 500)
    one, three = judged(steps, EVENT_TIME), judged(steps, EVENT_TIME, shards=3, restart=True)
    assert three.changes == one.changes
    assert len([reported for reported in one.changes_seen() if reported[1:3] == (SIGNALS[kind], "firing")]) > LISTED


@pytest.mark.parametrize("kind", SIGNALS)
def test_what_is_reported_late_is_announced_before_what_is_only_later(kind: str) -> None:
    """It happened first, but has not been announced."""
    late = {**burst(kind, 1, at_ms=50_000)[0], "message_id": "late"}
    said = judged([(401_000, burst(kind, 20, at_ms=400_000)), (410_000, [late])], EVENT_TIME)
    [finding] = [c.finding for c in said.changes if c.finding.key.message_id == "late"]
    assert finding.evidence["noticed_at"] == T0 + 410_000
    assert finding.since_ms == T0 + 50_000


@pytest.mark.parametrize("kind", SIGNALS)
def test_the_memory_of_a_long_burst_does_not_grow(kind: str) -> None:
    """The memory is written in every batch."""
    steps = in_steps([e for n in range(30) for e in burst(kind, 20, at_ms=10_000 * n, first=20 * n)], 10, 300)
    stored = JudgeMemory.from_bytes(judged(steps, EVENT_TIME).memory.to_bytes())
    written = repr((dict(stored.queues), stored.firing))
    assert 0 < len(set(re.findall(r"\bm\d+", written))) <= LISTED
