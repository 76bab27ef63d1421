"""The truth: the state of every message at every instant, each delivery and each end.

Counts and ages at any time follow exactly from it. queuewatch sees none of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

State = Literal["visible", "in_flight", "delayed"]
STATES: tuple[State, ...] = ("visible", "in_flight", "delayed")
End = Literal["deleted", "dead_lettered", "redriven", "expired", "dropped", "purged"]
Outcome = Literal["deleted", "timed_out", "released", "expired", "purged", "dropped", "open"]

NEVER = 1 << 62
Ints = npt.NDArray[np.int64]


class Departure(NamedTuple):
    """A message left a queue."""

    queue: str
    message_id: str
    at: int
    how: End


@dataclass
class Delivery:
    """A delivery to a consumer. `ended_at` is when its window ended or the message was settled."""

    queue: str
    message_id: str
    consumer: str
    receive_count: int
    at: int
    ended_at: int = NEVER
    outcome: Outcome = "open"


class Arrival(NamedTuple):
    """A message that entered a queue."""

    message_id: str
    at: int
    sent_at: int


class Counts(NamedTuple):
    """A broker's exact counts of one queue at one instant."""

    visible: int
    in_flight: int
    delayed: int

    @property
    def unsettled(self) -> int:
        return self.visible + self.in_flight + self.delayed


@dataclass
class QueueHistory:
    """One queue: intervals of states, deliveries and ends, in the order in which they happened."""

    name: str
    _open: dict[str, tuple[State, int, int]] = field(default_factory=dict)
    _closed: list[tuple[int, int, int, int]] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    departures: list[Departure] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    _arrays: tuple[Ints, Ints, Ints, Ints] | None = None

    def enter(self, message_id: str, state: State, sent_at: int, now: int) -> None:
        """Record that a message enters the queue."""
        self.arrivals.append(Arrival(message_id, now, sent_at))
        self._open[message_id] = (state, now, sent_at)

    def change(self, message_id: str, state: State, now: int) -> None:
        """Record a message's new state."""
        self._close(message_id, now)
        self._open[message_id] = (state, now, self._sent_at)

    def leave(self, message_id: str, how: End, now: int) -> None:
        """Record that a message leaves the queue."""
        self._close(message_id, now)
        self.departures.append(Departure(self.name, message_id, now, how))

    def _close(self, message_id: str, now: int) -> None:
        state, since, self._sent_at = self._open.pop(message_id)
        if now > since:
            self._closed.append((STATES.index(state), since, now, self._sent_at))

    @property
    def entered(self) -> int:
        """Return how many messages entered the queue."""
        return len(self.arrivals)

    def freeze(self) -> None:
        """End the simulation: open intervals stay open."""
        rows = self._closed + [(STATES.index(s), since, NEVER, sent) for s, since, sent in self._open.values()]
        table = np.array(rows, dtype=np.int64).reshape(-1, 4)
        self._arrays = (table[:, 0], table[:, 1], table[:, 2], table[:, 3])

    def counts(self, at: int) -> Counts:
        """Return the exact counts at a time in epoch milliseconds, after all events of that millisecond."""
        state, since, until, _ = self._frozen()
        held = np.bincount(state[(since <= at) & (at < until)], minlength=3)
        return Counts(int(held[0]), int(held[1]), int(held[2]))

    def oldest_sent_at(self, at: int, *, visible_only: bool = False) -> int | None:
        """Return when the oldest unsettled (or visible) message was sent; None when there is none."""
        state, since, until, sent = self._frozen()
        here = (since <= at) & (at < until)
        if visible_only:
            here &= state == 0
        return int(sent[here].min()) if here.any() else None

    def _frozen(self) -> tuple[Ints, Ints, Ints, Ints]:
        if self._arrays is None:
            raise ValueError("the simulation is not over: freeze the history first")
        return self._arrays


class History:
    """The queues of one simulation by name."""

    def __init__(self) -> None:
        self.queues: dict[str, QueueHistory] = {}

    def of(self, queue: str) -> QueueHistory:
        """Return the history of one queue, creating it on first use."""
        return self.queues.setdefault(queue, QueueHistory(queue))

    def freeze(self) -> None:
        """End the simulation."""
        for queue in self.queues.values():
            queue.freeze()
