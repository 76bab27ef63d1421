"""BatchRetryStorm: deliveries caused only by a neighbour's failure, in whatever order they are reported."""

from __future__ import annotations

import random
from typing import Any

import pytest

from streaming.core.settings import Settings
from streaming.core.thresholds import Thresholds
from tests.core.driving import event, run_steps
from tests.judge.driving import Step, in_steps, judged

Events = list[dict[str, Any]]


def batches(outcomes: list[bool], size: int = 5, every_s: int = 20) -> Events:
    """Return the same messages delivered in one batch after the other; True: it failed."""
    events = []
    for n, failed in enumerate(outcomes):
        at = 1_000 * every_s * n
        events += [event("received", at, message_id=f"m{i}", receive_count=n + 1, batch_id=f"b{n}") for i in range(size)]
        events.append(event("batch", at + 1_000, batch_id=f"b{n}", attributes={"size": size, "failed": size if failed else 0}))
    return events


def retried(steps: list[Step], shards: int) -> int:
    """Return the number of redeliveries from failed batches at the end."""
    (summary,) = run_steps(steps, Settings(), shards=shards)[-1].queues.values()
    return summary.total("retried")


@pytest.mark.simulation
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_redeliveries_count_the_same_in_any_order(seed: int, shards: int) -> None:
    """The outcome before or after the redelivery, receives out of order, twice, in separate steps."""
    rng = random.Random(seed)
    outcomes = [rng.random() < 0.6 for _ in range(5)]
    events = batches(outcomes)
    expected = 5 * sum(outcomes[:-1])
    assert retried([(100_000, events)], shards) == expected
    reported = rng.sample(events, len(events)) + rng.sample(events, 5)
    assert retried([(100_000, reported)], shards) == expected
    assert retried([(100_000, [one]) for one in reported], shards) == expected


@pytest.mark.simulation
def test_a_storm_begins_and_ends() -> None:
    """Half of the deliveries of five minutes; it ends when they are older than that."""
    steps = in_steps(batches([True] * 4), 10, 490)
    reported = [
        (c.at_ms - event("x", 0)["at"], c.status) for c in judged(steps).changes if c.finding.key.signal == "BatchRetryStorm"
    ]
    assert reported[0] == (20_000, "firing")
    assert [status for _, status in reported] == ["firing", "resolved"]
    assert 320_000 < reported[1][0] <= 370_000


@pytest.mark.simulation
@pytest.mark.parametrize("window_s", [600, 1_800])
def test_a_storm_is_measured_over_its_window_however_long(window_s: int) -> None:
    """An hour of good deliveries does not hide it, and it ends when the window no longer contains it."""
    storm_from, storm_to, until = 90, 120, 220
    outcomes = [storm_from <= n < storm_to for n in range(until)]
    settings = Settings(now_is_event_time=True, defaults=Thresholds(retry_storm_window_s=window_s, poison_receives=1_000))
    changes = judged(in_steps(batches(outcomes, every_s=60), 60, 60 * until), settings).changes
    reported = [c for c in changes if c.finding.key.signal == "BatchRetryStorm"]
    assert [c.status for c in reported] == ["firing", "resolved"]
    fired_s, resolved_s = [(c.at_ms - event("x", 0)["at"]) // 1_000 for c in reported]
    # It fires when half of the window is failures, and ends when less than four tenths of it are.
    assert abs(fired_s - (60 * storm_from + window_s // 2)) <= 0.1 * window_s + 60
    assert abs(resolved_s - (60 * storm_to + 0.6 * window_s)) <= 0.1 * window_s + 60
    deliveries = reported[0].finding.evidence["deliveries"]
    assert 5 * window_s / 60 <= deliveries <= 1.1 * 5 * window_s / 60 + 5


@pytest.mark.simulation
def test_a_storm_shows_when_good_deliveries_leave_a_long_window() -> None:
    """Nothing arrives any more: time alone makes the redeliveries, which were twenty minutes ago, half of what remains."""
    events = batches([20 <= n < 28 for n in range(30)], every_s=60)
    events += [event("deleted", 60_000 * 30, message_id=f"m{i}") for i in range(5)]
    settings = Settings(now_is_event_time=True, defaults=Thresholds(retry_storm_window_s=1_800, poison_receives=1_000))
    changes = judged(in_steps(events, 20, 4_000), settings).changes
    assert [c.status for c in changes if c.finding.key.signal == "BatchRetryStorm"] == ["firing", "resolved"]


@pytest.mark.simulation
def test_a_storm_near_the_limit_is_one_signal() -> None:
    """Every second batch fails, so that the share goes up and down around a half."""
    steps = in_steps(batches([bool(n % 2) for n in range(40)]), 5, 790)
    reported = [c.status for c in judged(steps).changes if c.finding.key.signal == "BatchRetryStorm"]
    assert reported in (["firing"], ["firing", "resolved"])


@pytest.mark.parametrize("outcomes", [[True, False, False, False], [False] * 4], ids=["one failure long ago", "none"])
def test_no_storm(outcomes: list[bool]) -> None:
    """Redeliveries for another reason do not count."""
    assert not judged([(100_000, batches(outcomes))]).firing("BatchRetryStorm")
