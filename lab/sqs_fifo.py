"""A FIFO queue: a group with a message in flight is blocked; only the front of the queue is scanned."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heappop, heappush

from lab.sqs import Message, SqsQueue

Place = tuple[int, str]
"""Sequence of a group's first visible message, and the group."""


@dataclass
class FifoQueue(SqsQueue):
    """Ordered groups with the look-ahead of SQS."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sequence = 0
        self._all: list[int] = []
        self._visible: dict[str, list[tuple[int, str]]] = {}
        self._busy: dict[str, int] = {}
        self._heads: list[Place] = []

    def _add(self, message: Message) -> None:
        self._sequence += 1
        message.sequence = self._sequence
        self._all.append(message.sequence)

    def _offer(self, message: Message) -> None:
        group = message.group or ""
        insort(self._visible.setdefault(group, []), (message.sequence, message.id))
        self._enlist(group)

    def _take(self, most: int) -> list[Message]:
        taken: list[Message] = []
        while len(taken) < most and (place := self._first_open_group()):
            heappop(self._heads)
            taken += self._take_from(place[1], most - len(taken))
        return taken

    def _take_from(self, group: str, most: int) -> list[Message]:
        """Take as many messages as possible from one group, as SQS prefers."""
        taken: list[Message] = []
        waiting = self._visible[group]
        while waiting and len(taken) < most:
            message = self.messages[waiting[0][1]]
            if self._exhausted(message):
                self._move(message)  # which takes it out of `waiting`
                continue
            waiting.pop(0)
            taken.append(message)
            self._busy[group] = self._busy.get(group, 0) + 1
        return taken

    def _remove(self, message: Message) -> None:
        group = message.group or ""
        del self._all[bisect_left(self._all, message.sequence)]
        waiting = self._visible.get(group, [])
        place = bisect_left(waiting, (message.sequence, message.id))
        if place < len(waiting) and waiting[place][1] == message.id:
            del waiting[place]
        self._enlist(group)

    def _receivable(self) -> bool:
        return self._first_open_group() is not None

    def _unblock(self, message: Message) -> None:
        group = message.group or ""
        self._busy[group] -= 1
        if not self._busy[group]:
            del self._busy[group]

    def _enlist(self, group: str) -> None:
        waiting = self._visible.get(group)
        if not waiting:
            self._visible.pop(group, None)
        elif group not in self._busy:
            heappush(self._heads, (waiting[0][0], group))

    def _first_open_group(self) -> Place | None:
        """Return the next group to deliver, if it is not beyond the look-ahead, and drop outdated heads."""
        while self._heads:
            sequence, group = self._heads[0]
            waiting = self._visible.get(group)
            if group in self._busy or not waiting or waiting[0][0] != sequence:
                heappop(self._heads)
                continue
            hidden = bisect_left(self._all, sequence) >= self.settings.look_ahead
            return None if hidden else (sequence, group)
        return None
