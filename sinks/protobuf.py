"""The few parts of the protobuf encoding that an exposition needs. A field is its number, its type and its value."""

from __future__ import annotations

import struct
from collections.abc import Iterable

_VARINT, _DOUBLE, _BYTES = 0, 1, 2
_SHORT = [bytes([value]) for value in range(0x80)]
"""Nearly all integers of a histogram are one byte."""


def varint(value: int) -> bytes:
    """Encode an integer that is not negative: seven bits a byte, the lowest first."""
    if value < len(_SHORT):
        return _SHORT[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def zigzag(value: int) -> int:
    """Return the integer that stands for one that may be negative (sint32, sint64)."""
    return value << 1 if value >= 0 else -value * 2 - 1


def integer(field: int, value: int) -> bytes:
    """Encode a field of a type such as uint64, or an enum."""
    return varint(field << 3 | _VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    """Encode a field of type double."""
    return varint(field << 3 | _DOUBLE) + struct.pack("<d", value)


def block(field: int, body: bytes) -> bytes:
    """Encode a field that is a message or a string."""
    return varint(field << 3 | _BYTES) + varint(len(body)) + body


def packed(field: int, values: Iterable[int]) -> bytes:
    """Encode a repeated field of type sint64."""
    return block(field, b"".join([varint(zigzag(value)) for value in values]))
