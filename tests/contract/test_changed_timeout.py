"""A raised visibility timeout holds for receives from then on: what failed before it stays failed, while somebody repairs it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.contract.replaying import Lines, ev, replayed

pytestmark = pytest.mark.simulation

RAISED_AT = 420
FAILED = 6


def incident(timeouts: list[tuple[float, float]]) -> list[dict[str, Any]]:
    """Six messages fail twice each within 30 s, and a third time one of them. After the timeout was raised, one is received again."""
    events = [ev("queue_state", at, attributes={"visibility_timeout_s": timeout_s}) for at, timeout_s in timeouts]
    for n in range(FAILED):
        events.append(ev("sent", n, message_id=f"m{n}"))
        events += [ev("received", 20 + 60 * k + n, message_id=f"m{n}", receive_count=k + 1) for k in range(2)]
    events += [ev("received", RAISED_AT - 60, message_id="m0", receive_count=3)]
    events += [ev("received", RAISED_AT + 60, message_id="m1", receive_count=3)]
    return sorted(events, key=lambda e: e["at"])


def in_flight(lines: Lines) -> dict[float, float]:
    """Return the messages in flight at every minute, from when the timeout is raised."""
    return {at: value for at, value in lines.metric("queue_messages", state="in_flight").items() if at >= RAISED_AT}


def test_receives_of_before_keep_the_timeout_of_before(tmp_path: Path) -> None:
    """Only the one received since is in flight, for 15 minutes; the age of the others counts on, and the stall goes on."""
    lines = replayed(incident([(0, 30), (RAISED_AT, 900)]), tmp_path, until_s=1_500, apart_s=10)
    assert in_flight(lines) == {at: float(RAISED_AT + 60 <= at < RAISED_AT + 960) for at in range(RAISED_AT, 1_501, 60)}
    age = lines.metric("oldest_message_age_seconds", scope="visible")
    assert all(age[at] == at for at in range(RAISED_AT, 1_501, 60))
    restarted = lines.metric("oldest_message_age_seconds", scope="cloudwatch")
    assert restarted[RAISED_AT] == RAISED_AT - 1, "m0 restarted when its third window ended, m1 did not"
    assert [at < RAISED_AT for at in lines.times("QueueStalled", "firing")] == [True]
    assert lines.times("QueueStalled", "resolved") == []
    assert lines.times("MessageHeldTooLong", "firing") == []


def test_a_lowered_timeout_takes_no_message_from_its_consumer(tmp_path: Path) -> None:
    """They hold what they received before for as long as they were given."""
    events = [ev("sent", 0, message_id="m"), ev("received", 60, message_id="m", receive_count=1)]
    events += [ev("queue_state", at, attributes={"visibility_timeout_s": s}) for at, s in ((0, 900), (120, 30), (180, 30))]
    lines = replayed(sorted(events, key=lambda e: e["at"]), tmp_path, until_s=1_200, apart_s=10)
    held = lines.metric("queue_messages", state="in_flight")
    assert held == {at: float(60 <= at < 960) for at in range(60, 1_201, 60)}


@pytest.mark.parametrize("seed", range(2))
def test_the_lines_are_the_same_in_any_order_of_the_recording(tmp_path: Path, seed: int) -> None:
    """The change is recorded before or after what it is about, repeated, and with reports from before it that are late."""
    events = incident([(0, 30), (300, 30), (RAISED_AT, 900), (500, 900), (700, 900)])
    mixed = random.Random(seed).sample(events, len(events))
    for one in (events, mixed):
        one.append(ev("heartbeat", 800, consumer="collector"))
    expected, found = (in_flight(replayed(one, tmp_path, every="1000s", until_s=2_000, apart_s=10)) for one in (events, mixed))
    assert found == expected == {1_000: 1.0, 2_000: 0.0}
