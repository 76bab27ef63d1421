"""The judge's memory of all queues: a table with a row per queue and a named column per number.

A queue that is judged gets its row as a `QueueMemory`, and `put` writes it back. The parts of varying size are kept beside the
row as JSON: most queues have little of it. Rows are compressed in blocks, and a block in which nothing changed is kept as it is.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from streaming.core.columns import CODEC, DAMAGE, Array, nonzero
from streaming.core.settings import QueueName
from streaming.judge.knowledge.basis import BASES, Basis
from streaming.judge.memory.queue_memory import FLOATS, NUMBERS, QueueMemory

ROWS_PER_BLOCK: Final = 256
_ROW: Final = np.dtype([(name, "<f8" if name in FLOATS else "<i8") for name in NUMBERS])
_FORMAT: Final = struct.Struct("<" + "".join("d" if name in FLOATS else "q" for name in NUMBERS))
_SIZES: Final = struct.Struct("<II")
"""Before each frame: its compressed and its original size."""


class MemoryTable(Mapping[QueueName, QueueMemory]):
    """What is remembered of each queue. What a lookup returns is a copy: `put` stores it."""

    def __init__(self, memories: Mapping[QueueName, QueueMemory] | None = None) -> None:
        self._rows: dict[QueueName, int] = {}
        self._use(np.zeros(0, dtype=_ROW))
        self._lists: list[str] = []
        self._blocks: list[bytes | None] = []
        """The rows, each `ROWS_PER_BLOCK` of them compressed; None since one of them changed."""
        self._head: bytes | None = None
        """The names, compressed; None since a queue came or went."""
        for name, memory in (memories or {}).items():
            self.put(name, memory)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[QueueName]:
        return iter(self._rows)

    def __getitem__(self, name: QueueName) -> QueueMemory:
        row = self._rows[name]
        return QueueMemory.of(_FORMAT.unpack_from(self._buffer, row * _FORMAT.size), self._lists[row])

    def on_basis(self, bases: Collection[Basis]) -> list[QueueName]:
        """Return the queues that were on one of these bases of knowledge when they were last judged."""
        wanted = [BASES.index(basis) for basis in bases]
        rows = nonzero(np.isin(self._numbers["basis"][: len(self._lists)], wanted)).tolist()
        names = list(self._rows) if rows else []
        return [names[row] for row in rows]

    def put(self, name: QueueName, memory: QueueMemory) -> None:
        """Store what is remembered of a queue."""
        row = self._rows.setdefault(name, len(self._rows))
        if row == len(self._lists):
            if row == len(self._numbers):
                self._use(np.concatenate([self._numbers, np.zeros(max(64, row // 4), dtype=_ROW)]))
            self._lists.append("")
            self._head = None
            if row % ROWS_PER_BLOCK == 0:
                self._blocks.append(None)
        _FORMAT.pack_into(self._buffer, row * _FORMAT.size, *memory.numbers())
        self._lists[row] = memory.lists()
        self._blocks[row // ROWS_PER_BLOCK] = None

    def forget(self, names: Iterable[QueueName]) -> None:
        """Drop the rows of queues that have vanished."""
        gone = sorted(row for name in names if (row := self._rows.pop(name, None)) is not None)
        if not gone:
            return
        self._use(np.delete(self._numbers[: len(self._lists)], gone))
        for row in reversed(gone):
            del self._lists[row]
        self._rows = {name: row for row, name in enumerate(self._rows)}
        self._head, first = None, gone[0] // ROWS_PER_BLOCK
        self._blocks[first:] = [None] * (-(-len(self._lists) // ROWS_PER_BLOCK) - first)

    def fail(self, names: Iterable[QueueName], at: int) -> None:
        """Remember that QueueFailing fires for these queues at `at` (epoch milliseconds)."""
        for name in names:
            row = self._rows[name]
            self._numbers["failed_at"][row] = at
            self._blocks[row // ROWS_PER_BLOCK] = None

    def failed_since(self, at: int) -> dict[QueueName, int]:
        """Return the queues for which QueueFailing fired at `at` (epoch milliseconds) or later, and when it last did."""
        failed = self._numbers["failed_at"][: len(self._lists)]
        rows = nonzero((failed > 0) & (failed >= at)).tolist()
        names = list(self._rows) if rows else []
        return {names[row]: int(failed[row]) for row in rows}

    def to_bytes(self) -> bytes:
        """Serialize the names of queues and numbers as JSON, and the rows as compressed blocks."""
        if self._head is None:
            self._head = _framed(json.dumps({"numbers": NUMBERS, "queues": list(self._rows)}, separators=(",", ":")).encode())
        for i, block in enumerate(self._blocks):
            if block is None:
                self._blocks[i] = self._packed(i * ROWS_PER_BLOCK)
        return b"".join((self._head, *(block for block in self._blocks if block is not None)))

    @classmethod
    def from_bytes(cls, blob: bytes) -> MemoryTable:
        """Read the bytes of `to_bytes`. What only another release has is left out; what it lacked has its default.

        Raises ValueError when damaged.
        """
        table = cls()
        try:
            table._read(_frames(blob))
        except DAMAGE as error:
            raise ValueError(f"the table of queues is damaged: {error!r}") from error
        return table

    def _read(self, frames: Iterator[bytes]) -> None:
        head = json.loads(next(frames, b""))
        names = [QueueName(*name) for name in head["queues"]]
        self._rows = {name: row for row, name in enumerate(names)}
        self._use(np.zeros(len(names), dtype=_ROW))
        self._numbers[:] = QueueMemory().numbers()
        for first in range(0, len(names), ROWS_PER_BLOCK):
            rows, plain = min(ROWS_PER_BLOCK, len(names) - first), next(frames, b"")
            columns = np.frombuffer(plain, dtype=np.int64, count=rows * len(head["numbers"])).reshape(-1, rows)
            for name, column in zip(head["numbers"], columns, strict=True):
                if name in NUMBERS:
                    self._numbers[name][first : first + rows] = column.view(_ROW[name])
            lists = plain[columns.nbytes :].decode().split("\n")
            if len(lists) != rows:
                raise ValueError(f"{len(lists)} of the {rows} queues of a block")
            self._lists += lists
            self._blocks.append(None)

    def _use(self, numbers: Array) -> None:
        self._numbers = numbers
        # One row is read and written as a struct: numpy takes ten times as long.
        self._buffer = numbers.view(np.uint8).data

    def _packed(self, first: int) -> bytes:
        lists = self._lists[first : first + ROWS_PER_BLOCK]
        numbers = self._numbers[first : first + len(lists)].view(np.int64).reshape(len(lists), len(NUMBERS))
        return _framed(np.ascontiguousarray(numbers.T).tobytes() + "\n".join(lists).encode())


def _framed(plain: bytes) -> bytes:
    """Compress bytes, with both sizes before them."""
    packed: bytes = CODEC.compress(plain, asbytes=True)
    return _SIZES.pack(len(packed), len(plain)) + packed


def _frames(blob: bytes) -> Iterator[bytes]:
    """Yield what was compressed by `_framed`, one after the other."""
    start = 0
    while start < len(blob):
        length, size = _SIZES.unpack_from(blob, start)
        start += _SIZES.size
        yield CODEC.decompress(blob[start : start + length], size, asbytes=True)
        start += length
