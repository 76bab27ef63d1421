"""Traits of queues: which are dead-letter queues, which are ordered, and where each one's dead letters go."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeVar

from sources.activemq.advisory import MessageBody

_MAX_QUEUES: Final = 100_000
"""How many queues of each trait are remembered: an application may create a queue for each of its jobs."""

Value = TypeVar("Value")


class QueueTraits:
    """Traits learned from messages, in addition to the configured names. What was learned of the latest queues is kept."""

    def __init__(
        self,
        is_dead_letter_queue: Callable[[str], bool] = lambda _: False,
        is_ordered: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._named_dead_letter_queue = is_dead_letter_queue
        self._named_ordered = is_ordered
        self._dead_letter_queues: OrderedDict[str, None] = OrderedDict()
        self._grouped: OrderedDict[str, None] = OrderedDict()
        self._dead_letter_queue_of: OrderedDict[str, str] = OrderedDict()

    def learn(self, queue: str, body: MessageBody) -> None:
        """Learn the traits that a message in `queue` shows."""
        if body.in_dead_letter_queue:
            _remember(self._dead_letter_queues, queue, None)
        if body.group is not None:
            _remember(self._grouped, queue, None)

    def learn_move(self, source: str, dead_letter_queue: str) -> None:
        """Learn that a message of `source` was moved to `dead_letter_queue`."""
        _remember(self._dead_letter_queues, dead_letter_queue, None)
        _remember(self._dead_letter_queue_of, source, dead_letter_queue)

    def is_dead_letter_queue(self, queue: str) -> bool:
        """Whether it is one by its name, or because a message was moved there."""
        return queue in self._dead_letter_queues or self._named_dead_letter_queue(queue)

    def dead_letter_queue_of(self, queue: str) -> str | None:
        """Return where the queue's dead letters went last, if any did."""
        return self._dead_letter_queue_of.get(queue)

    def is_ordered(self, queue: str) -> bool:
        """Whether the queue is ordered: its messages have groups, or it is configured so.

        Every event of a queue must agree, because ordered queues are tracked in one place. The messages of a dead-letter
        queue keep their groups, but are not processed in order.
        """
        return (queue in self._grouped or self._named_ordered(queue)) and not self.is_dead_letter_queue(queue)


def _remember(known: OrderedDict[str, Value], queue: str, value: Value) -> None:
    known[queue] = value
    known.move_to_end(queue)
    if len(known) > _MAX_QUEUES:
        known.popitem(last=False)
