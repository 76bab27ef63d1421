"""Objectives of a queue are computed since counting began, with the same formula as the recording rules."""

from __future__ import annotations

from typing import Any

import pytest

from alerts.objectives import Objective
from sinks.objectives import objective_results
from streaming.judge.snapshot import DURATION_BUCKETS_S, Duration
from tests.sinks.fakes import queue_view


def _took(**by_bound: int) -> Duration:
    """Return a histogram with this many messages in the bucket of each bound (`s30=5`; `more` is beyond all bounds)."""
    bounds = [*(f"s{bound:g}" for bound in DURATION_BUCKETS_S), "more"]
    assert by_bound.keys() <= set(bounds)
    return Duration(tuple(by_bound.get(bound, 0) for bound in bounds), 0.0)


CASES: list[tuple[str, dict[str, Any], dict[str, Any], tuple[int, int, float | None, float | None]]] = [
    # why, the objective, the queue, and: ended, missed, ratio in time, ratio of the budget used
    ("every bound up to the limit is in time", {}, {"sojourn": _took(s1=500, s30=499, s60=1)}, (1000, 1, 0.999, 0.1)),
    ("half of what is allowed", {}, {"sojourn": _took(s5=199, more=1)}, (200, 1, 0.995, 0.5)),
    ("more than is allowed", {}, {"sojourn": _took(s5=90, s300=10)}, (100, 10, 0.9, 10.0)),
    (
        "lost messages were not in time",
        {},
        {"sojourn": _took(s5=97), "dead_lettered": 1, "expired": 1, "dropped": 1},
        (100, 3, 0.97, 3),
    ),
    ("only lost ones", {}, {"dead_lettered": 2}, (2, 2, 0.0, 100.0)),
    ("another time is promised", {"of": "wait"}, {"sojourn": _took(more=5), "wait": _took(s10=10)}, (10, 0, 1.0, 0.0)),
    ("the last bound", {"within_s": 86_400}, {"sojourn": _took(s86400=9, more=1)}, (10, 1, 0.9, 10.0)),
    ("no message has ended", {}, {}, (0, 0, None, None)),
]


@pytest.mark.parametrize(("why", "promise", "known", "counted"), CASES, ids=[case[0] for case in CASES])
def test_an_objective_is_counted(
    why: str, promise: dict[str, Any], known: dict[str, Any], counted: tuple[int, int, float, float]
) -> None:
    del why
    durations = {name: took for name, took in known.items() if isinstance(took, Duration)}
    totals = {name: total for name, total in known.items() if name not in durations}
    objective = Objective.model_validate({"queues": "orders", "within_s": 30} | promise)
    [found] = objective_results({"orders-30s": objective}, queue_view("orders", durations=durations, totals=totals))
    view = found.to_dict()
    assert (view["ended"], view["missed"]) == counted[:2]
    assert (view["in_time_ratio"], view["budget_used_ratio"]) == pytest.approx(counted[2:])


def test_an_objective_matches_whole_names() -> None:
    """As in Prometheus, the pattern `orders` does not match orders-dlq."""
    objectives = {"a": Objective(queues="orders", within_s=30), "b": Objective(queues="orders.*", within_s=30)}
    assert [found.name for found in objective_results(objectives, queue_view("orders"))] == ["a", "b"]
    assert [found.name for found in objective_results(objectives, queue_view("orders-dlq"))] == ["b"]
    assert list(objective_results(objectives, queue_view("new-orders"))) == []
