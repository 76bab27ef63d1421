"""DeadLetterArrived fires once for every arrival, whatever is learned later, and all end five minutes after the last."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import Settings
from tests.core.driving import event
from tests.judge.driving import Step, judged

DEAD: dict[str, Any] = {"message_id": "m", "to_queue": "dead"}
BACK: dict[str, Any] = {"message_id": "m", "to_queue": "orders", "new_message_id": "m"}


def arrivals(*steps: Step, restart: bool = False) -> list[tuple[int, str, str | None]]:
    """Return milliseconds, status and part of each change."""
    changes = judged(steps, restart=restart).changes
    return [
        (c.at_ms - event("x", 0)["at"], c.status, c.finding.key.part)
        for c in changes
        if c.finding.key.signal == "DeadLetterArrived"
    ]


@pytest.mark.parametrize("restart", [False, True])
def test_a_message_that_comes_again_under_its_own_id_is_announced_again(restart: bool) -> None:
    """Redriven with its id kept and dead-lettered again within five minutes: three arrivals, one end."""
    steps: list[Step] = [
        (0, [event("dead_lettered", 0, **DEAD)]),
        (20_000, [event("redriven", 10_000, "dead", **BACK)]),
        (110_000, [event("dead_lettered", 100_000, **DEAD)]),
        (120_000, [event("redriven", 115_000, "dead", **BACK), event("dead_lettered", 118_000, **DEAD)]),
        (417_000, []),
        (418_000, []),
    ]
    assert arrivals(*steps, restart=restart) == [
        (0, "firing", None),
        (110_000, "firing", "2"),
        (120_000, "firing", "3"),
        (418_000, "resolved", None),
        (418_000, "resolved", "2"),
        (418_000, "resolved", "3"),
    ]


@pytest.mark.parametrize("reported_at_ms", [90_000, 104_000], ids=["it came earlier", "by a clock that is ahead"])
def test_a_better_known_time_of_the_same_arrival_is_no_second_one(reported_at_ms: int) -> None:
    """Seen at its first receive, then reported."""
    seen = event("received", 100_000, "dead", message_id="m", receive_count=5, from_queue="orders")
    steps: list[Step] = [(100_000, [seen]), (105_000, [event("dead_lettered", reported_at_ms, **DEAD)]), (110_000, [])]
    assert arrivals(*steps) == [(100_000, "firing", None)]


def test_a_burst_is_listed_up_to_the_cap_and_ends_as_one() -> None:
    """Arrivals beyond the cap are counted; nothing flaps meanwhile."""
    settings = Settings(now_is_event_time=True, messages_per_queue=5)
    burst = [event("dead_lettered", n, message_id=f"m{n}", to_queue="dead") for n in range(12)]
    steps: list[Step] = [(1_000, burst), *((1_000 + 60_000 * n, []) for n in range(1, 7))]
    said = judged(steps, settings)
    reported = [(c.at_ms - event("x", 0)["at"], c.status) for c in said.changes if c.finding.key.signal == "DeadLetterArrived"]
    assert reported == [(1_000, "firing")] * 5 + [(301_000, "resolved")] * 5
    assert said.snapshots[0].queues[0].tracked == 12
