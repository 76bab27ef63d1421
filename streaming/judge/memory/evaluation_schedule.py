"""Select the queues to judge again: those with new data, and those whose time has come.

Most queues of a large account are not touched in a step, and time alone changes their result at few moments: a limit is reached,
or events leave a sliding window. Each evaluation of a queue records the earliest such moment; until then, and unless something
arrives, its result remains valid.

Where very many queues are due only for a refresh (a count to compare, a bound that is old), some thousand are judged in a step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.reporting.merge import MergedQueues
from streaming.core.reporting.queue_columns import INTEGERS
from streaming.core.settings import QueueName
from streaming.judge.history.window import Bools, Ints
from streaming.judge.snapshot import QueueView, is_empty

if TYPE_CHECKING:
    from streaming.judge.evaluation.evaluation import Evaluation
    from streaming.judge.knowledge.queue import Knowledge

_REPORTED_AT = ("last_event_at", "last_state_at", "counted_at", "visible_counted_at")
"""When each queue was last reported on: the only columns that a count equal to the previous one changes."""
_REPORTED_ROWS = [INTEGERS.index(name) for name in _REPORTED_AT]
_COMPARED_ROWS = [row for row, name in enumerate(INTEGERS) if name != "age_sum_ms" and name not in _REPORTED_AT]
"""The rows of the other integers, except the one that changes in every step."""


FOLDED = ("groups", "consumers", "messages")

REFRESHED_AT_ONCE = 5_000
"""Queues judged in one step only for a refresh. Of a hundred thousand new ones every count is compared: all at once, that took a
minute, in which as much arrived again."""


class EvaluationSchedule:
    """The latest evaluation of each queue and the input it was based on.

    Not stored: after a restart every queue is judged once.
    """

    def __init__(self) -> None:
        self._names: tuple[QueueName, ...] = ()
        self._before: list[Ints] = []
        """The columns of the step before."""
        self._next_evaluation_at: Ints = np.zeros(0, dtype=np.int64)
        self._refresh_at: Ints = np.zeros(0, dtype=np.int64)
        self._judged_at: Ints = np.zeros(0, dtype=np.int64)
        self._due_for_refresh: Bools = np.zeros(0, dtype=bool)
        """Queues that are due for a refresh."""
        self._siblings: Ints = np.zeros(0, dtype=np.int64)
        self._by_flow: Bools = np.zeros(0, dtype=bool)
        self._steady: Bools = np.zeros(0, dtype=bool)
        self._folded: Ints = np.zeros((0, len(FOLDED)), dtype=np.int64)
        self._backlogs: Array = np.full((0, 2), np.nan)
        self._latest: list[Evaluation | None] = []
        self.views: dict[QueueName, tuple[Evaluation, QueueView]] = {}
        """Views already built, each with the evaluation it shows."""

    def due(self, queues: MergedQueues, besides: Iterable[QueueName], now: int) -> Bools:
        """Return the rows of the merged table to judge: those with new data or due by time, and those of `besides`.

        Of those that are due only for a refresh, at most REFRESHED_AT_ONCE: the ones judged longest ago.
        """
        new = self._align(queues)
        columns = _columns(queues)
        if self._before:
            changed = [values != before for values, before in zip(columns, self._before, strict=True)]
        else:
            changed = [np.ones(values.shape, dtype=bool) for values in columns]
        self._before = columns
        integers, attributes, groups, consumers, heard, *tables = changed
        reported, otherwise = (integers.T[rows].any(axis=0) for rows in (_REPORTED_ROWS, _COMPARED_ROWS))
        # What a consumer holds is compared with how much the broker counted, and when.
        otherwise |= consumers | (heard & (queues.columns["in_flight"] > 0))
        reported |= heard
        for table in tables:
            otherwise |= table.any(axis=1)
        configured = np.append(attributes, False)
        due: Bools = new | otherwise | attributes | groups | (self._next_evaluation_at <= now) | configured[self._siblings]
        for name in besides:
            place = queues.place(name)
            if place is not None:
                due[place] = True
        self._due_for_refresh |= (reported & ~self._steady) | (self._refresh_at <= now)
        self._due_for_refresh &= ~due
        due[self._refreshed_now()] = True
        return due

    def _refreshed_now(self) -> Ints:
        """Return the queues to refresh in this step."""
        waiting = nonzero(self._due_for_refresh)
        if len(waiting) > REFRESHED_AT_ONCE:
            waiting = waiting[np.argpartition(self._judged_at[waiting], REFRESHED_AT_ONCE)[:REFRESHED_AT_ONCE]]
        return waiting

    def by_flow(self) -> Bools:
        """Return the queues whose status may change with every step."""
        return self._by_flow

    def put(self, evaluations: Mapping[int, Evaluation], queues: MergedQueues) -> None:
        """Store the latest evaluations of the queues of some rows."""
        places, made = list(evaluations), evaluations.values()
        for place, evaluation in evaluations.items():
            self._latest[place] = evaluation
        self._judged_at[places], self._due_for_refresh[places] = [one.at for one in made], False
        self._next_evaluation_at[places] = [one.judge_again.at for one in made]
        self._refresh_at[places] = [one.judge_again.refresh_at for one in made]
        self._by_flow[places], self._steady[places] = [one.by_flow for one in made], [one.steady for one in made]
        self._siblings[places] = [self._sibling(one, queues) for one in made]
        self._folded[places] = [one.folded for one in made]
        self._backlogs[places] = [_backlog(one.knowledge) for one in made]

    def forget(self, place: int) -> None:
        """Forget the queue of one row, which has vanished: should it come back, it is new."""
        self._latest[place], self._next_evaluation_at[place], self._due_for_refresh[place] = None, 0, False
        self.views.pop(self._names[place], None)

    def latest(self) -> list[Evaluation | None]:
        """Return the latest evaluation of the queue of each row; None for those that were never judged or have vanished."""
        return list(self._latest)

    def backlogs(self, places: Ints) -> Array:
        """Return each queue's visible messages, and since when (epoch milliseconds) its oldest message has been in it.

        The latter is infinity where the queue is empty. Where they are not known they are NaN.
        """
        chosen: Array = self._backlogs[places]
        return chosen

    def folded(self, places: Ints) -> dict[str, int]:
        """Count what is folded into `other` or left out of the lists now; the published counter is of increases."""
        return dict(zip(FOLDED, self._folded[places].sum(axis=0).tolist(), strict=True))

    def _align(self, queues: MergedQueues) -> Bools:
        """Reorder what is remembered to match `queues`; return which of them are new."""
        if queues.names is self._names:
            return np.zeros(len(queues.names), dtype=bool)
        known = {name: place for place, name in enumerate(self._names)}
        before = np.array([known.get(name, -1) for name in queues.names], dtype=np.int64)
        self._latest = [None if place < 0 else self._latest[place] for place in before.tolist()]
        self._next_evaluation_at, self._refresh_at, self._judged_at = (
            np.append(times, 0)[before] for times in (self._next_evaluation_at, self._refresh_at, self._judged_at)
        )
        self._by_flow, self._steady, self._due_for_refresh = (
            np.append(flags, False)[before] for flags in (self._by_flow, self._steady, self._due_for_refresh)
        )
        self._folded = np.concatenate([self._folded, np.zeros((1, len(FOLDED)), dtype=np.int64)])[before]
        self._backlogs = np.concatenate([self._backlogs, np.full((1, 2), np.nan)])[before]
        self._before = [
            np.concatenate([values, np.zeros_like(values, shape=(1, *values.shape[1:]))])[before] for values in self._before
        ]
        siblings = np.array([self._sibling(evaluation, queues) for evaluation in self._latest], dtype=np.int64)
        # A queue whose dead-letter queue has only now become known is judged again.
        self._next_evaluation_at[(siblings >= 0) & (before[siblings] < 0)] = 0
        self._siblings, self._names = siblings, queues.names
        return before < 0

    def _sibling(self, evaluation: Evaluation | None, queues: MergedQueues) -> int:
        name = evaluation.dead_letter_queue if evaluation is not None else None
        place = queues.place(name) if name is not None else None
        return -1 if place is None else place


def _backlog(known: Knowledge) -> tuple[float, float]:
    depth, oldest = known.depth, known.ages.get("all")
    visible = depth.get("visible")
    no_age = math.inf if is_empty(visible, depth.get("in_flight"), depth.get("delayed")) else math.nan
    return math.nan if visible is None else visible, no_age if oldest is None else oldest.since_ms


def _columns(queues: MergedQueues) -> list[Ints]:
    """Return all numbers of each queue, a row per queue."""
    digests = (queues.attribute_digest, queues.group_digest, queues.consumer_digest, queues.consumers_reported)
    return [queues.integers.T, *digests, queues.flags.T, queues.totals, queues.oldest, queues.oldest_but_used_up]
