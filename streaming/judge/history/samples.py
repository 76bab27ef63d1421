"""Convert the present of all queues to rows of the history."""

from __future__ import annotations

import numpy as np

from streaming.core.reporting.merge import MergedQueues
from streaming.core.reporting.queue_columns import INTEGERS, LATEST_COUNT
from streaming.core.reporting.views import STATES
from streaming.core.state.queues import END_TOTALS, NEVER, TOTALS
from streaming.judge.history.window import COLUMN, FIELDS, Ints

_SAME = tuple(name for name in FIELDS if name in TOTALS)
_SAME_FROM = [TOTALS.index(name) for name in _SAME]
_SAME_TO = [COLUMN[name] for name in _SAME]
_READ = [INTEGERS.index(name) for name in (*STATES, *LATEST_COUNT)]
_READ_TO = [COLUMN[name] for name in (*(f"tracked_{state}" for state in STATES), *LATEST_COUNT)]
_SETTLED_FROM = [TOTALS.index(name) for name in END_TOTALS]


def sample_table(queues: MergedQueues, places: Ints) -> Ints:
    """Return a row of FIELDS for each of the queues at `places`. Each column is together in memory, as it is written."""
    table = np.zeros((len(FIELDS), len(places)), dtype=np.int64).T
    totals = queues.totals.T[:, places]
    integers = queues.integers[_READ][:, places]
    states = integers[: len(STATES)]
    table[:, _SAME_TO] = totals[_SAME_FROM].T
    table[:, _READ_TO] = integers.T
    reconciled, found_later = (totals[TOTALS.index(name)] for name in ("reconciled", "found_later"))
    ended = totals[_SETTLED_FROM].sum(axis=0)
    oldest = queues.oldest[places, 1]
    for name, values in (
        ("settled", ended - found_later),
        ("departed", ended - reconciled),
        ("oldest_visible_at", np.where((states[0] > 0) & (oldest < NEVER), oldest, 0)),
        ("unsettled", states.sum(axis=0)),
        ("present", 1),
    ):
        table[:, COLUMN[name]] = values
    return table
