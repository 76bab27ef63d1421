"""Traits of queues: which are dead-letter queues, which are ordered, and where each one's dead letters go."""

from __future__ import annotations

from collections.abc import Callable

from sources.activemq.advisory import MessageBody


class QueueTraits:
    """Traits learned from messages, in addition to the configured names. What was learned is kept."""

    def __init__(
        self,
        is_dead_letter_queue: Callable[[str], bool] = lambda _: False,
        is_ordered: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._named_dead_letter_queue = is_dead_letter_queue
        self._named_ordered = is_ordered
        self._dead_letter_queues: set[str] = set()
        self._grouped: set[str] = set()
        self._dead_letter_queue_of: dict[str, str] = {}

    def learn(self, queue: str, body: MessageBody) -> None:
        """Learn the traits that a message in `queue` shows."""
        if body.in_dead_letter_queue:
            self._dead_letter_queues.add(queue)
        if body.group is not None:
            self._grouped.add(queue)

    def learn_move(self, source: str, dead_letter_queue: str) -> None:
        """Learn that a message of `source` was moved to `dead_letter_queue`."""
        self._dead_letter_queues.add(dead_letter_queue)
        self._dead_letter_queue_of[source] = dead_letter_queue

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
