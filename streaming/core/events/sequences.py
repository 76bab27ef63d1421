"""Sequence numbers of ordered queues as numbers that compare in queue order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.columns import Array, nonzero

SEQUENCE_NONE, SEQUENCE_NUMBER, SEQUENCE_TEXT = 0, 1, 2
_TEN_18 = 10**18


def read_sequences(column: pa.Array) -> tuple[Array, Array, Array]:
    """Convert positions to comparable numbers: up to 36 decimal digits as a number, other text by its first 16 bytes."""
    n = len(column)
    kind, hi, lo = np.zeros(n, dtype=np.uint8), np.zeros(n, dtype=np.uint64), np.zeros(n, dtype=np.uint64)
    if column.null_count == n:
        return kind, hi, lo
    lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    digits = pc.fill_null(pc.and_(pc.string_is_ascii(column), pc.utf8_is_digit(column)), False)
    is_number = digits.to_numpy(zero_copy_only=False) & (lengths > 0) & (lengths <= 36)
    numbers = nonzero(is_number)
    if len(numbers):
        chosen = column.take(pa.array(numbers))
        kind[numbers] = SEQUENCE_NUMBER
        split = pc.max(pc.binary_length(chosen)).as_py() > 18
        low = pc.utf8_slice_codeunits(chosen, -18) if split else chosen
        lo[numbers] = low.cast(pa.uint64()).to_numpy(zero_copy_only=False)
        if split:
            high = pc.utf8_slice_codeunits(chosen, -36, stop=-18)
            high = pc.if_else(pc.equal(pc.binary_length(high), 0), "0", high)
            hi[numbers] = high.cast(pa.uint64()).to_numpy(zero_copy_only=False)
    for row in nonzero((lengths > 0) & ~is_number):
        word = column[int(row)].as_py().encode()[:16].ljust(16, b"\0")
        kind[row] = SEQUENCE_TEXT
        hi[row], lo[row] = int.from_bytes(word[:8], "big"), int.from_bytes(word[8:], "big")
    return kind, hi, lo


def sequence_text(kind: int, hi: int, lo: int) -> str | None:
    """Convert a position back to text (leading zeros, and anything behind the 16th byte of other text, are lost)."""
    if kind == SEQUENCE_NONE:
        return None
    if kind == SEQUENCE_NUMBER:
        return str(hi * _TEN_18 + lo)
    return (hi.to_bytes(8, "big") + lo.to_bytes(8, "big")).rstrip(b"\0").decode("utf-8", "replace")
