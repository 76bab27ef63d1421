"""The present of all queues as rows of the history."""

from __future__ import annotations

import numpy as np

from streaming.core.reporting.merge import MergedQueues
from streaming.core.state.queues import NEVER, TOTALS
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
_BUCKET_MS = np.array([2 ** ((bucket + 0.5) / 2) for bucket in range(64)])


def sample_table(queues: MergedQueues, places: Ints) -> Ints:
    """A row of FIELDS for each of the queues at `places`."""
    table = np.zeros((len(places), len(FIELDS)), dtype=np.int64)
    totals, holds = queues.totals[places], queues.holds[places]
    column = {name: queues.columns[name][places] for name in ("visible", "in_flight", "delayed")}
    table[:, _SAME_TO] = totals[:, _SAME_FROM]
    settled = totals[:, _SETTLED_FROM].sum(axis=1)
    oldest = queues.oldest[places, 1]
    for name, values in (
        ("settled", settled),
        ("departed", settled - totals[:, TOTALS.index("reconciled")]),
        *((f"tracked_{state}", values) for state, values in column.items()),
        ("oldest_visible_at", np.where((column["visible"] > 0) & (oldest < NEVER), oldest, 0)),
        *(
            (name, queues.columns[name][places])
            for name in ("counted_at", "counted_visible", "counted_in_flight", "counted_delayed")
        ),
        ("unsettled", column["visible"] + column["in_flight"] + column["delayed"]),
        ("present", 1),
        # Time for which deleted messages had been held, to the width of a bucket, and their number.
        ("work_ms", (holds * _BUCKET_MS).sum(axis=1).astype(np.int64)),
        ("work_count", holds.sum(axis=1)),
    ):
        table[:, COLUMN[name]] = values
    return table
