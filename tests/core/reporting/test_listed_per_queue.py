"""When very many queues have messages with signals of their own, fewer of each are listed: a step must not take minutes then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from streaming.core.reporting import report
from streaming.core.reporting.report import listed_per_queue
from streaming.judge.findings.signals import SignalName
from tests.core.driving import event, run_steps
from tests.core.reference import Wire
from tests.judge.driving import judged

QUEUES = 4
LIMITS: dict[str, Any] = {"visibility_timeout_s": 30, "max_receive_count": 3}
EACH = 5
"""Messages per queue."""


@pytest.fixture(autouse=True)
def few_are_listed() -> Iterator[None]:
    """Three of each of four queues, instead of thousands."""
    with patch.object(report, "MOST_LISTED", 13):
        yield


def _messages() -> Iterator[tuple[str, str, int]]:
    """Yield queue, message and a number that grows with time."""
    for n in range(EACH):
        for queue in range(QUEUES):
            yield f"q{queue}", f"m{n}-{queue}", n * QUEUES + queue


def _outage() -> list[Wire]:
    """Every message fails three times."""
    events = [event("queue_state", 0, f"q{n}", attributes=LIMITS | {"dead_letter_queue": f"d{n}"}) for n in range(QUEUES)]
    for queue, message_id, n in _messages():
        about = {"message_id": message_id}
        events.append(event("sent", 10 + n, queue, **about))
        events += [event("received", 1_000 * i + n, queue, receive_count=i, consumer="w", **about) for i in (1, 2, 3)]
    return events


@pytest.mark.parametrize(
    ("counts", "most"), [([13], 100), ([3, 3, 7], 100), ([5] * 4, 3), ([1] * 30, 3), ([7, 7], 6), ([90, 1], 12)]
)
def test_as_many_are_listed_as_fit(counts: list[int], most: int) -> None:
    """Of those that have many; and three of each in any case."""
    assert listed_per_queue(np.repeat(np.arange(len(counts)), counts), 100) == most


@pytest.mark.parametrize("shards", [1, 3])
def test_the_worst_suspects_of_each_queue_are_listed(shards: int) -> None:
    merged = run_steps([(5_000, _outage())], shards=shards)[-1]
    listed = {
        n.queue: [one.view.message_id for one in s.messages["poison"]] for n, s in merged.queues.items() if "poison" in s.messages
    }
    assert listed == {f"q{queue}": [f"m{n}-{queue}" for n in range(3)] for queue in range(QUEUES)}
    assert {s.numbers["poison"] for n, s in merged.queues.items() if n.queue in listed} == {EACH}


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(("end", "signal"), [("dead_lettered", "DeadLetterArrived"), ("dropped", "MessageDropped")])
def test_the_latest_losses_and_dead_letters_have_signals(end: str, signal: SignalName, shards: int) -> None:
    """Also those that come later, when earlier ones fire already."""
    ends = []
    for queue, message_id, n in _messages():
        to = {"to_queue": f"d{queue[1:]}"} if end == "dead_lettered" else {}
        ends.append(event(end, 6_000 + 1_000 * n, queue, message_id=message_id, **to))
    first, later = ends[: 2 * QUEUES], ends[2 * QUEUES :]
    steps = [(5_000, _outage()), (14_000, first), (30_000, later), (31_000, [])]
    firing = judged(steps, shards=shards, restart=True).firing(signal)
    assert Counter(finding.key.queue[1:] for finding in firing) == {str(queue): 3 for queue in range(QUEUES)}
    assert {finding.key.message_id for finding in firing} == {m for _, m, n in _messages() if n >= 2 * QUEUES}
