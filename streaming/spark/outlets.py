"""Where the results of a batch go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streaming.core.events.packet import Quarantined
from streaming.judge.signals import SignalChange
from streaming.judge.snapshot import Snapshot


@dataclass(frozen=True)
class Outlets:
    """Where results go. None of the three waits for a destination: what one has to send is kept in the checkpoint, and the
    batch is committed after that. Each is given the batch id, for a batch may run twice and must leave one copy."""

    snapshot: Callable[[Snapshot], None]
    signals: Callable[[Sequence[SignalChange], int], None]
    quarantine: Callable[[Sequence[Quarantined], int], None]
