"""A piece of a file: what one task reads at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sources.wire.invalid import Reason


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a piece is not read."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `start` to `end` of a file, preceded by its first `prefix` bytes."""

    name: str
    """File name in the spool folder."""
    start: int
    end: int
    prefix: int = 0
    """The schema and dictionaries of an Arrow stream, without which its later batches cannot be read."""
    refusal: Refusal | None = None

    @property
    def size(self) -> int:
        """The number of bytes read for it."""
        return 0 if self.refusal is not None else self.prefix + self.end - self.start

    def to_json(self) -> list[Any]:
        """Return the piece as a plan stores it."""
        refusal = [self.refusal.reason, self.refusal.detail] if self.refusal is not None else None
        return [self.name, self.start, self.end, self.prefix, refusal]

    @classmethod
    def of(cls, body: list[Any]) -> Piece:
        """Rebuild the piece from `to_json`. Raises `ValueError` or `TypeError`."""
        name, start, end, prefix, refusal = body
        return cls(str(name), int(start), int(end), int(prefix), Refusal(*refusal) if refusal is not None else None)
