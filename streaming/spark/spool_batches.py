"""The spool folder in a batch: tasks get the plan as a property of their job, and what they read is checked against it."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame

from streaming.checkpoint.offset_log import batch_ids, batch_time_ms, last_tick
from streaming.folder import Folder
from streaming.spark.spool_in_task import SPOOL
from streaming.spool.ledger import Plan
from streaming.spool.planner import SpoolPlanner

MOST_LANES: Final = 16


def lanes_of(cores: int) -> int:
    """Return how many tasks read the folder in parallel: the partitions of the ticks."""
    return min(cores, MOST_LANES)


class LostFiles(NamedTuple):
    """Names of files that a batch could not read, in part or at all."""

    gone: frozenset[str] = frozenset()
    """Removed or truncated after the batch was planned."""
    refused: frozenset[str] = frozenset()
    """Too large for their content."""


class SpoolBatches:
    """The driver's side of reading the spool folder."""

    def __init__(self, planner: SpoolPlanner, lanes: int, offsets: Folder) -> None:
        """`offsets` is Spark's log of batches in the checkpoint."""
        self._planner = planner
        self._offsets = offsets
        self._lanes = lanes
        self._plan: Plan | None = None
        self._logged_before = max(batch_ids(offsets), default=-1)

    def announce(self, batch: DataFrame, batch_id: int) -> None:
        """Pass the plan to the jobs this thread is about to start."""
        if self._ticks(batch_id) > self._ticks(batch_id - 1):
            self._plan = self._planner.plan(batch_id, self._began_before_ms(batch_id))
        else:
            # A batch without a tick, such as the first one, lacks the tasks that read the folder.
            self._plan = Plan(batch_id, ())
        lanes: list[list[list[Any]]] = [[] for _ in range(self._lanes)]
        load = [0] * self._lanes
        for piece in self._plan.pieces:
            lane = load.index(min(load))
            lanes[lane].append(piece.to_json())
            load[lane] += piece.size
        plan = json.dumps({"folder": str(self._planner.folder), "lanes": lanes}) if self._plan.pieces else ""
        batch.sparkSession.sparkContext.setLocalProperty(SPOOL, plan)

    def lost(self, read: int) -> LostFiles:
        """Return the files of the batch that could not be read.

        Raises `RuntimeError` when an existing piece was left out: the batch must run again.
        """
        pieces = self._plan.pieces if self._plan is not None else ()
        refused = frozenset(piece.name for piece in pieces if piece.refusal is not None)
        if self._plan is None or read >= len(pieces):
            return LostFiles(refused=refused)
        missing = self._planner.missing(self._plan)
        if len(pieces) - read > sum(piece.name in missing for piece in pieces):
            raise RuntimeError(f"{len(pieces) - read} of {len(pieces)} pieces of spool files were not read")
        return LostFiles(frozenset(missing), refused - missing)

    def _began_before_ms(self, batch_id: int) -> int | None:
        """Return when a batch began that Spark logged before this start; None for a new one.

        It runs again with that time, which may be hours ago. Events of files that came since would be dated in its future.
        """
        logged = self._offsets.read(str(batch_id)) if batch_id <= self._logged_before else None
        return batch_time_ms(logged) if logged is not None else None

    def _ticks(self, batch_id: int) -> int:
        """Return the second up to which a batch has ticks; 0 for a batch Spark has not logged."""
        logged = self._offsets.read(str(batch_id))
        return last_tick(logged) if logged is not None else 0

    @property
    def last(self) -> int:
        """The latest batch that read from the folder; -1 for none."""
        return self._planner.ledger.last(self._plan.batch_id) if self._plan is not None else -1

    @property
    def waiting(self) -> int:
        """The number of files that no batch has read yet."""
        return self._planner.waiting
