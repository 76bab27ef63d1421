"""A message whose deletion was lost is not taken to wait while the broker's counts show that nothing is visible."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import QueueName, QueueRule, Settings
from tests.core.driving import event, run_steps

Wire = dict[str, Any]
LIFE = [event("sent", 0, "q", message_id="m"), event("received", 10_000, "q", message_id="m", receive_count=1)]
"""Visible again from 40 s on, unless it was deleted."""


def counted(visible: dict[int, int], **attributes: object) -> list[Wire]:
    """Return the broker's counts: of visible messages by second, and always seven in flight."""
    known = {"visibility_timeout_s": 30, "in_flight": 7, "delayed": 0} | attributes
    return [event("queue_state", 1_000 * at, "q", attributes=known | {"visible": n}) for at, n in visible.items()]


def left(events: list[Wire], settings: Settings | None = None) -> tuple[int, int]:
    """Return how many messages were dropped because the counts contradict them, and how many are tracked as visible."""
    start = event("x", 0, "q")["at"]
    steps = [(at, [e for e in events if at - 60_000 < e["at"] - start <= at]) for at in range(0, 1_200_000, 60_000)]
    summary = run_steps(steps, settings or Settings(), restart=True, shards=3)[-1].queues[QueueName("aws_sqs", "", "q")]
    return summary.total("reconciled"), summary.numbers["visible"]


@pytest.mark.simulation
def test_a_message_that_was_visible_in_none_of_three_counts_is_gone() -> None:
    """The queue was never empty, and other messages were visible in between."""
    assert left([*LIFE, *counted({180: 0, 240: 3, 300: 0, 360: 2, 480: 0})]) == (1, 0)


@pytest.mark.parametrize(
    "counts",
    [{180: 0, 480: 0}, {180: 0, 300: 0, 420: 0}, {120: 0, 300: 0, 420: 0}, {180: 1, 300: 1, 480: 1}],
    ids=["two counts", "within four minutes", "the first is too early: it may be two minutes old", "one is visible"],
)
def test_fewer_counts_prove_nothing(counts: dict[int, int]) -> None:
    """Each may be wrong, or late."""
    assert left([*LIFE, *counted(counts)]) == (0, 1)


@pytest.mark.simulation
def test_a_message_that_became_visible_later_stays() -> None:
    """Its delay ended, or its window, after the first of the counts."""
    counts = counted({180: 0, 300: 0, 480: 0})
    delayed = event("sent", 0, "q", message_id="m", visible_at=event("x", 300_000, "q")["at"])
    assert left([delayed, *counts]) == (0, 1)
    assert left([*LIFE, event("received", 200_000, "q", message_id="m", receive_count=2), *counts]) == (0, 1)


@pytest.mark.simulation
def test_what_the_counts_may_not_show_stays() -> None:
    """One behind the head of its group; a dead letter; one of unknown window; one in flight; one with a longer setting."""
    counts = {180: 0, 300: 0, 480: 0}
    grouped = [one | {"group": "g"} for one in LIFE]
    assert left([*grouped, *counted(counts, kind="fifo")]) == (0, 1)
    assert left([*LIFE, *counted(counts, visibility_timeout_s=None)]) == (0, 1)
    assert left([*LIFE, *counted(counts, dead_letter_sources=["source"])]) == (0, 1)
    assert left([*LIFE, *counted(counts, visibility_timeout_s=3_600)]) == (0, 0)
    assert left([*LIFE, *counted(counts)], Settings(rules=(QueueRule("q", {"reconcile_after_s": 900}),))) == (0, 1)


def test_it_counts_again_once_it_is_received_again() -> None:
    """The counts were wrong; its age is the same as before."""
    again = event("received", 700_000, "q", message_id="m", receive_count=2)
    assert left([*LIFE, *counted({180: 0, 300: 0, 480: 0}), again]) == (1, 1)
