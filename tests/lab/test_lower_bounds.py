"""Ages of simulated queues of which not everything is reported are never above the true ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from lab import criteria, harness
from lab.consumer import lognormal
from lab.producer import steady
from lab.recording import Recording
from lab.report import Event
from lab.scenarios.matrix import one_consumer_dead
from lab.telemetry import INSTRUMENTATIONS, Instrumentation, seen
from lab.world import World

pytestmark = pytest.mark.simulation


UNCERTAIN_MS = 120_000
"""The first counts of a queue, which contradict what is missing, may be a minute late."""


def excess_s(recording: Recording, events: Iterable[Event], after_ms: int = 0) -> float:
    """Return by how much the ages published from these events exceed the true ones at most, from some time after the start."""
    outcome = harness.run(list(events), trigger_ms=10_000, until=recording.ends_at)
    queue = next(queue for queue in recording.settings if "dlq" not in queue)
    excesses = (
        age_s - (criteria.true_age_s(recording.history.of(queue), at, scope) or 0)
        for scope in criteria.AGED_SCOPES
        for at, age_s in outcome.series("oldest_message_age_seconds", queue, scope).items()
        if at >= outcome.times[0] + after_ms
    )
    return max(excesses, default=0.0)


def healthy(kind: str) -> Recording:
    """Four consumers have far more capacity than is needed: no message is older than half a minute."""
    world = World("healthy", kind, 1, 900)
    world.produce(steady(1.25), 1.25)
    world.consume(lognormal(2.0), 4)
    return world.run()


def test_a_growing_backlog_of_which_three_quarters_are_reported() -> None:
    """Counts in flight that match by chance do not show that every send is reported: ages had been 35 s too high."""
    recording = one_consumer_dead("standard", 4)
    assert excess_s(recording, seen(recording, Instrumentation("sample75", share=0.75))) <= criteria.EXACT_S


def no_deletions(event: Event) -> bool:
    return bool(event["type"] != "deleted")


def only_deliveries(event: Event) -> bool:
    return event["type"] not in ("deleted", "sent")


def no_deletions_of_one(event: Event) -> bool:
    return event["type"] != "deleted" or event.get("consumer") != "worker-1"


@pytest.mark.parametrize("kind", ["standard", "fifo"])
@pytest.mark.parametrize("reported", [no_deletions, only_deliveries, no_deletions_of_one], ids=lambda reported: reported.__name__)
def test_messages_whose_deletions_are_not_reported(kind: str, reported: Callable[[Event], bool]) -> None:
    """They seem to be held until their windows end, or to wait since then."""
    recording = healthy(kind)
    events = [event for event in seen(recording, INSTRUMENTATIONS["full"]) if reported(event)]
    assert excess_s(recording, events, UNCERTAIN_MS) <= criteria.EXACT_S
