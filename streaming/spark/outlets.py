"""Where the results of a batch go, and what happens while a destination is down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from streaming.core.packet import Quarantined
from streaming.judge.signals import SignalChange
from streaming.judge.snapshot import Snapshot

_log = structlog.get_logger(__name__)

UNDELIVERED_KEPT: Final = 10_000
"""Changes (and invalid events) kept in memory while their destination does not take them; beyond, the oldest go."""


@dataclass(frozen=True)
class Outlets:
    """Where results go. Each is given the batch id, for a batch may run twice and must leave one copy."""

    signals: Callable[[Sequence[SignalChange], int], None]
    quarantine: Callable[[Sequence[Quarantined], int], None]
    snapshot: Callable[[Snapshot], None]


def reliable(outlets: Outlets) -> Outlets:
    """The same destinations, none of which can stop the others or the job by being down."""
    return Outlets(
        Delivery("signal_log", outlets.signals).deliver,
        Delivery("quarantine", outlets.quarantine).deliver,
        outlets.snapshot,
    )


class Delivery:
    """Hands the results of each batch to one destination; while it fails, keeps them and tries again with the next.

    A destination that is down must neither stop the others nor the job.
    """

    def __init__(self, name: str, send: Callable[[Sequence[Any], int], None]) -> None:
        self._name = name
        self._send = send
        self._waiting: list[tuple[int, Sequence[Any]]] = []

    def deliver(self, items: Sequence[Any], batch_id: int) -> None:
        """Send what waits and then `items`, batch by batch. Never raises for what the destination raises."""
        self._waiting.append((batch_id, items))
        while self._waiting:
            waiting_id, waiting = self._waiting[0]
            try:
                self._send(waiting, waiting_id)
            except Exception as error:
                _log.error(f"{self._name}_failed", error=str(error), batches_waiting=len(self._waiting))
                self._drop_oldest()
                return
            del self._waiting[0]

    def _drop_oldest(self) -> None:
        # Batches with nothing to say need no second try.
        self._waiting = [(batch_id, items) for batch_id, items in self._waiting if items]
        while len(self._waiting) > 1 and sum(len(items) for _, items in self._waiting) > UNDELIVERED_KEPT:
            batch_id, items = self._waiting.pop(0)
            _log.error(f"{self._name}_lost", batch_id=batch_id, items=len(items))
