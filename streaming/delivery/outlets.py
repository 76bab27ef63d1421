"""The destinations of a batch's results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streaming.core.events.packet import Quarantined
from streaming.judge.findings.signals import SignalChange
from streaming.judge.snapshot import Snapshot


@dataclass(frozen=True)
class Outlets:
    """The destinations of results.

    None of the three blocks on a destination: records to send are stored in the checkpoint, and the batch is committed
    afterwards. Each gets the batch id, because a batch may run twice and must leave one copy.
    """

    snapshot: Callable[[Snapshot], None]
    signals: Callable[[Sequence[SignalChange], int], None]
    quarantine: Callable[[Sequence[Quarantined], int], None]
