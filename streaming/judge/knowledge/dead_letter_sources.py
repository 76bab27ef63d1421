"""Where the messages of a dead-letter queue come from: a move is only known as far as the deliveries before it are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Final

from streaming.core.reporting.merge import MergedQueues
from streaming.core.settings import QueueName, Settings
from streaming.core.state.queues import dead_letter_queue
from streaming.judge.knowledge.basis import Basis

_IN_PART: Final[tuple[Basis, ...]] = ("partial", "producers")


class DeadLetterSources:
    """Made for each step. Sources are only looked for when a dead-letter queue without counts is judged: few are."""

    def __init__(
        self, queues: MergedQueues, on_basis: Callable[[Collection[Basis]], Iterable[QueueName]], settings: Settings
    ) -> None:
        """`on_basis`: returns the queues that were on one of these bases when they were last judged."""
        self._queues, self._on_basis, self._settings = queues, on_basis, settings

    def seen_in_part(self, name: QueueName) -> str:
        """Return the first of its sources whose deliveries are not all reported; empty if there is none."""
        return self._by_queue.get(name, "")

    @cached_property
    def _by_queue(self) -> Mapping[QueueName, str]:
        # Attributes are parsed of these queues only: those of ten thousand take a tenth of a second.
        places = sorted(place for name in self._on_basis(_IN_PART) if (place := self._queues.place(name)) is not None)
        found: dict[QueueName, str] = {}
        for place in places:
            name = self._queues.names[place]
            there = dead_letter_queue(self._queues.attributes(place), self._settings)
            if there:
                found.setdefault(name.sibling(there), name.queue)
        return found
