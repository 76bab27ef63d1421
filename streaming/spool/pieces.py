"""A piece of a file: what one task reads at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sources.wire.invalid import Reason


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a piece is not read at all."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `start` to `end` of a file, behind its first `prefix` bytes."""

    name: str
    """In the spool folder."""
    start: int
    end: int
    prefix: int = 0
    """The schema and dictionaries of an Arrow stream, without which its later batches cannot be read."""
    refusal: Refusal | None = None

    @property
    def size(self) -> int:
        """Bytes that are read for it."""
        return 0 if self.refusal is not None else self.prefix + self.end - self.start

    def to_json(self) -> list[Any]:
        """As a plan keeps it."""
        refusal = [self.refusal.reason, self.refusal.detail] if self.refusal is not None else None
        return [self.name, self.start, self.end, self.prefix, refusal]

    @classmethod
    def of(cls, body: list[Any]) -> Piece:
        """From what `to_json` gave. Raises `ValueError` or `TypeError`."""
        name, start, end, prefix, refusal = body
        return cls(str(name), int(start), int(end), int(prefix), Refusal(*refusal) if refusal is not None else None)
