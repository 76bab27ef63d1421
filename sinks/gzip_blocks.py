"""A gzip body put together from blocks of text that were compressed before.

Few of a scrape's lines differ from those of the scrape before. Lines of many queues form a block, and a block whose lines
did not change is not compressed again. The body is still one gzip member, because many clients read only the first one: each
block is a run of deflate blocks without references to what precedes it, and the checksum is combined from those of the blocks.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

LEVEL = 1
"""Higher levels of compression cost a scrape of many queues seconds for a few per cent."""

_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_LAST_BLOCK = b"\x03\x00"
_POLYNOMIAL, _ONE = 0xEDB88320, 1 << 31


class Deflated(NamedTuple):
    """Compressed text, to be followed by more."""

    data: bytes
    size: int
    crc: int
    shift: int
    """By what the checksum of the preceding text is multiplied when this text is appended."""


class Block:
    """Text in parts, which is compressed at most once."""

    __slots__ = ("_deflated", "parts")

    def __init__(self, parts: Sequence[bytes]) -> None:
        self.parts = parts
        self._deflated: Deflated | None = None

    @property
    def text(self) -> bytes:
        """The parts as one."""
        return b"".join(self.parts)

    @property
    def deflated(self) -> Deflated:
        """The compressed text."""
        if self._deflated is None:
            self._deflated = _deflated(self.text)
        return self._deflated


Piece = bytes | Block


def in_blocks(parts: Sequence[bytes], size: int, known: Sequence[Piece] = ()) -> list[Piece]:
    """Return `parts` in blocks of `size` parts, and as bytes the rest that fills none; equal blocks of `known` are reused."""
    full = len(parts) - len(parts) % size
    pieces: list[Piece] = []
    for place, start in enumerate(range(0, full, size)):
        those = parts[start : start + size]
        before = known[place] if place < len(known) else b""
        if isinstance(before, Block) and before.parts == those:
            pieces.append(before)
        else:
            pieces.append(Block(those) if any(those) else b"")
    return [*pieces, b"".join(parts[full:])]


def joined(pieces: Iterable[Piece]) -> bytes:
    """Return the text of `pieces`."""
    return b"".join([piece.text if isinstance(piece, Block) else piece for piece in pieces])


def gzipped(pieces: Iterable[Piece]) -> bytes:
    """Return the text of `pieces` compressed: one gzip member."""
    out, crc, size = [_HEADER], 0, 0
    for deflated in _runs(pieces):
        out.append(deflated.data)
        crc = _times(deflated.shift, crc) ^ deflated.crc
        size += deflated.size
    return b"".join((*out, _LAST_BLOCK, struct.pack("<LL", crc, size & 0xFFFFFFFF)))


def _runs(pieces: Iterable[Piece]) -> Iterator[Deflated]:
    loose: list[bytes] = []
    for piece in pieces:
        if isinstance(piece, bytes):
            loose.append(piece)
            continue
        if loose:
            yield _deflated(b"".join(loose))
            loose.clear()
        yield piece.deflated
    yield _deflated(b"".join(loose))


def _deflated(text: bytes) -> Deflated:
    deflate = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    # The flush ends at a whole byte, so that more can follow.
    data = deflate.compress(text) + deflate.flush(zlib.Z_SYNC_FLUSH)
    return Deflated(data, len(text), zlib.crc32(text), _shift(len(text)))


@lru_cache(maxsize=4096)
def _shift(size: int) -> int:
    """Return x to the power of 8 * size, modulo the polynomial of CRC-32 (bits in reverse order, as in the checksum)."""
    product, place = _ONE, 0
    while size:
        if digit := size & 63:
            product = _times(_power(digit, place), product)
        size, place = size >> 6, place + 1
    return product


@cache
def _power(digit: int, place: int) -> int:
    """Return x to the power of 8 * digit * 64 ** place."""
    if digit > 1:
        return _times(_power(digit - 1, place), _power(1, place))
    if place:
        half = _power(32, place - 1)
        return _times(half, half)
    return _ONE >> 8


def _times(a: int, b: int) -> int:
    """Multiply two polynomials modulo that of CRC-32."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product
