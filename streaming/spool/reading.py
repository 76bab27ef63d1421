"""Read pieces of files, inside a Python worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from streaming.spool.cut import PIECE_BYTES
from streaming.spool.names import printable
from streaming.spool.pieces import Piece, Refusal

RAW_BYTES: Final = 4096
"""The most that is kept of a piece that is not read, in bytes."""

SCHEMA: Final = pa.schema([("value", pa.binary()), ("origin", pa.string()), ("position", pa.int64())])


class Read(NamedTuple):
    """The records of some pieces."""

    records: pa.RecordBatch
    pieces: int


class Refused(NamedTuple):
    """A piece that is not read: the reason, and its first bytes."""

    refusal: Refusal
    origin: str
    raw: bytes


def read_pieces(folder: Path, pieces: Iterable[Piece]) -> Iterator[Read | Refused]:
    """Yield the records of some pieces, small ones together. A file that is missing, or shorter than before, gives none.

    Raises `OSError` when an existing file cannot be read.
    """
    values: list[bytes] = []
    origins: list[str] = []
    held_bytes = 0
    for piece in pieces:
        origin = printable(str(folder / piece.name))
        try:
            content = _content(folder / piece.name, piece)
        except FileNotFoundError:
            continue
        if content is None:
            continue
        if piece.refusal is not None:
            yield Refused(piece.refusal, origin, content)
            continue
        values.append(content)
        origins.append(origin)
        held_bytes += len(content)
        if held_bytes >= PIECE_BYTES:
            yield _read(values, origins)
            values, origins, held_bytes = [], [], 0
    if values:
        yield _read(values, origins)


def _content(path: Path, piece: Piece) -> bytes | None:
    with path.open("rb") as file:
        if piece.refusal is not None:
            file.seek(piece.start)
            return file.read(min(RAW_BYTES, piece.end - piece.start))
        prefix = file.read(piece.prefix)
        file.seek(piece.start)
        content = file.read(piece.end - piece.start)
    return prefix + content if len(content) == piece.end - piece.start else None


def _read(values: list[bytes], origins: list[str]) -> Read:
    records = pa.RecordBatch.from_arrays(
        [pa.array(values, pa.binary()), pa.array(origins, pa.string()), pa.nulls(len(values), pa.int64())], schema=SCHEMA
    )
    return Read(records, len(values))
