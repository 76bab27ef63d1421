"""Named numpy columns and a small JSON header as one compact blob: packets on the wire and state on disk.

Layout: magic, u32 header length, JSON header, then (for state, zstd-compressed as a whole) the columns' bytes. Integers are
stored as their distance from the smallest in the fewest bytes that hold it, zero (not known) kept apart; a column that is
the same everywhere takes no bytes at all. The header carries a format version, so that old blobs stay readable.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]

MAGIC = b"QWC1"
_CODEC = pa.Codec("zstd", compression_level=1)
_UNSIGNED = (np.dtype("u1"), np.dtype("u2"), np.dtype("u4"))


def plain(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array, without a dictionary."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def distinct(numbers: Array, below: int) -> tuple[Array, Array]:
    """Which of the numbers `0 … below - 1` occur, ascending, and per element its place among them; -1 stays -1."""
    if below > max(1 << 20, 4 * len(numbers)):
        kept, place = np.unique(numbers, return_inverse=True)
        none = int(len(kept) > 0 and kept[0] < 0)
        return kept[none:], (place - none).astype(np.int32)
    # A table of all possible numbers is many times quicker than sorting those that occur.
    occurs = np.zeros(below + 1, dtype=bool)
    occurs[numbers] = True
    occurs[below] = False
    kept = np.flatnonzero(occurs)
    place_of = np.full(below + 1, -1, dtype=np.int32)
    place_of[kept] = np.arange(len(kept), dtype=np.int32)
    return kept, place_of[numbers]


class UnreadableBlob(ValueError):
    """A blob that this version cannot read: damaged, or written by a newer version."""


def pack_columns(
    columns: Mapping[str, Array],
    header: Mapping[str, Any],
    *,
    raw: frozenset[str] = frozenset(),
    compress: bool,
) -> bytes:
    """One blob of `columns` (one-dimensional, any length) and `header` (JSON). `raw` names columns not worth narrowing."""
    specs: list[dict[str, Any]] = []
    parts: list[bytes] = []
    for name, values in columns.items():
        spec, body = _encode(values, name in raw, shuffle=compress)
        specs.append({"n": name, **spec, "b": len(body)})
        parts.append(body)
    body = b"".join(parts)
    head: dict[str, Any] = {"h": header, "c": specs}
    if compress and body:
        head["z"] = len(body)
        body = _CODEC.compress(body, asbytes=True)
    head_bytes = json.dumps(head, separators=(",", ":"), ensure_ascii=True).encode()
    return b"".join((MAGIC, struct.pack("<I", len(head_bytes)), head_bytes, body))


def unpack_columns(blob: bytes | memoryview) -> tuple[dict[str, Array], dict[str, Any]]:
    """The columns and header of `pack_columns`. Raises UnreadableBlob."""
    if blob[:4] != MAGIC or len(blob) < 8:
        raise UnreadableBlob("not a queuewatch blob: it does not start with QWC1")
    (head_len,) = struct.unpack_from("<I", blob, 4)
    head = json.loads(bytes(blob[8 : 8 + head_len]))
    body: Any = memoryview(blob)[8 + head_len :]
    if "z" in head:
        body = _CODEC.decompress(pa.py_buffer(body), head["z"])
    columns: dict[str, Array] = {}
    at = 0
    view = memoryview(body)
    for spec in head["c"]:
        columns[spec["n"]] = _decode(spec, view[at : at + spec["b"]])
        at += spec["b"]
    return columns, head["h"]


def _encode(values: Array, raw: bool, shuffle: bool) -> tuple[dict[str, Any], bytes]:
    values = np.ascontiguousarray(values)
    spec: dict[str, Any] = {"t": values.dtype.str, "l": len(values), "s": shuffle}
    if raw or len(values) == 0 or values.dtype.kind not in "iu":
        return spec, values.tobytes()
    low, high = values.min(), values.max()
    if low == high:
        return spec | {"k": int(low)}, b""
    zeros = False
    if low == 0:
        above = values[values != 0]
        low = above.min()
        zeros = True
    # One is added where zero keeps its place, so the widest distance needs room for it.
    span = int(high) - int(low) + int(zeros)
    narrow = next((t for t in _UNSIGNED if span < 1 << (8 * t.itemsize)), None)
    if narrow is None or narrow.itemsize >= values.dtype.itemsize:
        spec["w"] = 0
        return spec, _shuffled(values) if shuffle else values.tobytes()
    if zeros:
        small = np.where(values == 0, 0, values - values.dtype.type(int(low) - 1)).astype(narrow)
    else:
        small = (values - low).astype(narrow)
    spec |= {"w": narrow.itemsize, "o": int(low), "z": zeros}
    return spec, _shuffled(small) if shuffle else small.tobytes()


def _shuffled(values: Array) -> bytes:
    """All first bytes, then all second bytes…: what compresses, as the high bytes of neighbours are alike."""
    return np.ascontiguousarray(values.view(np.uint8).reshape(len(values), -1).T).tobytes()


def _decode(spec: Mapping[str, Any], body: memoryview) -> Array:
    dtype, length = np.dtype(spec["t"]), spec["l"]
    if "k" in spec:
        return np.full(length, spec["k"], dtype=dtype)
    if "w" not in spec:
        return np.frombuffer(body, dtype=dtype).copy()
    width = spec["w"] or dtype.itemsize
    stored = _UNSIGNED[{1: 0, 2: 1, 4: 2}[width]] if spec["w"] else dtype
    planes = np.frombuffer(body, dtype=np.uint8)
    values = np.ascontiguousarray(planes.reshape(width, length).T).reshape(-1).view(stored) if spec["s"] else planes.view(stored)
    if not spec["w"]:
        return values.copy()
    wide: Array = values.astype(dtype)
    if spec["z"]:
        wide = np.where(wide == 0, dtype.type(0), wide + dtype.type(spec["o"] - 1))
    else:
        wide = wide + dtype.type(spec["o"])
    return wide
