"""Times that are stored as distances come back as they were."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streaming.core.columns import pack_columns, unpack_columns
from streaming.core.hashing import lows, row_key
from streaming.core.state.related_columns import OF_ROWS, to_distances, to_times

NAMES = ("sent", *OF_ROWS)
TIMES = st.sampled_from([0, 1, 999, 1_000, 1_001]) | st.integers(0, 1 << 45)
WORDS = st.integers(0, (1 << 64) - 1)


@given(st.lists(st.tuples(*[TIMES] * len(NAMES)), min_size=1, max_size=30), st.sets(st.sampled_from(NAMES)))
def test_times_come_back(rows: list[tuple[int, ...]], absent: set[str]) -> None:
    """In any order, unknown ones (0) among them; a column of only zeros is not there."""
    table = np.array(rows, dtype=np.int64).T
    columns = {name: values.copy() for name, values in zip(NAMES, table, strict=True) if name not in absent}
    stored = to_distances(columns, OF_ROWS, {name: columns.get(name) for name in NAMES})
    unpacked, _ = unpack_columns(pack_columns(stored, {}, compress=True))
    to_times(unpacked, OF_ROWS)
    assert {name: values.tolist() for name, values in unpacked.items()} == {
        name: values.tolist() for name, values in columns.items()
    }


def test_columns_of_an_earlier_format_stay_as_they_are() -> None:
    columns = {"sent": np.array([5]), "ended": np.array([9])}
    to_times(columns, OF_ROWS)
    assert {name: values.tolist() for name, values in columns.items()} == {"sent": [5], "ended": [9]}


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=30))
def test_the_low_word_of_an_id_follows_from_its_key(rows: list[tuple[int, ...]]) -> None:
    """For any id and any queue, so that leaving it out loses nothing."""
    hi, lo, queue = np.array(rows, dtype=np.uint64).T
    assert lows(hi, row_key(hi, lo, queue), queue).tolist() == lo.tolist()
