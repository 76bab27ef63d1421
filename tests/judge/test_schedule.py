"""Consumers on a schedule: the first pauses may page, then the schedule is known; consumers that die still page."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.driving import T0, event
from tests.judge.driving import Judged, in_steps, judged

pytestmark = pytest.mark.simulation


def traffic(until_s: int, works: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Return a message every ten seconds, received and deleted at once while consumers work, or when they resume."""
    events = []
    for i, sent_s in enumerate(range(0, until_s, 10)):
        named = {"message_id": f"m{i}"}
        events.append(event("sent", 1000 * sent_s, **named))
        starts = [max(sent_s, begin_s) for begin_s, end_s in works if end_s > sent_s]
        if starts:
            at_ms = 1000 * min(starts) + 500 + i
            events.append(event("received", at_ms, receive_count=1, consumer="cron", **named))
            events.append(event("deleted", at_ms + 200, consumer="cron", **named))
    return sorted(events, key=lambda e: e["at"])


def stalls_at(said: Judged) -> list[int]:
    """Return when QueueStalled began to fire, in seconds."""
    return [(c.at_ms - T0) // 1000 for c in said.changes if c.finding.key.signal == "QueueStalled" and c.status == "firing"]


def test_a_schedule_is_learned_from_its_first_pause() -> None:
    """Three minutes of work in every fifteen."""
    works = [(begin, begin + 180) for begin in range(0, 7_200, 900)]
    times = stalls_at(judged(in_steps(traffic(7_200, works), 10, 7_200)))
    assert times == [480], "once in the first pause, and never again"


def test_consumers_that_stay_away_longer_than_their_schedule_page() -> None:
    """It fires a quarter of the usual pause later."""
    works = [(begin, begin + 180) for begin in range(0, 3_600, 900)]
    times = stalls_at(judged(in_steps(traffic(6_000, works), 10, 6_000)))
    died_s = 2_700 + 180
    assert times[0] == 480
    assert len(times) == 2
    assert died_s + 720 < times[1] <= died_s + 720 * 1.25 + 90


def test_one_long_pause_of_a_busy_queue_is_no_schedule() -> None:
    """An incident of twenty minutes must not hide the next one."""
    works = [(0, 3_600), (4_800, 6_600)]
    times = stalls_at(judged(in_steps(traffic(7_800, works), 10, 7_800)))
    assert len(times) == 2
    assert 6_600 + 290 <= times[1] <= 6_600 + 320
