"""Where the messages of a dead-letter queue come from: a move is only known as far as the deliveries before it are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from streaming.core.reporting.merge import MergedQueues
from streaming.core.settings import QueueName, Settings
from streaming.core.state.queues import dead_letter_queue
from streaming.judge.knowledge.basis import Basis


class DeadLetterSources:
    """Made for each step. The queues are only looked through when a dead-letter queue without counts is judged: few are."""

    def __init__(self, queues: MergedQueues, basis_of: Callable[[QueueName], Basis | None], settings: Settings) -> None:
        """`basis_of`: the basis of a queue when it was last judged."""
        self._queues, self._basis_of, self._settings = queues, basis_of, settings

    def seen_in_part(self, name: QueueName) -> str:
        """Return the first of its sources whose deliveries are not all reported; empty if there is none."""
        sources = (source.queue for source in self._by_queue.get(name, ()) if self._basis_of(source) in ("partial", "producers"))
        return next(sources, "")

    @cached_property
    def _by_queue(self) -> Mapping[QueueName, list[QueueName]]:
        found: dict[QueueName, list[QueueName]] = {}
        for place, name in enumerate(self._queues.names):
            there = dead_letter_queue(self._queues.attributes(place), self._settings)
            if there:
                found.setdefault(name.sibling(there), []).append(name)
        return found
