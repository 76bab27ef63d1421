"""When a queue's visibility timeout changed, and what it was before: the same for any order of the reports."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.core.maintenance.reshard import reshard
from streaming.core.settings import QueueName, Settings
from streaming.core.state.queues import TimeoutChange
from streaming.core.state.state import ShardState
from tests.core.driving import T0, event, run_steps

ORDERS = QueueName("aws_sqs", "", "orders")
Report = tuple[int, float | None]
"""When, in seconds, and the timeout, in seconds; None withdraws it."""

CASES: list[tuple[str, list[Report], tuple[int, int, int]]] = [
    ("the first holds for all earlier receives", [(10, 30)], (10, 0, 0)),
    ("a change", [(10, 30), (20, 900)], (20, 10, 30)),
    ("repeated before and after", [(10, 30), (15, 30), (20, 900), (30, 900)], (20, 15, 30)),
    ("a second change", [(10, 30), (20, 900), (30, 60)], (30, 20, 900)),
    ("changed back", [(10, 30), (20, 900), (30, 30), (40, 30)], (30, 20, 900)),
    ("the same number as a fraction", [(10, 30), (20, 30.0)], (10, 0, 0)),
    ("a late report of the timeout before", [(10, 30), (20, 900), (15, 30)], (20, 15, 30)),
    ("a late report of the timeout of now", [(10, 30), (20, 900), (15, 900)], (15, 10, 30)),
    ("a late report of a timeout in between", [(10, 30), (20, 900), (15, 60)], (20, 15, 60)),
    ("a late report of an earlier one", [(10, 30), (20, 900), (5, 60)], (20, 10, 30)),
    ("a late report that it was changed and changed back", [(10, 30), (20, 30), (30, 30), (15, 900)], (20, 15, 900)),
    ("the timeout before is reported last", [(20, 900), (30, 900), (10, 30)], (20, 10, 30)),
    ("withdrawn", [(10, 30), (20, None)], (20, 10, 30)),
    ("withdrawn before", [(10, 30), (20, None), (30, 60)], (30, 20, -1)),
]


def reported(at: int, timeout_s: float | None) -> dict[str, Any]:
    attributes = {"visible": 0, "in_flight": 0, "delayed": 0, "visibility_timeout_s": timeout_s}
    return event("queue_state", at * 1_000, attributes=attributes)


def change(steps: list[list[Report]]) -> tuple[int, int, int]:
    """Report all of these in steps; return the change in seconds."""
    states: list[ShardState] = []
    run_steps([(600_000, [reported(*one) for one in step]) for step in steps], states=states, restart=True)
    (state,) = states
    since, before_at, before_ms = state.queues[state.queues.index[ORDERS]].timeout
    return (since - T0) // 1_000, max(before_at - T0, 0) // 1_000, -1 if before_ms < 0 else before_ms // 1_000


def by_time(reports: list[Report]) -> tuple[int, int, int]:
    """The same from all reports at once, in the order of time."""
    runs: list[tuple[int, int, float | None]] = []
    for at, value in sorted(reports, key=lambda report: report[0]):
        if runs and runs[-1][2] == value:
            runs[-1] = (runs[-1][0], at, value)
        else:
            runs.append((at, at, value))
    if len(runs) == 1:
        return runs[0][0], 0, 0
    _, before_at, before = runs[-2]
    return runs[-1][0], before_at, -1 if before is None else int(before)


@pytest.mark.parametrize(("reports", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_change_is_found(reports: list[Report], expected: tuple[int, int, int]) -> None:
    """Each report in a step of its own, and all in one."""
    assert change([[one] for one in reports]) == change([reports]) == by_time(reports) == expected


REPORTS = st.lists(
    st.tuples(st.integers(1, 500), st.sampled_from([30, 900, None])), min_size=1, max_size=8, unique_by=lambda report: report[0]
)


@pytest.mark.slow
@given(reports=REPORTS, data=st.data())
def test_the_order_of_reports_does_not_matter(reports: list[Report], data: st.DataObject) -> None:
    """Within the lateness, in any steps."""
    order = data.draw(st.permutations(reports))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(order)), max_size=3)))
    steps = [order[i:j] for i, j in zip([0, *cuts], [*cuts, len(order)], strict=True)]
    assert change(steps) == by_time(reports)


def test_a_change_is_known_to_every_shard_also_of_another_number() -> None:
    """A message goes to any shard, and its window depends on the change."""
    states: list[ShardState] = []
    run_steps([(60_000, [reported(10, 30), reported(20, 900)])], shards=2, states=states)
    found = [state.queues[0].timeout for state in (*states, *reshard(states, 3, Settings()))]
    assert found == [TimeoutChange(T0 + 20_000, T0 + 10_000, 30_000)] * 5


def test_a_change_of_the_future_is_one_of_now_after_the_clock_was_wrong() -> None:
    """A window must not last for a month because the timeout of before seems to hold until then."""
    month = 30 * 86_400
    states: list[ShardState] = []
    run_steps([(month * 1_000, [reported(10, 30), reported(month, 900)]), (60_000, [])], states=states)
    assert states[0].queues[0].timeout == TimeoutChange(T0 + 60_000, T0 + 10_000, 30_000)
