"""Service-level objectives of queues, "99% settled within 30 s over 28 days", as recording rules.

Burn rate 1 uses up exactly the allowed misses in 28 days. The windows and factors of the two alerts are those of the SRE
workbook ("Alerting on SLOs", multiwindow, multi-burn-rate): a long window shows that it matters, a short one that it continues.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field, StringConstraints, field_validator

from alerts.patterns import Pattern
from alerts.units import duration, number
from streaming.config.section import Section
from streaming.judge.metrics import QUEUE_LABELS, le_label
from streaming.judge.snapshot import DURATION_BUCKETS_S

PERIOD_S: Final = 28 * 86_400
"""Four weeks: every period has the same weekdays."""
SHORT_WINDOWS_S: Final = (300, 1_800, 3_600, 7_200, 21_600)
LONG_WINDOWS_S: Final = (86_400, 259_200, PERIOD_S)
SHORT_INTERVALS: Final = 5
LONG_INTERVALS: Final = 100
"""Windows of hours and of days read much data and change slowly, so their rules have an interval this many times as long."""


class Pair(NamedTuple):
    """Two windows that alert together.

    Over the long one, `budget_ratio` of the budget was used up; over the short one, it still burns as fast.
    """

    long_s: int
    short_s: int
    budget_ratio: float

    @property
    def factor(self) -> float:
        """How many times faster than allowed the budget is then burning."""
        return self.budget_ratio * PERIOD_S / self.long_s


FAST: Final = (Pair(3_600, 300, 0.02), Pair(21_600, 1_800, 0.05))
SLOW: Final = (Pair(86_400, 7_200, 0.1), Pair(259_200, 21_600, 0.1))
FEWEST_MISSED: Final = 5
"""Minimum number of late or lost messages for an alert: when a queue has few messages, one is a large share."""

BURN: Final = "queue:queuewatch_objective_burn:rate"
ENDED: Final = "queue:queuewatch_objective_ended:rate"
MISSED: Final = "queue:queuewatch_objective_missed:increase"
BUDGET_LEFT: Final = "queue:queuewatch_objective_budget_left:ratio"

LOST: Final = ("dead_lettered", "expired", "dropped")
"""Totals of messages that were never settled, so not in time either."""

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
"""An objective's name, which becomes the label `objective`."""


class Objective(Section):
    """How soon messages of some queues should be settled, and which share of them must be."""

    queues: Pattern
    """The names of the queues."""
    within_s: Annotated[float, Field(gt=0)]
    """The time limit in seconds; must be one of the histograms' bounds."""
    ratio: Annotated[float, Field(gt=0, lt=1)] = 0.99
    """The share of messages that must be in time, 0..1."""
    of: Literal["sojourn", "wait", "processing"] = "sojourn"
    """What is timed: from sent to settled, from sent to first received, or from last received to settled."""

    @field_validator("within_s")
    @classmethod
    def _a_bound(cls, within_s: float) -> float:
        if within_s not in DURATION_BUCKETS_S:
            bounds = ", ".join(number(bound) for bound in DURATION_BUCKETS_S)
            raise ValueError(
                f"within_s is {number(within_s)}, but messages are counted up to bounds of {bounds} seconds: take one of them"
            )
        return within_s


def short_rules(objectives: Mapping[str, Objective], keep_labels: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the recording rules of the windows up to six hours."""
    return _rules(objectives, keep_labels, SHORT_WINDOWS_S)


def long_rules(objectives: Mapping[str, Objective], keep_labels: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the recording rules of the windows of days, and of the remaining budget."""
    rules = _rules(objectives, keep_labels, LONG_WINDOWS_S)
    period = duration(PERIOD_S)
    for name in objectives:
        left = f'1 - {BURN}{period}{{objective="{name}"}}'
        rules.append({"record": f"{BUDGET_LEFT}{period}", "expr": left, "labels": {"objective": name}})
    return rules


def _rules(objectives: Mapping[str, Objective], keep_labels: tuple[str, ...], windows_s: tuple[int, ...]) -> list[dict[str, Any]]:
    by = ", ".join(("job", *keep_labels, *QUEUE_LABELS))
    return [
        {"record": record, "expr": expr, "labels": {"objective": name}}
        for name, objective in objectives.items()
        for window_s in windows_s
        for record, expr in _window(name, objective, by, window_s)
    ]


def _window(name: str, objective: Objective, by: str, window_s: int) -> Iterator[tuple[str, str]]:
    window = duration(window_s)
    queues = f"queue=~{json.dumps(objective.queues, ensure_ascii=False)}"
    timed = f"queuewatch_{objective.of}_seconds"
    settled = f"rate({timed}_count{{{queues}}}[{window}])"
    # A dead letter was not settled in time either, but a histogram of settled messages does not include it. Any of the totals may
    # have no series; the label tells them apart, because `rate` drops their names.
    lost = [
        f'label_replace(rate(queuewatch_messages_{what}_total{{{queues}}}[{window}]), "lost", "{what}", "", "")' for what in LOST
    ]
    yield f"{ENDED}{window}", f"sum by ({by}) ({' or '.join((settled, *lost))})"
    ended = f'sum by ({by}) ({ENDED}{window}{{objective="{name}"}})'
    in_time = f'sum by ({by}) (rate({timed}_bucket{{le="{le_label(objective.within_s)}",{queues}}}[{window}]))'
    missed = f"({ended} - ({in_time} or 0 * {ended}))"
    yield f"{MISSED}{window}", f"{missed} * {window_s}"
    yield f"{BURN}{window}", f"{missed} / ({ended} > 0) / {number(round(1 - objective.ratio, 9))}"
