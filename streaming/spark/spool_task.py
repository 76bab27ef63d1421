"""The spool folder in a batch: tasks are told the plan as a property of their job, and what they read is compared with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql import DataFrame

from streaming.spark.folder import Folder
from streaming.spool.ledger import Plan
from streaming.spool.pieces import Piece
from streaming.spool.planner import SpoolPlanner
from streaming.spool.reading import Read, Refused, read_pieces

PROPERTY: Final = "queuewatch.spool"
PIECES_READ: Final = "spool"
"""The key of pieces among the records that were read; those of Kafka have a slash."""
MOST_LANES: Final = 16


def lanes_of(cores: int) -> int:
    """How many tasks read the folder side by side: the partitions of the ticks."""
    return min(cores, MOST_LANES)


class SpoolBatches:
    """The driver's side."""

    def __init__(self, planner: SpoolPlanner, lanes: int, offsets: Folder) -> None:
        """`offsets` is Spark's log of batches in the checkpoint."""
        self._planner = planner
        self._offsets = offsets
        self._lanes = lanes
        self._plan: Plan | None = None

    def tell(self, batch: DataFrame, batch_id: int) -> None:
        """Tell the jobs this thread is about to start what to read."""
        # A batch without a tick, as the first one is, has none of the tasks that read the folder.
        self._plan = self._planner.plan(batch_id) if self._ticks(batch_id) > self._ticks(batch_id - 1) else Plan(batch_id, ())
        lanes: list[list[list[Any]]] = [[] for _ in range(self._lanes)]
        load = [0] * self._lanes
        for piece in self._plan.pieces:
            lane = load.index(min(load))
            lanes[lane].append(piece.to_json())
            load[lane] += piece.size
        told = json.dumps({"folder": str(self._planner.folder), "lanes": lanes}) if self._plan.pieces else ""
        batch.sparkSession.sparkContext.setLocalProperty(PROPERTY, told)

    def lost(self, read: int) -> set[str]:
        """The files of the batch that could not be read because they are gone.

        Raises `RuntimeError` when something was left out that is there: the batch must run again.
        """
        planned = len(self._plan.pieces) if self._plan is not None else 0
        if self._plan is None or read >= planned:
            return set()
        missing = self._planner.missing(self._plan)
        if planned - read > sum(piece.name in missing for piece in self._plan.pieces):
            raise RuntimeError(f"{planned - read} of {planned} pieces of spool files were not read")
        return missing

    def _ticks(self, batch_id: int) -> int:
        """The second up to which a batch has ticks: the first source in Spark's log of it."""
        logged = self._offsets.read(str(batch_id))
        return int(logged.decode().splitlines()[2]) if logged is not None else 0

    @property
    def last(self) -> int:
        """The latest batch that read something of the folder; -1 for none."""
        return self._planner.ledger.last(self._plan.batch_id) if self._plan is not None else -1

    @property
    def waiting(self) -> int:
        """Files that no batch has taken yet."""
        return self._planner.waiting


def told_pieces(context: TaskContext | None, part: int) -> Iterator[Read | Refused]:
    """In a task: what its part of the batch reads of the folder."""
    told = context.getLocalProperty(PROPERTY) if context is not None else None
    if not told:
        return
    body = json.loads(told)
    if part >= len(body["lanes"]):
        return
    yield from read_pieces(Path(body["folder"]), map(Piece.of, body["lanes"][part]))
