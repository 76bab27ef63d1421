"""Single samples looked up without numpy, and statuses of many queues from a few samples, against the obvious way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.core.settings import QueueName
from streaming.judge.history.history import History
from streaming.judge.history.window import COLUMN, FIELDS, Window
from streaming.judge.rules.status import flows_not_ok, recent_flows

T0 = 1_700_000_000_000
VALUES = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), max_size=12)


@given(steps=VALUES, since=st.integers(-2, 70))
def test_a_change_is_that_between_the_sample_then_and_the_last(steps: list[tuple[int, int]], since: int) -> None:
    """Before the first sample, the first one counts."""
    at = T0 + np.cumsum([gap for gap, _ in steps], dtype=np.int64)
    values = np.zeros((len(steps), len(FIELDS)), dtype=np.int64)
    values[:, COLUMN["sent"]] = [value for _, value in steps]
    window = Window(at, values)
    then = int(np.searchsorted(at, T0 + since, side="right")) - 1
    assert window.last_before(T0 + since) == then
    sent = window["sent"]
    assert window.change("sent", T0 + since) == (int(sent[-1] - sent[max(then, 0)]) if steps else 0)
    assert window.since(T0 + since).at.tolist() == [time for time in at.tolist() if time >= T0 + since]


QUEUE = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2), st.integers(0, 3))
"""Of one queue at one time: its backlog, how many were settled and received since, and how long the oldest has waited."""


@pytest.mark.simulation
@given(samples=st.lists(st.lists(QUEUE, min_size=4, max_size=4), min_size=1, max_size=9), late=st.booleans())
def test_queues_that_are_not_ok_are_found_from_a_few_samples(samples: list[list[tuple[int, int, int, int]]], late: bool) -> None:
    """One queue may be known only from the second sample on."""
    names = [QueueName("aws_sqs", "", name) for name in "abcd"]
    history, totals, now = History(), np.zeros((4, 2), dtype=np.int64), T0
    for i, sample in enumerate(samples):
        now = T0 + i * 40_000
        totals += np.array([(settled, received) for _, settled, received, _ in sample])
        table = np.zeros((4, len(FIELDS)), dtype=np.int64)
        table[:, COLUMN["present"]] = 1
        table[:, COLUMN["settled"]], table[:, COLUMN["received"]] = totals.T
        table[:, COLUMN["unsettled"]] = [backlog for backlog, *_ in sample]
        table[:, COLUMN["oldest_visible_at"]] = [now - 60_000 * waited if backlog else 0 for backlog, *_, waited in sample]
        known = 3 if late and not i else 4
        history.add(now, names[:known], table[:known])
    everyone = np.arange(3 if late and len(samples) == 1 else 4)
    one_by_one = [status != "ok" for status in recent_flows(history, everyone, now)]
    assert flows_not_ok(history, everyone, now).tolist() == one_by_one
