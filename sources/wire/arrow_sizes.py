"""Read the sizes an Arrow IPC stream declares, before anything is allocated for it.

A record batch declares its rows, and the length of each compressed buffer, in a few bytes: a stream of 280 bytes
can declare a thousand million rows. The reader allocates what is declared, so the sizes are checked first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from sources.wire.invalid import RefusalError

BYTES_PER_ROW: Final = 2
"""A stream may have at most one row per this many bytes. Real streams use six and more per row, compressed."""

MOST_INFLATION: Final = 100
"""A stream may decompress to at most this many times its own length. Real streams reach 15."""

SMALL_BYTES: Final = 64 << 10
"""Every stream may decompress to this size, however short it is."""

BATCH_ROWS: Final = 1_000_000
"""The most rows of one record batch."""

BATCH_BYTES: Final = 256 << 20
"""The most bytes of one record batch or dictionary once decompressed."""


@dataclass(frozen=True)
class Declared:
    """What one message of a stream declares."""

    rows: int
    inflated_bytes: int
    """The size of all buffers once decompressed."""


def check_sizes(reader: pa.ipc.MessageReader, value: bytes) -> int:
    """Return the bytes the stream `value` declares; raises `RefusalError` when that is too much for its length.

    `reader` reads `value` and has already read its schema. Raises `pa.ArrowException` or `ValueError` for bytes that
    are not a stream.
    """
    rows = inflated = 0
    for declared in _declared(reader):
        rows += declared.rows
        inflated += declared.inflated_bytes
        if declared.rows > BATCH_ROWS or rows > len(value) // BYTES_PER_ROW:
            raise RefusalError(
                "too_large",
                f"a stream of {len(value)} bytes declares {rows} rows; send at most one row for each {BYTES_PER_ROW} "
                f"bytes of a stream, and {BATCH_ROWS} in a record batch",
            )
        if declared.inflated_bytes > BATCH_BYTES or inflated > most_bytes(value):
            raise RefusalError(
                "too_large",
                f"a stream of {len(value)} bytes declares {inflated} bytes decompressed; {most_bytes(value)} are the "
                f"limit, {BATCH_BYTES} in a record batch",
            )
    return inflated


def most_bytes(value: bytes) -> int:
    """Return how many bytes the columns of a stream may take in memory."""
    return SMALL_BYTES + MOST_INFLATION * len(value)


def _declared(reader: pa.ipc.MessageReader) -> Iterator[Declared]:
    """Yield the record batches and dictionaries of a stream, in order."""
    for message in reader:
        if message.type in ("record batch", "dictionary"):
            try:
                yield _of_batch(memoryview(message.metadata), memoryview(message.body or b""))
            except (struct.error, IndexError) as error:
                raise ValueError(f"its metadata is damaged: {error}") from None


# Of the union MessageHeader in Message.fbs.
SCHEMA: Final = 1
DICTIONARY_BATCH: Final = 2
RECORD_BATCH: Final = 3

# Field numbers in Message.fbs.
_MESSAGE_HEADER_TYPE, _MESSAGE_HEADER, _MESSAGE_BODY_LENGTH = 1, 2, 3
_DICTIONARY_DATA = 1
_BATCH_LENGTH, _BATCH_BUFFERS, _BATCH_COMPRESSION = 0, 2, 3


def message_kind_and_body(metadata: bytes) -> tuple[int, int]:
    """Return what a message is, such as `RECORD_BATCH`, and the length of its body. Raises `ValueError` when it is damaged."""
    data = memoryview(metadata)
    try:
        root = _Table(data, _unsigned(data, 0))
        return root.byte(_MESSAGE_HEADER_TYPE), _not_negative(root.integer(_MESSAGE_BODY_LENGTH))
    except (struct.error, IndexError) as error:
        raise ValueError(f"its metadata is damaged: {error}") from None


def _of_batch(metadata: memoryview, body: memoryview) -> Declared:
    root = _Table(metadata, _unsigned(metadata, 0))
    batch = root.table(_MESSAGE_HEADER)
    if root.byte(_MESSAGE_HEADER_TYPE) == DICTIONARY_BATCH:
        batch = batch.table(_DICTIONARY_DATA)
    buffers = batch.buffers(_BATCH_BUFFERS)
    lengths = buffers[1::2]
    if batch.at(_BATCH_COMPRESSION) is not None:
        # The uncompressed length comes first, in 8 bytes; -1: this buffer is not compressed.
        offsets = buffers[0::2]
        unpack = _LENGTH.unpack_from
        lengths = [
            length if length < 8 else length - 8 if (stated := unpack(body, offset)[0]) == -1 else stated
            for offset, length in zip(offsets, lengths, strict=True)
        ]
        _not_negative(min(offsets, default=0))
    _not_negative(min(lengths, default=0))
    return Declared(_not_negative(batch.integer(_BATCH_LENGTH)), sum(lengths))


class _Table:
    """A flatbuffers table at `position` of `data`."""

    def __init__(self, data: memoryview, position: int) -> None:
        self._data = data
        self._position = position
        self._fields = _not_negative(position - _signed(data, position))

    def at(self, field: int) -> int | None:
        """Return the position of a field, None when it is absent."""
        size = struct.unpack_from("<H", self._data, self._fields)[0]
        place = 4 + 2 * field
        if place + 2 > size:
            return None
        offset = struct.unpack_from("<H", self._data, self._fields + place)[0]
        return self._position + offset if offset else None

    def byte(self, field: int) -> int:
        at = self.at(field)
        return 0 if at is None else self._data[at]

    def integer(self, field: int) -> int:
        """Return a 64-bit integer, 0 when absent."""
        at = self.at(field)
        return 0 if at is None else int(struct.unpack_from("<q", self._data, at)[0])

    def table(self, field: int) -> _Table:
        return _Table(self._data, self._followed(field))

    def buffers(self, field: int) -> Sequence[int]:
        """Return a vector of Buffer structs as alternating offsets and lengths."""
        if self.at(field) is None:
            return ()
        start = self._followed(field)
        return struct.unpack_from(f"<{2 * _unsigned(self._data, start)}q", self._data, start + 4)

    def _followed(self, field: int) -> int:
        at = self.at(field)
        if at is None:
            raise IndexError(f"field {field} is missing")
        return at + _unsigned(self._data, at)


_LENGTH: Final = struct.Struct("<q")


def _unsigned(data: memoryview, position: int) -> int:
    return int(struct.unpack_from("<I", data, position)[0])


def _signed(data: memoryview, position: int) -> int:
    return int(struct.unpack_from("<i", data, position)[0])


def _not_negative(number: int) -> int:
    if number < 0:
        raise IndexError(f"{number} is negative")
    return number
