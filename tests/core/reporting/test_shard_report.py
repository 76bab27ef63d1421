"""A report read back from its bytes has the same columns, in the same types."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from streaming.core.columns import Array
from streaming.core.events.packet import empty_packet
from streaming.core.reporting.shard_report import ShardReport
from streaming.core.settings import Settings
from streaming.core.state.state import ShardState
from streaming.core.track import track

INT64 = np.iinfo(np.int64)
EDGES = (INT64.min, -1, 0, 1, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 1_700_000_000_000, INT64.max)


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
