"""Named numpy columns and a small JSON header as one compact blob: packets on the wire and state on disk.

Layout: magic, u32 header length, JSON header (a long one of a packet is compressed), then the columns' bytes. State columns are
zstd-compressed together; columns of random bytes, which would not compress, follow them. Integers are stored as their distance
from the minimum in the fewest bytes that hold it, with zero (unknown) kept apart; a constant column takes no bytes at all, and a
state column of which nearly all is the same only the rest of it. The header carries a format version, so that old blobs stay
readable.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Array = npt.NDArray[Any]
Buffer = bytes | memoryview

MAGIC = b"QWC2"
MAGIC_LONG = b"QWC3"
"""Begins a blob whose header is compressed, after its two lengths."""
_LONG_HEADER = 1 << 22
"""Longer headers of blobs that are not stored are compressed: they hold names and attributes, which may be long and written with
several bytes a character, and pass through Java."""
CODEC = pa.Codec("zstd", compression_level=1)
"""That of states, reports and the judge's memory."""
_SPARSE = 8
"""A column is stored as places and values when fewer than one of so many values are not its minimum."""
_UNSIGNED = (np.dtype("u1"), np.dtype("u2"), np.dtype("u4"))
# From their names, not their codes: `q` is as long as the usual `l`, but another type, and numpy is twenty times slower where
# the two meet.
_TYPES = {name: np.dtype(name) for name in (np.dtype(code).str for code in "?bBhHiIqQefd")}
"""The types a column can have. NumPy itself would read any name, some as a Python expression."""


def nonzero(values: Array) -> Array:
    """Return the indices of what is true or not zero. `flatnonzero` takes six times as long for a few values."""
    return values.nonzero()[0]


def highest_bit(bits: Array) -> Array:
    """Return the number of each value's highest bit that is set, from 1; 0 where none is."""
    filled = bits.copy()
    for distance in (1, 2, 4, 8, 16, 32):
        filled |= filled >> np.uint64(distance)
    result: Array = np.bitwise_count(filled).astype(np.int64)
    return result


