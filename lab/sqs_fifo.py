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
    """Ordered groups with the look-ahead of SQS, which keeps no order between them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sequence = 0
        self._all: list[int] = []
        self._visible: dict[str, list[tuple[int, str]]] = {}
        self._busy: dict[str, int] = {}
        self._heads: list[Place] = []
        """A heap of the open groups that were not in reach when they were last looked at, with some outdated places."""
        self._open: list[str] = []
        """The open groups in reach, in no order…"""
        self._place_in_open: dict[str, int] = {}
        """…and the place of each, so that one is removed without a search."""
        self._order = self.sim.random(f"order of {self.name}")

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
        while len(taken) < most and (group := self._next_group()) is not None:
            taken += self._take_from(group, most - len(taken))
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
        self._enlist(group)
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
        self._reach()
        return bool(self._open)

    def _unblock(self, message: Message) -> None:
        group = message.group or ""
        self._busy[group] -= 1
        if not self._busy[group]:
            del self._busy[group]

    def _enlist(self, group: str) -> None:
        """Put a group where it belongs after its messages changed."""
        self._close(group)
        waiting = self._visible.get(group)
        if not waiting:
            self._visible.pop(group, None)
        elif group not in self._busy:
            heappush(self._heads, (waiting[0][0], group))

    def _next_group(self) -> str | None:
        """Return the group to deliver next, None where none is open within the look-ahead."""
        self._reach()
        if not self._open:
            return None
        if self.settings.groups_in_order:
            return min(self._open, key=self._visible.__getitem__)
        return self._order.choice(self._open)

    def _reach(self) -> None:
        """Move the groups whose heads are within the look-ahead to the open ones, and drop outdated heads."""
        ahead = self.settings.look_ahead
        last = self._all[ahead - 1] if len(self._all) > ahead else self._sequence
        while self._heads and self._heads[0][0] <= last:
            sequence, group = heappop(self._heads)
            waiting = self._visible.get(group)
            if group not in self._busy and group not in self._place_in_open and waiting and waiting[0][0] == sequence:
                self._place_in_open[group] = len(self._open)
                self._open.append(group)

    def _close(self, group: str) -> None:
        place = self._place_in_open.pop(group, None)
        if place is None:
            return
        last = self._open.pop()
        if last != group:
            self._open[place], self._place_in_open[last] = last, place
