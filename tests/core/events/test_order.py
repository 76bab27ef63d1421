"""The fast way of ordering events gives the same result as the slow one."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from streaming.core.events.order import message_order

# Keys that differ in high bits, in low bits only, and not at all; times close by and decades apart.
KEYS = st.one_of(st.integers(0, 3), st.integers(0, 3).map(lambda k: k << 62), st.integers(0, 2**64 - 1))
TIMES = st.one_of(st.integers(1_700_000_000_000, 1_700_000_000_003), st.integers(0, 2**59))
EVENTS = st.lists(st.tuples(KEYS, TIMES, st.integers(1, 11), st.integers(0, 2)), min_size=1, max_size=40)


@given(EVENTS)
@example([(1, 5, 1, 0), (2, 5, 1, 0), (1, 6, 1, 0), (2, 4, 1, 0)])
@example([(7, 5, 3, 2), (7, 5, 3, 1), (7, 5, 3, 0)])
def test_events_are_ordered_by_message_time_kind_and_end(events: list[tuple[int, int, int, int]]) -> None:
    """Events equal in all of these keep their order of arrival."""
    columns = zip(zip(*events, strict=True), ("u8", "i8", "u1", "i8"), strict=True)
    order = message_order(*(np.array(values, dtype=dtype) for values, dtype in columns))
    assert order.tolist() == sorted(range(len(events)), key=events.__getitem__)
