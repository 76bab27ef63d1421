"""The watched queues: what is known of each, and what to request next from the API."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from sources.cloudflare.answers import ListedQueue

LONGEST_BACKOFF_S: Final = 600.0

Question = Literal["consumers", "backlog", "sample"]


@dataclass(slots=True)
class Watched:
    """One queue. Times are in seconds of the collector's monotonic clock."""

    listed: ListedQueue
    attributes: dict[str, Any] = field(default_factory=dict)
    """Its settings, as `queue_state` reports them."""
    due_s: dict[Question, float] = field(default_factory=dict)
    sampled: bool = False
    """Whether the last sample found messages."""
    failures: dict[Question, int] = field(default_factory=dict)
    """The number of consecutive failures by question."""

    def answered(self, question: Question, next_due_s: float | None) -> None:
        """Schedule the question's next request; None: only when something else triggers it."""
        self.failures.pop(question, None)
        if next_due_s is None:
            self.due_s.pop(question, None)
        else:
            self.due_s[question] = next_due_s

    def failed(self, question: Question, now_s: float, interval_s: float) -> float:
        """Schedule the question again, later with each failure; returns in how many seconds."""
        failures = self.failures.get(question, 0)
        wait_s = backoff_s(interval_s, failures)
        self.failures[question] = failures + 1
        self.due_s[question] = now_s + wait_s
        return wait_s


class Job(NamedTuple):
    """The next question about a queue, and when it is due."""

    due_s: float
    question: Question
    queue: Watched


class WatchList:
    """All watched queues. A failing queue does not delay the others."""

    def __init__(self) -> None:
        self._queues: dict[str, Watched] = {}

    def replace(self, listed: Collection[ListedQueue], now_s: float, spread_s: float) -> list[Watched]:
        """Replace the list, and return the queues that are watched now.

        New queues are read over the next `spread_s`, vanished ones no longer.
        """
        before = self._queues
        self._queues = {queue.id: before.get(queue.id) or Watched(queue) for queue in listed}
        new = [watched for id_, watched in self._queues.items() if id_ not in before]
        for i, watched in enumerate(new):
            watched.due_s["backlog"] = now_s + spread_s * i / len(new)
        for queue in listed:
            self._queues[queue.id].listed = queue
        return list(self._queues.values())

    def forget(self, watched: Watched) -> None:
        """Forget a queue that is gone; it comes back with the next list that includes it."""
        self._queues.pop(watched.listed.id, None)

    def next_job(self) -> Job | None:
        """Return the question that is due first, whether it is due already or not."""
        return min(
            (Job(due_s, question, queue) for queue in self for question, due_s in queue.due_s.items()),
            key=lambda job: job.due_s,
            default=None,
        )

    @property
    def is_blind(self) -> bool:
        """Whether the last request for the backlog failed for every queue there is."""
        return bool(self._queues) and all("backlog" in queue.failures for queue in self)

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[Watched]:
        return iter(self._queues.values())


def backoff_s(interval_s: float, failures: int) -> float:
    """Return the wait after `failures` failures and one more: doubling, with jitter, up to a limit."""
    return min(interval_s * 2.0 ** min(failures, 20), LONGEST_BACKOFF_S) * random.uniform(0.75, 1.0)
