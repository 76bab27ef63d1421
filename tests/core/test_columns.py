"""Columns packed to one blob are restored exactly, and take few bytes."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streaming.core.columns import MAGIC, Array, UnreadableBlob, highest_bit, pack_columns, unpack_columns

T = 1_760_000_000_000
TYPES = (np.uint8, np.int32, np.uint32, np.int64, np.uint64)


@st.composite
def columns(draw: st.DrawFn) -> dict[str, Array]:
    """Columns of every type: constant, narrow, wide, with and without zeros, up to the limits of the type."""
    found = {}
    for number in range(draw(st.integers(0, 6))):
        dtype = draw(st.sampled_from(TYPES))
        ends: Any = np.iinfo(dtype)
        near = draw(st.sampled_from([0, 1, 255, 70_000, T, ends.min, ends.max]))
        near = min(max(near, ends.min), ends.max)
        values = st.sampled_from([0, near, min(near + 1, ends.max), max(near - 1, ends.min), min(near + 300, ends.max)])
        found[f"c{number}"] = np.array(draw(st.lists(values, max_size=20)), dtype=dtype)
    return found


@pytest.mark.slow
@settings(max_examples=300)
@given(columns(), st.sets(st.sampled_from([f"c{n}" for n in range(6)])), st.booleans())
@example({}, set(), True)
@example({"c0": np.zeros(0, "i8"), "c1": np.arange(9, dtype="u8")}, {"c1"}, True)
@example({"c0": np.array([0, T, T + 5], "i8"), "c1": np.array([0, 1 << 63, 5], "u8")}, {"c1"}, True)
def test_columns_come_back_as_they_were(packed: dict[str, Array], raw: set[str], compress: bool) -> None:
    """Values, types and lengths are kept, compressed or not, whichever columns are declared as random."""
    blob = pack_columns(packed, {"names": [1, "ü"]}, raw=frozenset(raw), compress=compress)
    found, header = unpack_columns(memoryview(blob))
    assert header == {"names": [1, "ü"]}
    assert found.keys() == packed.keys()
    for name, values in packed.items():
        assert found[name].dtype == values.dtype
        assert found[name].tolist() == values.tolist()
        assert found[name].flags.writeable or not len(values)


def test_times_take_few_bytes_and_random_ids_no_more_than_they_have() -> None:
    """Half a minute of milliseconds, half of them unknown; ids; and a hash that only few rows have."""
    generator = np.random.default_rng(1)
    n = 10_000
    ids = generator.integers(1, 1 << 63, n).astype("u8")
    times = np.where(generator.random(n) < 0.5, 0, T + generator.integers(0, 30_000, n))
    hashes = np.where(np.arange(n) % 100 == 0, ids, 0).astype("u8")
    sizes = [
        len(pack_columns({"x": x}, {}, raw=frozenset({"x"} if x.dtype == "u8" else ()), compress=True))
        for x in (ids, times, hashes)
    ]
    assert 8 * n <= sizes[0] < 8 * n + 200
    assert sizes[1] < 2.2 * n
    assert sizes[2] < 0.3 * n


@pytest.mark.parametrize("blob", [b"", MAGIC, b"QWC1" + bytes(20), b"PAR1" + bytes(20)])
def test_what_is_no_blob_of_this_version_is_refused_by_name(blob: bytes) -> None:
    """A file of another kind, a truncated one, one of an earlier layout."""
    with pytest.raises(UnreadableBlob, match="QWC2"):
        unpack_columns(blob)


@pytest.mark.parametrize("dtype", ["4,,", "4,4", "O", "<M8[s]", "", 4, None])
def test_a_column_of_a_type_that_is_never_packed_is_refused(dtype: object) -> None:
    """NumPy would parse such a name as a Python expression, with any error that a parser has."""
    blob = pack_columns({"x": np.arange(3, dtype="<i4")}, {}, compress=False)
    (length,) = struct.unpack_from("<I", blob, 4)
    head = json.loads(blob[8 : 8 + length])
    head["c"][0]["t"] = dtype
    changed = json.dumps(head).encode()
    with pytest.raises(UnreadableBlob, match="damaged"):
        unpack_columns(MAGIC + struct.pack("<I", len(changed)) + changed + blob[8 + length :])


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("name", ["int64", "uint64", "int32", "uint8", "bool"])
def test_columns_come_back_in_numpy_s_usual_type(name: str, compress: bool) -> None:
    """C has two integer types of 64 bits, and numpy is twenty times slower where one meets the other, as in `minimum.at`."""
    usual = np.dtype(name)
    columns = {"narrow": np.arange(90).astype(usual), "same": np.ones(90, dtype=usual), "raw": np.arange(90).astype(usual)}
    again, _ = unpack_columns(pack_columns(columns, {}, raw=frozenset({"raw"}), compress=compress))
    assert {values.dtype.num for values in again.values()} == {usual.num}


@given(
    st.integers(-5, 5),
    st.dictionaries(st.integers(0, 399), st.integers(-(1 << 40), 1 << 40), max_size=60),
    st.sampled_from(["i8", "i4", "u1", "u8"]),
    st.booleans(),
)
def test_a_column_of_which_nearly_all_is_the_same(usual: int, others: dict[int, int], dtype: str, raw: bool) -> None:
    """Whether few or many values differ, and above or below the usual one, in a state and on the wire."""
    values = np.full(400, usual).astype(dtype)
    for place, value in others.items():
        values[place] = np.array(value).astype(dtype)
    for compress in (True, False):
        blob = pack_columns({"x": values, "y": values[::-1]}, {}, raw=frozenset("x" if raw else ""), compress=compress)
        found, _ = unpack_columns(blob)
        for name, expected in (("x", values), ("y", values[::-1])):
            assert found[name].dtype == values.dtype
            assert found[name].tolist() == expected.tolist()
            found[name][:] = 1  # Its owner may change it.


def test_a_sparse_column_takes_the_space_of_what_differs() -> None:
    values = np.zeros(1_000_000, dtype=np.int64)
    values[::100_000] = np.random.default_rng(1).integers(1, 1 << 62, 10)
    assert len(pack_columns({"x": values}, {}, compress=True)) < 400
    assert len(pack_columns({"x": values}, {}, raw=frozenset({"x"}), compress=True)) < 400


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20))
@example([0, 1, 2, 3, 2**53 + 1, 2**54 - 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_the_highest_bit_is_found_in_all_64(values: list[int]) -> None:
    """As a floating-point number, 2^54 - 1 would be 2^54."""
    assert highest_bit(np.array(values, dtype=np.uint64)).tolist() == [value.bit_length() for value in values]


def test_a_long_header_that_is_not_stored_is_compressed() -> None:
    """Names that take four bytes a character are written with twelve, and a batch of them would fill Java's memory."""
    header = {"groups": [f"{n}" + "\N{GRINNING FACE}" * 500 for n in range(1_000)]}
    columns = {"at": np.arange(1_000)}
    blob = pack_columns(columns, header, compress=False)
    assert len(blob) < 1_000_000
    found, names = unpack_columns(blob)
    assert names == header
    assert found["at"].tolist() == list(range(1_000))
    for end in (9, 20, len(blob) // 2):
        with pytest.raises(UnreadableBlob):
            unpack_columns(blob[:end])
    # What is stored can be read by earlier releases.
    assert pack_columns(columns, header, compress=True)[:4] == MAGIC