def plain(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array without dictionary encoding."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def int_column(column: pa.ChunkedArray) -> Array:
    """Return a column of integers or booleans, 0 for null."""
    array = plain(column)
    if array.null_count == len(array):
        return np.zeros(len(array), dtype=np.int64)
    if array.null_count:
        array = pc.fill_null(array, False if pa.types.is_boolean(array.type) else 0)
    values: Array = array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return values


def dictionary(column: pa.ChunkedArray) -> tuple[list[str], Array]:
    """Return the distinct strings and each row's index into them, -1 for null or an empty string."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    if len(array) == array.null_count:
        return [], np.full(len(array), -1, dtype=np.int32)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    words = array.dictionary.to_pylist()
    index = pc.fill_null(array.indices, -1).to_numpy(zero_copy_only=False).astype(np.int32)
    if "" in words:
        index[index == words.index("")] = -1
    return words, index


def distinct(numbers: Array, below: int) -> tuple[Array, Array]:
    """Return the numbers of `0 … below - 1` that occur, ascending, and each element's index among them; -1 stays -1."""
    if below > max(1 << 20, 4 * len(numbers)):
        kept, place = np.unique(numbers, return_inverse=True)
        none = int(len(kept) > 0 and kept[0] < 0)
        return kept[none:], (place - none).astype(np.int32)
    # A lookup table of all possible numbers is many times faster than sorting the ones that occur.
    occurs = np.zeros(below + 1, dtype=bool)
    occurs[numbers] = True
    occurs[below] = False
    kept = nonzero(occurs)
    place_of = np.full(below + 1, -1, dtype=np.int32)
    place_of[kept] = np.arange(len(kept), dtype=np.int32)
    return kept, place_of[numbers]


def run_starts(*columns: Array) -> Array:
    """Return the mask of the rows that begin a run: the first row, and each that differs in a column from the row before."""
    differs = columns[0][1:] != columns[0][:-1]
    for values in columns[1:]:
        differs = differs | (values[1:] != values[:-1])
    return np.append(True, differs)


def text_columns(texts: pa.Array) -> tuple[Array, Array]:
    """Return strings as their lengths and their bytes."""
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = texts.buffers()[2]
    body = np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.zeros(0, np.uint8)
    return np.diff(offsets), body


def texts_of(lengths: Array, body: Array) -> pa.Array:
    """Return the strings encoded by `text_columns`."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(body)))


class UnreadableBlob(ValueError):
    """A blob that this version cannot read: it is damaged, or a newer version wrote it."""


DAMAGE = (ArithmeticError, AttributeError, LookupError, MemoryError, OSError, TypeError, ValueError, struct.error)
"""The errors that decoding corrupted bytes can raise."""


def pack_columns(
    columns: Mapping[str, Array],
    header: Mapping[str, Any],
    *,
    raw: frozenset[str] = frozenset(),
    compress: bool,
) -> bytes:
    """Pack `columns` (one-dimensional, any length) and `header` (JSON) into a blob. `raw` names columns not worth narrowing."""
    specs: list[dict[str, Any]] = []
    parts: list[bytes] = []
    apart = {name for name in raw if compress and name in columns and _is_dense(columns[name])}
    for name in sorted(columns, key=apart.__contains__):
        spec, body = _encode(columns[name], name in raw, shuffle=compress)
        specs.append({"n": name, **spec, "b": len(body)})
        parts.append(body)
    head: dict[str, Any] = {"h": header, "c": specs}
    if compress:
        together = len(parts) - len(apart)
        body = b"".join(parts[:together])
        packed = CODEC.compress(body, asbytes=True) if body else b""
        head["z"] = [len(packed), len(body)]
        parts[:together] = [packed]
    head_bytes = json.dumps(head, separators=(",", ":"), ensure_ascii=True).encode()
    if not compress and len(head_bytes) > _LONG_HEADER:
        packed = CODEC.compress(head_bytes, asbytes=True)
        return b"".join((MAGIC_LONG, struct.pack("<II", len(packed), len(head_bytes)), packed, *parts))
    return b"".join((MAGIC, struct.pack("<I", len(head_bytes)), head_bytes, *parts))


def unpack_columns(blob: bytes | memoryview) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the columns and header of `pack_columns`. Raises UnreadableBlob."""
    if blob[:4] not in (MAGIC, MAGIC_LONG) or len(blob) < 8:
        raise UnreadableBlob("not a blob of this queuewatch: it does not start with QWC2")
    try:
        return _unpacked(blob)
    except DAMAGE as error:
        raise UnreadableBlob(f"the blob is damaged: {error}") from error


def _unpacked(blob: bytes | memoryview) -> tuple[dict[str, Array], dict[str, Any]]:
    (head_len,) = struct.unpack_from("<I", blob, 4)
    start, head_bytes = 8, bytes(blob[8 : 8 + head_len])
    if blob[:4] == MAGIC_LONG:
        (size,) = struct.unpack_from("<I", blob, 8)
        start, head_bytes = 12, CODEC.decompress(bytes(blob[12 : 12 + head_len]), size, asbytes=True)
    head = json.loads(head_bytes)
    rest = memoryview(blob)[start + head_len :]
    stretches = [rest]
    if "z" in head:
        packed, size = head["z"]
        narrowed = memoryview(CODEC.decompress(pa.py_buffer(rest[:packed]), size)) if size else rest[:0]
        stretches = [narrowed, rest[packed:]]
    columns: dict[str, Array] = {}
    at = 0
    for spec in head["c"]:
        while at == len(stretches[0]) and len(stretches) > 1 and spec["b"]:
            stretches.pop(0)
            at = 0
        columns[spec["n"]] = _decode(spec, stretches[0][at : at + spec["b"]])
        at += spec["b"]
    return columns, head["h"]


def _is_dense(values: Array) -> bool:
    """Whether almost no value is zero: the bytes are random throughout, and compressing them only costs time."""
    return bool(np.count_nonzero(values) * 8 > len(values) * 7)


def _encode(values: Array, raw: bool, shuffle: bool) -> tuple[dict[str, Any], bytes]:
    values = np.ascontiguousarray(values)
    spec: dict[str, Any] = {"t": values.dtype.str, "l": len(values), "s": shuffle}
    if len(values) == 0 or values.dtype.kind not in "iu":
        return spec, values.tobytes()
    if raw:
        return _sparse(spec, values, 0) or (spec, values.tobytes())
    low, high = values.min(), values.max()
    if low == high:
        return spec | {"k": int(low)}, b""
    if (sparse := _sparse(spec, values, int(low))) is not None:
        return sparse
    zeros = False
    if low == 0:
        # Subtracting one makes a zero the largest value, so the minimum is that of the non-zero values.
        unsigned = values.view(f"u{values.dtype.itemsize}")
        low = int((unsigned - unsigned.dtype.type(1)).min()) + 1
        zeros = True
    # Non-zero values are stored plus one, so the widest distance needs room for it.
    span = int(high) - int(low) + int(zeros)
    narrow = next((t for t in _UNSIGNED if span < 1 << (8 * t.itemsize)), None)
    if narrow is None or narrow.itemsize >= values.dtype.itemsize:
        spec["w"] = 0
        return spec, _shuffled(values) if shuffle else values.tobytes()
    if zeros:
        small = (values - values.dtype.type(int(low) - 1)).astype(narrow)
        small *= values != 0
    else:
        small = (values - low).astype(narrow)
    spec |= {"w": narrow.itemsize, "o": int(low), "z": zeros}
    return spec, _shuffled(small) if shuffle else small.tobytes()


def _sparse(spec: dict[str, Any], values: Array, usual: int) -> tuple[dict[str, Any], bytes] | None:
    """Return a state column as the places and values that are not `usual`; None if those are too many."""
    differs = values != usual  # A mask: numpy finds the places of numbers that are not zero six times more slowly.
    if not spec["s"] or np.count_nonzero(differs) * _SPARSE >= len(values):
        return None
    places = nonzero(differs)
    steps, distances = _encode(np.diff(places, prepend=0), False, shuffle=True)
    rest, others = _encode(values[places], False, shuffle=True)
    return spec | {"d": usual, "p": [steps | {"b": len(distances)}, rest | {"b": len(others)}]}, distances + others


def _shuffled(values: Array) -> bytes:
    """Group all lowest bytes, then all second bytes and so on: the high bytes of neighbours are alike and compress well."""
    unsigned = values.view(f"u{values.dtype.itemsize}")
    planes = np.empty((unsigned.itemsize, len(values)), dtype=np.uint8)
    for i, plane in enumerate(planes):
        # Shifting is many times faster than copying every fourth byte.
        np.right_shift(unsigned, unsigned.dtype.type(8 * i), out=plane, casting="unsafe")
    return planes.tobytes()


def _unshuffled(body: memoryview, stored: np.dtype[Any], length: int) -> Array:
    """Reverse `_shuffled`."""
    planes = np.frombuffer(body, dtype=np.uint8).reshape(stored.itemsize, length)
    values = planes[0].astype(f"u{stored.itemsize}")
    for i, plane in enumerate(planes[1:], start=1):
        values |= plane.astype(values.dtype) << values.dtype.type(8 * i)
    unshuffled: Array = values.view(stored)
    return unshuffled


def _decode(spec: Mapping[str, Any], body: memoryview) -> Array:
    dtype, length = _TYPES[spec["t"]], spec["l"]
    if "k" in spec:
        return np.full(length, spec["k"], dtype=dtype)
    if "d" in spec:
        steps, rest = spec["p"]
        # Zeros cost nothing until they are written to.
        whole = np.full(length, spec["d"], dtype=dtype) if spec["d"] else np.zeros(length, dtype=dtype)
        whole[np.cumsum(_decode(steps, body[: steps["b"]]))] = _decode(rest, body[steps["b"] :])
        return whole
    if "w" not in spec:
        return np.frombuffer(body, dtype=dtype).copy()
    width = spec["w"] or dtype.itemsize
    stored = _UNSIGNED[{1: 0, 2: 1, 4: 2}[width]] if spec["w"] else dtype
    values = _unshuffled(body, stored, length) if spec["s"] else np.frombuffer(body, dtype=stored)
    if not spec["w"]:
        return values if spec["s"] else values.copy()
    wide: Array = values.astype(dtype)
    if spec["z"]:
        wide += dtype.type(spec["o"] - 1)
        # Multiplying by a mask is several times faster than choosing by it.
        wide *= values != 0
    else:
        wide += dtype.type(spec["o"])
    return wide
