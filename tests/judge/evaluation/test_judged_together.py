"""How many queues are judged, or shown, at once changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streaming.judge import judge
from streaming.judge.views import view
from streaming.judge.views.view import backlogs
from tests.core.driving import event, run_steps
from tests.judge.driving import SETTINGS, Judged, Step, in_steps, judged


def steps() -> list[Step]:
    """Return the events of five queues, of which one has a poison message and one a dead letter."""
    events = []
    for n, queue in enumerate(("a", "b", "c", "d", "dead")):
        for i in range(10):
            events.append(event("sent", 10_000 * i + n, queue, message_id=f"{queue}{i}"))
        events += [event("received", 60_000 + 40_000 * i, queue, message_id=f"{queue}0", receive_count=i + 1) for i in range(n)]
    events.append(event("dead_lettered", 150_000, "a", message_id="a1", to_queue="dead"))
    return in_steps(sorted(events, key=lambda e: e["at"]), 10, 400)


def outcome() -> Judged:
    """Return what is said of them."""
    return judged(steps())


class _Dropped(dict[int, Any]):
    """Summaries that another reader drops as soon as they are built."""

    def __setitem__(self, place: int, summary: Any) -> None:
        """Keep nothing."""

    def update(self, *made: Any, **_: Any) -> None:
        """Keep nothing."""


def test_a_summary_can_be_read_while_another_reader_drops_them() -> None:
    """Threads of the HTTP service read one snapshot; one that has read some thousand queues drops their summaries."""
    queues = run_steps([(at, events) for at, events in steps() if at <= 100_000], SETTINGS)[-1].queues
    queues._summaries = _Dropped()
    assert [queues[name].name for name in queues] == list(queues)


@pytest.mark.simulation
def test_the_result_does_not_depend_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two queues at a time, or all."""
    together = outcome()
    assert {change.finding.key.signal for change in together.changes} >= {"PoisonMessage", "DeadLetterArrived"}
    for module in (judge, view):
        monkeypatch.setattr(module, "LOADED_TOGETHER", 2)
    apart = outcome()
    assert apart.changes == together.changes
    for one, other in zip(apart.snapshots, together.snapshots, strict=True):
        shown = [[replace(queue, revision=0) for queue in snapshot.queues] for snapshot in (one, other)]
        assert shown[0] == shown[1]


def test_the_history_gets_the_values_of_the_views_without_building_them() -> None:
    """A hundred thousand queues are recorded in every step. A queue appears before others that are not judged again."""
    events = [event("sent", 0, f"m{n}", message_id=f"m{n}") for n in range(3)]
    events += [event("deleted", 1_000, f"m{n}", message_id=f"m{n}") for n in range(2)]
    events += [event("queue_state", 1_000, "mm", attributes={"visibility_timeout_s": 30})]
    counts = {"empty": {"visible": 0, "in_flight": 0}, "held": {"visible": 0, "in_flight": 2}, "uncounted": {"visible": 0}}
    events += [event("queue_state", 1_000, queue, attributes=attributes) for queue, attributes in counts.items()]
    events += [event("sent", 450_000 + 10_000 * i, queue, message_id=f"{queue}{i}") for i in range(5) for queue in ("a", "z")]
    for snapshot in judged(in_steps(events, 10, 500)).snapshots:
        kept, shown = backlogs(snapshot.queues), backlogs(list(snapshot.queues))
        assert kept.names == shown.names
        assert np.array_equal(kept.values, shown.values, equal_nan=True)
    oldest = {name.queue: since_ms for name, since_ms in zip(kept.names, kept.values[:, 1].tolist(), strict=True)}
    assert np.array_equal([oldest[queue] for queue in counts], [np.inf, np.nan, np.nan], equal_nan=True), "only one is empty"
