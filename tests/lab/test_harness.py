"""A recording runs through queuewatch's own code, and its published values can be queried."""

from __future__ import annotations

import pytest

from lab import criteria, harness
from lab.matrix import Cell, Selection
from lab.scenarios.matrix import healthy_idle
from lab.simulation import T0_MS, ms
from lab.telemetry import COUNTS, INSTRUMENTATIONS, polled, seen

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("trigger_ms", [None, 10_000])
def test_full_telemetry_of_an_idle_queue_is_published_exactly(trigger_ms: int | None) -> None:
    """Every 30 s from the first poll on, the depth is the true one; no criterion is broken."""
    recording = healthy_idle("standard", 1)
    events = seen(recording, INSTRUMENTATIONS["full"])
    outcome = harness.run(events, trigger_ms=trigger_ms, until=recording.ends_at)
    assert outcome.times == [ms(s) for s in range(30, 3601, 30)]
    depths = outcome.labelled("queue_messages", "orders")
    history = recording.history.of("orders")
    assert all(sum(s[at] for s in depths.values()) == history.counts(at).unsettled for at in outcome.times)
    verdict = criteria.judge(recording, INSTRUMENTATIONS["full"], outcome, {"orders": polled(events, "orders")})
    assert verdict.broken() == []
    assert set(outcome.chosen("queue_status", "orders")) == set(outcome.times)


def test_an_invalid_event_is_an_error_of_the_simulator() -> None:
    """An invalid event raises instead of being counted."""
    with pytest.raises(ValueError, match="cannot be read"):
        harness.run([{"v": 1, "type": "sent", "at": T0_MS, "queue": "q", "message_id": "m"}])


def test_the_matrix_has_every_cell_once() -> None:
    """There are eight scenarios, two kinds, seven bases and three qualities of counts; changeovers have exact counts."""
    cells = list(Selection().cells())
    assert len(cells) == len(set(cells))
    assert len([c for c in cells if c.basis in INSTRUMENTATIONS]) == 8 * 2 * 7 * len(COUNTS)
    chosen = list(Selection(only=["healthy"], basis=["consumers"], kinds=["fifo"], counts=["late"]).cells())
    assert chosen == [Cell(name, "fifo", 1, "consumers", "late") for name in ("healthy_busy", "healthy_idle")]
    assert chosen[0].instrumentation.lag_s == 60
