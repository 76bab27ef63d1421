"""Which queues must be judged again: those of which something is new, and those whose time has come.

Most queues of a large account are not touched in a step, and time alone changes what is said of them at few moments: a limit is
reached, a window slides past what happened in it. Each look at a queue says when that can be at the earliest; until then, and
unless something arrives, what was said stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streaming.core.reporting.merge import MergedQueues
from streaming.core.reporting.queue_columns import COUNTS, FLAGS, NUMBERS, TIMES, TOLD
from streaming.core.settings import QueueName
from streaming.judge.knowledge.queue import Knowledge
from streaming.judge.snapshot import QueueStatus, QueueView

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_COMPARED = tuple(name for name in (*NUMBERS, *FLAGS, *TIMES, *COUNTS, *TOLD) if name != "age_sum_ms")


@dataclass(frozen=True, slots=True)
class Look:
    """What was concluded of one queue when it was last judged. Times are epoch milliseconds."""

    at: int
    again_at: int
    """Nothing of it changes before, as long as nothing arrives."""
    status: QueueStatus
    knowledge: Knowledge
    basis_since: int
    ordered: bool
    coverage_ratio: float | None
    time_to_drain_s: float | None
    folded: tuple[int, int, int]
    """Groups, consumers and messages that stand behind `other` or are left out of the lists."""
    dead_letter_queue: QueueName | None
    by_flow: bool
    """Its status follows from what came and went in the last minutes, so it may change with every step: see `flow_status`."""


class Looks:
    """The latest look at each queue, and what it rested on. Made anew after a restart: every queue is then judged once."""

    def __init__(self) -> None:
        self._names: tuple[QueueName, ...] = ()
        self._rows: Ints = np.zeros((0, 0), dtype=np.int64)
        self._again_at: Ints = np.zeros(0, dtype=np.int64)
        self._siblings: Ints = np.zeros(0, dtype=np.int64)
        self._by_flow: Bools = np.zeros(0, dtype=bool)
        self._of: list[Look | None] = []
        self.views: dict[QueueName, tuple[Look, QueueView]] = {}
        """Views that were made, each with the look it shows."""

    def due(self, queues: MergedQueues, besides: Iterable[QueueName], now: int) -> Bools:
        """Which rows of the merged table to look at: something is new, its time has come, or it is one of `besides`."""
        self._align(queues)
        rows = _rows(queues)
        if rows.shape != self._rows.shape:
            changed = np.ones(len(rows), dtype=bool)
        else:
            changed = (rows != self._rows).any(axis=1)
        told = np.append(rows[:, _STATE_AT] != self._rows[:, _STATE_AT] if rows.shape == self._rows.shape else changed, False)
        self._rows = rows
        due: Bools = changed | (self._again_at <= now) | told[self._siblings]
        for name in besides:
            place = queues.place(name)
            if place is not None:
                due[place] = True
        return due

    def by_flow(self) -> Bools:
        """Of which queues the status may change with every step."""
        return self._by_flow

    def put(self, place: int, look: Look, queues: MergedQueues) -> None:
        """The latest look at the queue of one row."""
        self._of[place] = look
        self._again_at[place], self._by_flow[place] = look.again_at, look.by_flow
        self._siblings[place] = self._sibling(look, queues)

    def forget(self, place: int) -> None:
        """The queue of one row has vanished: should it come back, it is new."""
        self._of[place], self._again_at[place] = None, 0
        self.views.pop(self._names[place], None)

    def at(self, places: Ints) -> list[Look]:
        """The latest look at the queues of some rows, all of which have been looked at."""
        return [look for place in places.tolist() if (look := self._of[place]) is not None]

    def folded(self, places: Ints) -> dict[str, int]:
        """How much stands behind `other`, or is left out of the lists, now; published is how often that came to be."""
        groups, consumers, messages = (
            sum(each) for each in zip((0, 0, 0), *(look.folded for look in self.at(places)), strict=True)
        )
        return {"groups": groups, "consumers": consumers, "messages": messages}

    def _align(self, queues: MergedQueues) -> None:
        """Bring what is remembered into the order of `queues`: there may be new ones."""
        if queues.names is self._names:
            return
        known = {name: place for place, name in enumerate(self._names)}
        before = np.array([known.get(name, -1) for name in queues.names], dtype=np.int64)
        self._of = [None if place < 0 else self._of[place] for place in before.tolist()]
        self._again_at = np.append(self._again_at, 0)[before]
        self._by_flow = np.append(self._by_flow, False)[before]
        if self._rows.size:
            self._rows = np.concatenate([self._rows, np.full((1, self._rows.shape[1]), -1)])[before]
        siblings = np.array([self._sibling(look, queues) for look in self._of], dtype=np.int64)
        # Who moves messages to a queue that was not known until now looks at it.
        self._again_at[(siblings >= 0) & (before[siblings] < 0)] = 0
        self._siblings, self._names = siblings, queues.names

    def _sibling(self, look: Look | None, queues: MergedQueues) -> int:
        name = look.dead_letter_queue if look is not None else None
        place = queues.place(name) if name is not None else None
        return -1 if place is None else place


def _rows(queues: MergedQueues) -> Ints:
    """Everything that is known of each queue as numbers, but what changes with every step."""
    columns = np.stack([queues.columns[name] for name in _COMPARED] + [queues.group_digest], axis=1)
    tables = (columns, queues.totals, queues.oldest, queues.oldest_but_used_up)
    return np.concatenate([table.astype(np.int64, copy=False) for table in tables], axis=1)


_STATE_AT = _COMPARED.index("last_state_at")
