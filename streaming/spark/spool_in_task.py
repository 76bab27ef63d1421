"""The spool folder in the tasks of a batch: each task reads its part of the plan, a property of its job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyspark import TaskContext

from streaming.spool.pieces import Piece
from streaming.spool.reading import Read, Refused, read_pieces

SPOOL: Final = "queuewatch.spool"
PIECES_READ: Final = "spool"
"""The key of pieces among the records read; those of Kafka have a slash."""


def planned_pieces(context: TaskContext | None, part: int) -> Iterator[Read | Refused]:
    """Read the pieces of the spool folder assigned to one part of the batch."""
    plan = context.getLocalProperty(SPOOL) if context is not None else None
    if not plan:
        return
    body = json.loads(plan)
    if part >= len(body["lanes"]):
        return
    yield from read_pieces(Path(body["folder"]), map(Piece.of, body["lanes"][part]))
