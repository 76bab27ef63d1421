"""Read lines of flat JSON in one pass, in C: the fastest path.

Nearly all events are flat objects of strings, integers and booleans; `scan.c` splits those into columns. Everything else goes to
the block parser, as does every line on a machine where the scan could not be compiled.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from typing import Final

import numpy as np
import pyarrow as pa

from sources.wire.lines import Int32s, Ints, Lines, Mask
from sources.wire.schema import NAME, READ_SCHEMA, no_values

_STRING, _INTEGER, _BOOLEAN, _OTHER = range(4)  # as in scan.c
_VERSION: Final = 2  # as in scan.c
_LONGEST_BUFFER: Final = (1 << 31) - 1
"""Bytes; lengths and Arrow's offsets have 32 bits."""

_MOST: Final = {"receive_count": (1 << 31) - 1}
_ANY: Final = 10**16 - 1
"""The largest number that the scan reads."""


def _library() -> ctypes.CDLL | None:
    """Load the compiled `scan.c`; None where the package was installed without a C compiler, or with another version of it."""
    found = importlib.util.find_spec("sources.wire._scan")
    if found is None or found.origin is None:
        return None
    try:
        library = ctypes.CDLL(found.origin)
        if library.scan_version() != _VERSION:
            return None
    except (OSError, AttributeError):
        return None
    pointer, number, bit = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32
    for name, arguments, result in (
        ("scan", [pointer, number, *[pointer] * 6, number, *[pointer] * 5], number),
        ("copy_texts", [pointer, number, pointer, pointer, pointer], None),
        ("encode", [pointer, number, pointer, bit, *[pointer] * 5, ctypes.c_uint64, pointer], number),
    ):
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, result
    return library


def _kind_of(field: pa.Field) -> int:
    if field.name == "attributes":
        return _OTHER  # an object, never read here
    return {pa.int64(): _INTEGER, pa.int32(): _INTEGER, pa.bool_(): _BOOLEAN}.get(field.type, _STRING)


_C: Final = _library()
_NAMES: Final = np.frombuffer("".join(READ_SCHEMA.names).encode(), np.uint8)
_ENDS: Final = np.cumsum([len(name) for name in READ_SCHEMA.names], dtype=np.int32)
_KINDS: Final = np.array([_kind_of(field) for field in READ_SCHEMA], np.uint8)
_HASH_KEY: Final = np.frombuffer(os.urandom(16), np.uint64)
"""Secret, or a sender could choose strings that collide."""
_LIMITS: Final = np.array([_MOST.get(name, _ANY) for name in READ_SCHEMA.names], np.int64)


def is_compiled() -> bool:
    """Whether this installation has the compiled scan."""
    return _C is not None


def scan(lines: Lines) -> tuple[Mask, pa.Table] | None:
    """Return which lines (UTF-8) were read, and their events in `READ_SCHEMA`; None without the compiled scan."""
    if _C is None or not len(lines) or len(lines.buffer) > _LONGEST_BUFFER:
        return None
    scanned = _Scanned(_C, lines)
    return scanned.read, scanned.table()


class _Scanned:
    """The result of the scan: per key and row its value, or the start and length of its string."""

    def __init__(self, library: ctypes.CDLL, lines: Lines) -> None:
        count, keys = len(lines), len(READ_SCHEMA)
        self.read: Mask = np.empty(count, np.bool_)
        self._c = library
        self._data = ctypes.cast(ctypes.c_char_p(lines.buffer), ctypes.c_void_p)
        self._present = np.empty(count, np.uint32)
        self._values = np.empty((keys, count), np.int64)
        self._lengths = np.empty((keys, count), np.int32)
        self._counts = np.zeros(keys, np.int64)
        start, end = np.ascontiguousarray(lines.start), np.ascontiguousarray(lines.end)
        self._rows: int = library.scan(
            *(self._data, count, start.ctypes.data, end.ctypes.data),
            *(_NAMES.ctypes.data, _ENDS.ctypes.data, _KINDS.ctypes.data, _LIMITS.ctypes.data, keys),
            *(self.read.ctypes.data, self._present.ctypes.data),
            *(self._values.ctypes.data, self._lengths.ctypes.data, self._counts.ctypes.data),
        )

    def table(self) -> pa.Table:
        """Return the events of the lines that were read."""
        columns = [self._column(key, field) for key, field in enumerate(READ_SCHEMA)]
        return pa.Table.from_arrays(columns, schema=READ_SCHEMA)

    def _column(self, key: int, field: pa.Field) -> pa.Array:
        if not self._counts[key]:
            return no_values(self._rows, field.type)
        has: Mask | None = None
        if self._counts[key] < self._rows:
            has = (self._present[: self._rows] & np.uint32(1 << key)) != 0
        validity = None if has is None else pa.py_buffer(np.packbits(has, bitorder="little"))
        values, lengths = self._values[key, : self._rows], self._lengths[key, : self._rows]
        if field.type == NAME:
            codes, words = self._encoded(key, values, lengths)
            return pa.DictionaryArray.from_arrays(pa.Array.from_buffers(pa.int32(), self._rows, [validity, codes]), words)
        if field.type == pa.string():
            buffers = self._texts(values, lengths if has is None else np.where(has, lengths, 0))
        elif field.type == pa.bool_():
            buffers = [pa.py_buffer(np.packbits(values == 1, bitorder="little"))]
        else:
            buffers = [pa.py_buffer(values.astype(field.type.to_pandas_dtype(), copy=False))]
        return pa.Array.from_buffers(field.type, self._rows, [validity, *buffers])

    def _texts(self, begins: Ints, lengths: Int32s) -> list[pa.Buffer]:
        """Convert strings to Arrow buffers: their offsets and their bytes."""
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        texts = np.empty(offsets[-1], np.uint8)
        self._c.copy_texts(self._data, len(lengths), begins.ctypes.data, offsets.ctypes.data, texts.ctypes.data)
        return [pa.py_buffer(offsets), pa.py_buffer(texts)]

    def _encoded(self, key: int, begins: Ints, lengths: Int32s) -> tuple[pa.Buffer, pa.Array]:
        """Return each row's index into the distinct strings (0 where it has none), and those strings."""
        codes, firsts = np.empty(self._rows, np.int32), np.empty(self._rows, np.int64)
        slots = np.full(1 << (2 * self._rows).bit_length(), -1, np.int32)
        distinct = self._c.encode(
            *(self._data, self._rows, self._present.ctypes.data, 1 << key, begins.ctypes.data, lengths.ctypes.data),
            *(codes.ctypes.data, firsts.ctypes.data, slots.ctypes.data, len(slots) - 1, _HASH_KEY.ctypes.data),
        )
        firsts = firsts[:distinct]
        words = self._texts(begins[firsts], lengths[firsts])
        return pa.py_buffer(codes), pa.Array.from_buffers(pa.string(), distinct, [None, *words])
