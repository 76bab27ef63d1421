"""A step adds attempts to the sorted timelines of all messages: only those it adds to are sorted."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streaming.core.columns import Array
from streaming.core.tracking.attempts import merged_order

Attempts = list[tuple[int, int, int]]

ATTEMPTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(1, 3)), max_size=20)


def columns(attempts: Attempts) -> dict[str, Array]:
    """The columns that determine the order."""
    key, at, code = np.array(attempts, dtype=np.int64).reshape(-1, 3).T
    return {"key": key.astype(np.uint64), "at": at, "code": code.astype(np.uint8)}


@given(known=ATTEMPTS, added=ATTEMPTS)
def test_they_are_in_the_order_of_message_time_and_kind(known: Attempts, added: Attempts) -> None:
    """Those that are equal keep their order, as if all were sorted together."""
    table = columns([*sorted(known), *added])
    expected = np.lexsort((table["code"], table["at"], table["key"]))
    assert merged_order(table, len(known)).tolist() == expected.tolist()


def test_only_the_timelines_that_grow_are_sorted() -> None:
    """Sorting all of 120,000 took 50 ms, once for each time that a message ended and was delivered again within the step."""
    known = [(key, at, 1) for key in range(1_000) for at in range(3)]
    with patch.object(np, "lexsort", side_effect=np.lexsort) as lexsort:
        merged_order(columns([*known, (7, 5, 1), (2_000, 1, 1)]), len(known))
    (by,), _ = lexsort.call_args
    assert len(by[0]) == 5
