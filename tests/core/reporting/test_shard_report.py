"""A report read back from its bytes has the same columns, in the same types."""

from __future__ import annotations

import io
import pickle
from collections import Counter
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from streaming.core.columns import Array
from streaming.core.events.packet import empty_packet
from streaming.core.reporting.narrowing import Narrowing
from streaming.core.reporting.shard_report import ShardReport
from streaming.core.settings import Settings
from streaming.core.state.queues import NEVER
from streaming.core.state.state import ShardState
from streaming.core.track import track

AT = 1_700_000_000_000
INT64 = np.iinfo(np.int64)
EDGES = (INT64.min, -1, 0, 1, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, AT, AT + 1, AT + 70_000, NEVER, INT64.max)


def report_with(column: Array) -> ShardReport:
    _, report = track(ShardState.empty(), empty_packet(), 1_000, Settings())
    return replace(report, queues=replace(report.queues, totals=column))


@given(
    st.tuples(st.integers(0, 3), st.integers(0, 90)).flatmap(
        lambda shape: arrays(np.int64, shape, elements=st.sampled_from(EDGES), fill=st.sampled_from(EDGES))
    )
)
def test_columns_are_the_same_whatever_their_values(column: Array) -> None:
    """Long and short ones, constant ones, and those that need all 64 bits."""
    again = ShardReport.from_bytes(report_with(column).to_bytes()).queues.totals
    assert again.dtype == np.int64
    assert np.array_equal(again, column)


@given(
    st.sampled_from([np.int32, np.int64, np.uint8, np.uint32, np.uint64]),
    st.lists(st.sampled_from([0, 1, 3, 255, 256]), min_size=60, max_size=90),
    st.booleans(),
)
def test_types_and_order_are_kept(dtype: type[np.integer[Any]], steps: list[int], ascending: bool) -> None:
    """Row numbers ascend, in 32 bits; ids are unsigned."""
    column = np.cumsum(steps).astype(dtype)[:: 1 if ascending else -1]
    again = written(column)[1]
    assert again.dtype == column.dtype
    assert np.array_equal(again, column)


def written(column: Any) -> tuple[int, Any]:
    """Return how many bytes a column takes before compression, and what is read back."""
    body = io.BytesIO()
    Narrowing(body, protocol=5).dump(column)
    return body.tell(), pickle.loads(body.getvalue())


TIMES = AT + np.arange(1_000, dtype=np.int64) * 7 % 40_000


@pytest.mark.parametrize(
    ("column", "most"),
    [
        (np.arange(1_000, dtype=np.int32) * 200, 1_200),
        (np.where(np.arange(1_000) % 3, TIMES, 0), 2_300),
        (np.where(np.arange(1_000) % 3, TIMES, NEVER), 2_300),
        (np.stack([TIMES, np.full(1_000, NEVER), np.arange(1_000) % 9], axis=1), 3_700),
        (pa.nulls(1_000, pa.string()), 200),
    ],
    ids=["row numbers", "times or 0", "times or never", "table", "no texts"],
)
def test_what_most_columns_look_like_takes_few_bytes(column: Any, most: int) -> None:
    """Each of a thousand numbers has eight bytes, or four."""
    size, again = written(column)
    assert size < most
    assert again.equals(column) if isinstance(column, pa.Array) else np.array_equal(again, column)


def test_other_fields_are_the_same() -> None:
    """What is no column of integers."""
    report = replace(report_with(np.zeros((2, 2), dtype=np.int64)), invalid_total=Counter(bad=3), collectors={"a": 5})
    again = ShardReport.from_bytes(report.to_bytes())
    for name in (field.name for field in fields(ShardReport)):
        if name != "queues":
            assert getattr(again, name) == getattr(report, name)


def bytes_before_compression(column: Array) -> int:
    """Return the size that the report begins with."""
    return int.from_bytes(report_with(column).to_bytes()[:8], "little")


def test_a_column_of_small_numbers_takes_a_byte_each() -> None:
    """And one that is the same everywhere takes none: what is written is compressed, and read, as a whole."""
    small, same = np.arange(10_000, dtype=np.int64) % 200 + 10**12, np.full(10_000, 10**12)
    empty = bytes_before_compression(np.zeros(0, dtype=np.int64))
    assert bytes_before_compression(small) - empty < 10_500
    assert bytes_before_compression(same) - empty < 500


def test_a_constant_column_takes_no_memory() -> None:
    """However many queues it has: those of a hundred thousand are nearly all alike."""
    again = ShardReport.from_bytes(report_with(np.full(10_000, 10**12)).to_bytes()).queues.totals
    assert again.strides == (0,)


def test_what_repeats_takes_little() -> None:
    """Java copies a report several times on its way to the driver, and most queues of a large account are alike."""
    alike = np.tile(np.random.default_rng(0).integers(0, 200, 100), 1_000)
    assert len(report_with(alike).to_bytes()) < 5_000
