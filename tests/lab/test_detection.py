"""A fixed part of the matrix of partial telemetry and of the incidents, as a regression test."""

from __future__ import annotations

import pytest

from lab.incidents import Selection as IncidentSelection
from lab.incidents import run_incidents
from lab.matrix import Cell, run_cells

pytestmark = pytest.mark.simulation

HOLDS = [
    ("healthy_busy", "attributes"),
    ("healthy_busy", "producers"),
    ("healthy_busy", "consumers"),
    ("healthy_busy", "full"),
    ("consumers_dead", "attributes"),
    ("consumers_dead", "producers"),
    ("consumers_dead", "consumers"),
    ("consumers_dead", "sample25"),
    ("consumers_dead", "full"),
    ("poison", "consumers"),
    ("batch_consumer", "attributes"),
    ("consumers_dead", "collector_dies"),
]


@pytest.mark.parametrize(("scenario", "basis"), HOLDS)
def test_a_cell_of_the_matrix_holds(scenario: str, basis: str) -> None:
    """There is no false page, no ok beside a dead consumer, no wrong depth, and no age above the true one."""
    (row,) = run_cells([Cell(scenario, "standard", 1, basis, "exact")])
    assert row["broken"] == []


@pytest.mark.parametrize(
    ("scenario", "kind", "basis", "counts"),
    [
        ("healthy_busy", "fifo", "one_of_two", "exact"),
        ("poison", "standard", "sample50", "late"),
        ("consumers_dead", "fifo", "producers", "late"),
    ],
)
def test_a_cell_with_ambiguous_counts_holds(scenario: str, kind: str, basis: str, counts: str) -> None:
    """An unseen consumer of a FIFO queue, half of the messages with late counts, and late counts beside sends only."""
    (row,) = run_cells([Cell(scenario, kind, 1, basis, counts)])
    assert row["broken"] == []


@pytest.mark.parametrize(
    "incident",
    [
        *("slow_deploy", "consumers_dead", "one_consumer_dead", "rolling_deploys", "burst_x50", "nightly_batch"),
        *("purged_by_mistake", "purged_on_purpose"),
    ],
)
def test_an_incident_is_announced_and_a_healthy_run_is_not(incident: str) -> None:
    """Incidents are announced in time and by name; healthy runs raise neither QueueFailing nor QueueLagging."""
    selection = IncidentSelection(only=(incident,), kinds=("standard",), trigger_ms=10_000, whole=False)
    rows = list(run_incidents(selection, jobs=1))
    assert [row["broken"] for row in rows if row["scenario"] == incident] == [[]]
