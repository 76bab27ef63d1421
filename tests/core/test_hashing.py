"""Message ids as bits, and back to text."""

from __future__ import annotations

import uuid
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.core import hashing
from streaming.core.columns import distinct
from streaming.core.hashing import bits_to_uuid, ids_to_bits

UUIDS = st.uuids().map(str)


@given(st.lists(st.one_of(UUIDS, st.text(max_size=40), st.none()), max_size=30), st.sampled_from([1, 2, 7, 30]))
def test_a_uuid_is_its_bits_and_any_other_text_is_hashed(ids: list[str | None], at_a_time: int) -> None:
    """Whatever else is in the column, wherever its slice begins, and however many ids are hashed at a time."""
    column = pa.array(["before", *ids], pa.string())[1:]
    with patch.object(hashing, "_AT_A_TIME", at_a_time):
        hi, lo, is_uuid = ids_to_bits(column)
    for i, text in enumerate(ids):
        expected = text is not None and _is_usual_uuid(text)
        assert is_uuid[i] == expected
        if expected:
            assert bits_to_uuid(int(hi[i]), int(lo[i])) == text
    same: dict[str, tuple[int, int]] = {}
    for text, bits in zip(ids, zip(hi.tolist(), lo.tolist(), strict=True), strict=True):
        assert same.setdefault(text or "", bits) == bits
    assert len(set(same.values())) == len(same)


@pytest.mark.parametrize("character", [chr(code) for code in range(1, 256)])
def test_only_lower_case_hex_digits_are_a_uuid(character: str) -> None:
    """At every position, in a column of UUIDs otherwise: text that cannot be rebuilt from its bits must be stored."""
    good = str(uuid.UUID(int=0x0123_4567_89AB_CDEF_0123_4567_89AB_CDEF))
    for place in range(36):
        text = good[:place] + character + good[place + 1 :]
        _, _, is_uuid = ids_to_bits(pa.array([good, text, good]))
        assert is_uuid.tolist() == [True, _is_usual_uuid(text), True]


@given(st.lists(st.integers(-1, 50)), st.sampled_from([51, 1 << 40]))
def test_distinct_numbers_are_the_same_by_table_and_by_sorting(numbers: list[int], below: int) -> None:
    """Few possible numbers use the table, many use sorting."""
    kept, place = distinct(np.array(numbers, dtype=np.int64), below)
    assert kept.tolist() == sorted(set(numbers) - {-1})
    assert [-1 if at < 0 else int(kept[at]) for at in place] == numbers


def _is_usual_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
