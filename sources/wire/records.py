"""Group records so that a group fits the CPU cache, joined by line breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sources.wire.lines import Ints

Values: TypeAlias = Sequence[bytes | None] | pa.Array | pa.ChunkedArray
"""The accepted types of record values: bytes-like objects, or a pyarrow binary array."""

GROUP_BYTES: Final = 2 << 20
"""The approximate size of a group: what one step writes is still cached for the next."""


@dataclass(frozen=True)
class Group:
    """Neighbouring records: `first` is the index of the first, `start` the position of each in `joined`."""

    first: int
    start: Ints
    joined: bytes
    """The records with a line break between them; empty when one of them is null."""
    values: Callable[[], Sequence[bytes | None]]
    """The individual records."""


def groups(values: Values) -> Iterator[Group]:
    """Split records into groups, in order."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array):
        yield from _cut(values, lengths_of(values), _join_objects)
        return
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    yield from _cut(values, lengths, _join_array)


def lengths_of(values: Sequence[bytes | None]) -> Ints:
    """Return the length of each record in bytes, 0 for a null."""
    try:
        return np.fromiter(map(len, values), np.int64, len(values))  # type: ignore[arg-type]
    except TypeError:  # a null among them
        return np.fromiter((len(v or b"") for v in values), np.int64, len(values))


def starts_of(lengths: Ints) -> Ints:
    """Return where records of these lengths start once joined by one byte each."""
    return np.cumsum(lengths + 1) - (lengths + 1)


def _cut(values: Any, lengths: Ints, join: Callable[[Any], bytes]) -> Iterator[Group]:
    ends = np.cumsum(lengths)
    first = 0
    while first < len(values):
        limit = int(ends[first] - lengths[first]) + GROUP_BYTES
        last = max(first + 1, int(np.searchsorted(ends, limit, side="right")))
        part = values[first:last]
        yield Group(first, starts_of(lengths[first:last]), join(part), _lister(part))
        first = last


def _lister(part: Any) -> Callable[[], Sequence[bytes | None]]:
    return part.to_pylist if isinstance(part, pa.Array) else lambda: part


def _join_objects(part: Sequence[bytes | None]) -> bytes:
    try:
        return b"\n".join(part)  # type: ignore[arg-type]
    except TypeError:  # a null among them
        return b""


def _join_array(part: pa.Array) -> bytes:
    """Join the records in place, without creating a Python object for each."""
    if part.null_count:
        return b""
    # Not constants of the module: the first conversion imports pandas, a second of every command's start.
    nothing, line_break = pa.scalar(b"", pa.binary()), pa.scalar(b"\n", pa.binary())
    joined = pc.binary_join_element_wise(part.cast(pa.binary()), nothing, line_break)
    _, offsets, data = joined.buffers()
    end = np.frombuffer(offsets, np.int32)[joined.offset + len(joined)]
    start = np.frombuffer(offsets, np.int32)[joined.offset]
    return memoryview(data)[start : end - 1].tobytes()
