"""Whether Spark can read the files of its own state: changelogs and snapshots.

A changelog is in the block format of Java's LZ4 library: each block has a checksum, and an empty one ends the file. Of one that
is written with another `spark.io.compression.codec`, only the beginning is examined. A snapshot is a zip file.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path
from typing import Final

import pyarrow as pa

from streaming.core.columns import DAMAGE

_MAGIC: Final = b"LZ4Block"
_BLOCK: Final = struct.Struct("<8sBIII")
"""Magic, method, compressed and original size, checksum of the original."""
_RAW, _LZ4 = 0x10, 0x20
"""The methods; the lower half of the byte is the compression level."""
_OTHERS: Final = (b"\x28\xb5\x2f\xfd", b"\x82SNAPPY\0", b"ZV")
"""How a file begins with Spark's other codecs: zstd, snappy, lzf."""
_SEED: Final = 0x9747B28C
_KEPT_BITS: Final = 0xFFFFFFF
"""Java's library leaves out the upper four bits of the checksum."""
_CODEC: Final = pa.Codec("lz4_raw")
_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_WORD: Final = 0xFFFFFFFF


def changelog_is_whole(path: Path) -> bool:
    """Whether the file is there, complete, and has the bytes that were written."""
    try:
        content = path.read_bytes()
        return _blocks_are_whole(content) if content.startswith(_MAGIC) else content.startswith(_OTHERS)
    except DAMAGE:
        return False


def snapshot_is_whole(path: Path) -> bool:
    """Whether the file is there, complete, and has the bytes that were written."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (*DAMAGE, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError):
        return False


def _blocks_are_whole(content: bytes) -> bool:
    start, size = 0, -1
    while size:
        magic, method, packed_size, size, checksum = _BLOCK.unpack_from(content, start)
        start += _BLOCK.size + packed_size
        packed = content[start - packed_size : start]
        if magic != _MAGIC or len(packed) != packed_size or method & 0xF0 not in (_RAW, _LZ4):
            return False
        plain = packed if method & 0xF0 == _RAW else _CODEC.decompress(packed, size, asbytes=True)
        if checksum != (xxh32(plain, _SEED) & _KEPT_BITS if size else 0):
            return False
    return start == len(content)


def xxh32(content: bytes, seed: int) -> int:
    """Return the 32-bit xxHash, which the standard library does not have."""
    one, two, three, four, five = _PRIMES
    whole = len(content) & ~15
    if whole:
        lanes = [seed + one + two, seed + two, seed, seed - one]
        for stripe in struct.iter_unpack("<4I", memoryview(content)[:whole]):
            lanes = [_turned(lane + word * two, 13) * one for lane, word in zip(lanes, stripe, strict=True)]
        mixed = sum(_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        mixed = seed + five
    mixed += len(content)
    words = len(content) & ~3
    for (word,) in struct.iter_unpack("<I", memoryview(content)[whole:words]):
        mixed = _turned(mixed + word * three, 17) * four
    for byte in content[words:]:
        mixed = _turned(mixed + byte * five, 11) * one
    for by, prime in ((15, two), (13, three)):
        mixed &= _WORD
        mixed = (mixed ^ mixed >> by) * prime
    mixed &= _WORD
    return mixed ^ mixed >> 16


def _turned(word: int, by: int) -> int:
    """Rotate the lower 32 bits to the left."""
    word &= _WORD
    return (word << by | word >> 32 - by) & _WORD
