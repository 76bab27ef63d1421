"""BatchRetryStorm: deliveries that only a neighbour's failure made necessary, in whatever order their telling comes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from streaming.core.settings import Settings
from tests.core.driving import event, run_steps
from tests.judge.driving import Step, in_steps, judged

Events = list[dict[str, Any]]


def batches(outcomes: list[bool], size: int = 5) -> Events:
    """The same messages delivered in one batch after the other; True: it failed."""
    events = []
    for n, failed in enumerate(outcomes):
        at = 20_000 * n
        events += [event("received", at, message_id=f"m{i}", receive_count=n + 1, batch_id=f"b{n}") for i in range(size)]
        events.append(event("batch", at + 1_000, batch_id=f"b{n}", attributes={"size": size, "failed": size if failed else 0}))
    return events


def retried(steps: list[Step], shards: int) -> int:
    """Redeliveries out of failed batches by the end."""
    (facts,) = run_steps(steps, Settings(), shards=shards)[-1].queues.values()
    return facts.total("retried")


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_redeliveries_count_the_same_in_any_order(seed: int, shards: int) -> None:
    """Outcome before or after the redelivery, receives out of order, twice, in steps of their own."""
    rng = random.Random(seed)
    outcomes = [rng.random() < 0.6 for _ in range(5)]
    events = batches(outcomes)
    expected = 5 * sum(outcomes[:-1])
    assert retried([(100_000, events)], shards) == expected
    told = rng.sample(events, len(events)) + rng.sample(events, 5)
    assert retried([(100_000, told)], shards) == expected
    assert retried([(100_000, [one]) for one in told], shards) == expected


def test_a_storm_begins_and_ends() -> None:
    """Half of the deliveries of five minutes; over when they are that long ago."""
    steps = in_steps(batches([True] * 4), 10, 490)
    told = [(c.at_ms - event("x", 0)["at"], c.status) for c in judged(steps).changes if c.finding.key.signal == "BatchRetryStorm"]
    assert told[0] == (20_000, "firing")
    assert [status for _, status in told] == ["firing", "resolved"]
    assert 320_000 < told[1][0] <= 370_000


@pytest.mark.parametrize("outcomes", [[True, False, False, False], [False] * 4], ids=["one failure long ago", "none"])
def test_no_storm(outcomes: list[bool]) -> None:
    """Redeliveries for another reason are none of its business."""
    assert not judged([(100_000, batches(outcomes))]).firing("BatchRetryStorm")
