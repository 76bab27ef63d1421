"""The present of all queues as rows of the history."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streaming.core.queues import NEVER, TOTALS
from streaming.core.report import QueueFacts
from streaming.judge.history import COLUMN, FIELDS, Ints

SETTLED_TOTALS = ("deleted", "dead_lettered", "redriven", "expired", "dropped", "reconciled")
_SAME = (
    "received",
    "deleted",
    "retried",
    "sent",
    "touched",
    "touched_unsent",
    "unseen_receives",
    "failed",
    "outlived",
    "arrived",
)
_SAME_FROM = [TOTALS.index(name) for name in _SAME]
_SAME_TO = [COLUMN[name] for name in _SAME]
_SETTLED_FROM = [TOTALS.index(name) for name in SETTLED_TOTALS]
_GAUGES = (
    "tracked_visible",
    "tracked_in_flight",
    "tracked_delayed",
    "oldest_visible_at",
    "counted_at",
    "counted_visible",
    "counted_in_flight",
)
_GAUGES_TO = [COLUMN[name] for name in (*_GAUGES, "counted_delayed", "unsettled", "present")]
_BUCKET_MS = [2 ** ((bucket + 0.5) / 2) for bucket in range(64)]


def sample_table(queues: Sequence[QueueFacts]) -> Ints:
    """A row of FIELDS for each queue."""
    table = np.zeros((len(queues), len(FIELDS)), dtype=np.int64)
    if not queues:
        return table
    totals = np.array([facts.totals for facts in queues], dtype=np.int64)
    table[:, _SAME_TO] = totals[:, _SAME_FROM]
    table[:, COLUMN["settled"]] = totals[:, _SETTLED_FROM].sum(axis=1)
    table[:, COLUMN["departed"]] = table[:, COLUMN["settled"]] - totals[:, TOTALS.index("reconciled")]
    table[:, _GAUGES_TO] = [_gauges(facts) for facts in queues]
    table[:, [COLUMN["work_ms"], COLUMN["work_count"]]] = [_work(facts) for facts in queues]
    return table


def _gauges(facts: QueueFacts) -> tuple[int, ...]:
    numbers = facts.numbers
    visible, in_flight, delayed = numbers["visible"], numbers["in_flight"], numbers["delayed"]
    oldest = facts.oldest[1] if visible and facts.oldest[1] < NEVER else 0
    counted = facts.depths[-1] if facts.depths else (0, 0, 0, 0)
    return visible, in_flight, delayed, oldest, *counted, visible + in_flight + delayed, 1


def _work(facts: QueueFacts) -> tuple[int, int]:
    """Time for which deleted messages had been held, in milliseconds to the width of a bucket, and their number."""
    return int(sum(_BUCKET_MS[bucket] * n for bucket, n in facts.holds.items())), sum(facts.holds.values())
