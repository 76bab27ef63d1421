"""Compare and cut out bytes at many places of a buffer at once."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from sources.wire.lines import Bytes, Ints, Mask

Words = np.ndarray[Any, np.dtype[np.uint64]]

PAD: Final = 2048
"""Bytes before and after, so that what lies across an end may be looked at."""

_INLINE: Final = 12
"""Arrow's string views hold texts up to this length themselves."""

_LONGEST_PIECE: Final = 256
"""Bytes; so that the offsets of a block's texts fit 32 bits, whatever its lines."""

_LOW_BYTES: Final = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)
_ZEROS: Final = np.uint64(0x3030303030303030)
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_SEVENTY: Final = np.uint64(0x4646464646464646)  # what takes a byte above '9' past 127


class Buffer:
    """A stretch of bytes, readable as bytes (`data`) and as little-endian words from any byte on (`words`).

    Places in it are counted from the start of `data`; the stretch begins at `first`.
    """

    first: Final = PAD

    def __init__(self, source: bytes, start: int, end: int) -> None:
        self.data: Bytes = np.zeros(end - start + 2 * PAD, np.uint8)
        self.data[PAD:-PAD] = np.frombuffer(source, np.uint8, end - start, start)
        self.words: Words = np.ndarray((len(self.data) - 7,), np.dtype("<u8"), self.data.data, strides=(1,))
        self._has_backslash = source.find(b"\\", start, end) >= 0

    def strange(self, line_breaks: int) -> Ints:
        """Where backslashes and control characters are, other than the line breaks that are known of."""
        inner = self.data[PAD:-PAD]
        control = inner < 32
        if not self._has_backslash and np.count_nonzero(control) == line_breaks:
            return np.zeros(0, np.int64)
        return np.flatnonzero((control & (inner != ord("\n"))) | (inner == ord("\\"))) + PAD

    def pieces(self, length: int) -> np.ndarray[Any, np.dtype[np.void]]:
        """All stretches of `length` bytes, the first at 0, the second at 1 and so on."""
        return np.ndarray((len(self.data) - length + 1,), np.dtype((np.void, length)), self.data.data, strides=(1,))

    def equal(self, at: Ints, text: bytes) -> Mask:
        """At which of the places `text` stands."""
        alike: Mask = self.pieces(len(text))[at] == np.void(text)
        return alike


def can_cut() -> bool:
    """Whether this pyarrow turns string views into strings; the older ones do not."""
    try:
        pa.array([], pa.string_view()).cast(pa.string())
    except (pa.ArrowNotImplementedError, AttributeError):
        return False
    return True


def texts_of(buffer: Buffer, starts: Ints, ends: Ints) -> pa.Array:
    """The texts between `starts` and `ends`, null where `starts` is 0."""
    lengths = ends - starts
    longest = int(lengths.max(initial=0))
    if 0 < longest <= _LONGEST_PIECE and int(lengths.min()) == longest:
        # Ids and the like, present in every line.
        offsets = np.arange(0, longest * (len(starts) + 1), longest, dtype=np.int32)
        body = pa.py_buffer(buffer.pieces(longest)[starts])
        return pa.StringArray.from_buffers(len(starts), pa.py_buffer(offsets), body)
    views = np.empty((len(starts), 2), np.uint64)
    views[:, 0] = lengths.view(np.uint64) | (buffer.words[starts] & _LOW_BYTES[np.minimum(lengths, 4)]) << np.uint64(32)
    views[:, 1] = starts.view(np.uint64) << np.uint64(32)
    short = np.flatnonzero(lengths <= _INLINE)
    if len(short):
        rest = _LOW_BYTES[np.maximum(lengths[short] - 4, 0)]
        views[short, 1] = buffer.words[starts[short] + 4] & rest
    present = starts > 0
    validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    buffers = [validity, pa.py_buffer(views), pa.py_buffer(buffer.data)]
    return pa.Array.from_buffers(pa.string_view(), len(starts), buffers).cast(pa.string())


def whole_numbers(buffer: Buffer, starts: Ints, ends: Ints) -> tuple[Ints, Mask]:
    """The numbers between `starts` and `ends`, and which of them are 1 to 16 digits as JSON allows them."""
    lengths = ends - starts
    good: Mask = (lengths >= 1) & (lengths <= 16)
    good &= (lengths == 1) | (buffer.data[starts] != ord("0"))
    lengths = np.clip(lengths, 1, 16)
    ends = np.maximum(ends, PAD)
    low = _digits(buffer.words[ends - 8], np.minimum(lengths, 8))
    if lengths.max(initial=0) <= 8:
        return _number(low).astype(np.int64), good & _are_digits(low)
    high = _digits(buffer.words[ends - 16], np.maximum(lengths - 8, 0))
    values = _number(high) * np.uint64(100_000_000) + _number(low)
    return values.astype(np.int64), good & _are_digits(low) & _are_digits(high)


def _digits(words: Words, count: Ints) -> Words:
    """The last `count` bytes of each word, the others as the digit 0."""
    other = _LOW_BYTES[8 - count]
    digits: Words = (words & ~other) | (_ZEROS & other)
    return digits


def _are_digits(words: Words) -> Mask:
    mask: Mask = (((words - _ZEROS) | (words + _SEVENTY) | words) & _HIGH_BITS) == 0
    return mask


def _number(words: Words) -> Words:
    """Eight digits, the first in the lowest byte, as a number: neighbours are joined three times."""
    words = words - _ZEROS
    words = (words * np.uint64(10) + (words >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    words = (words * np.uint64(100) + (words >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    number: Words = (words * np.uint64(10_000) + (words >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
    return number
