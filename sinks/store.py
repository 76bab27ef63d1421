"""Where the job leaves its latest snapshot and everything that shows it comes to read."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sinks.history import History, Trend
from streaming.core.settings import QueueName
from streaming.judge.signals import Finding, Severity, SignalKey
from streaming.judge.snapshot import QueueView, Snapshot

SEVERITY_RANK: Mapping[Severity, int] = {"critical": 2, "warning": 1, "info": 0}
"""Higher is worse."""


class Published:
    """A snapshot with the look-ups readers need, made on first use. Never changes."""

    def __init__(self, version: int, snapshot: Snapshot) -> None:
        self.version = version
        """Counts up by one with every snapshot published."""
        self.snapshot = snapshot

    @cached_property
    def queues(self) -> Mapping[QueueName, QueueView]:
        """Queues by identity."""
        return {queue.name: queue for queue in self.snapshot.queues}

    @cached_property
    def findings(self) -> Mapping[QueueName, tuple[Finding, ...]]:
        """Firing signals by queue, the worst and then the longest firing first."""
        found: dict[QueueName, list[Finding]] = {}
        for finding in self.firing:
            found.setdefault(finding.key.queue_name, []).append(finding)
        return {name: tuple(of_queue) for name, of_queue in found.items()}

    @cached_property
    def firing(self) -> tuple[Finding, ...]:
        """All firing signals, the worst and then the longest firing first."""
        return tuple(sorted(self.snapshot.firing, key=lambda f: (-SEVERITY_RANK[f.severity], f.since_ms)))


@dataclass(frozen=True, slots=True)
class Resolved:
    """A signal that fired in one snapshot and no longer in a later one."""

    finding: Finding
    at_ms: int


class SnapshotStore:
    """The latest snapshot, a short past of each queue, and the signals resolved last. Safe for threads."""

    def __init__(self, *, history_step_s: float = 10.0, history_points: int = 90, resolved_kept: int = 100) -> None:
        self._lock = threading.Lock()
        self._latest: Published | None = None
        self._history = History(history_step_s, history_points)
        self._history_at_ms: int | None = None
        self._resolved: deque[Resolved] = deque(maxlen=resolved_kept)

    def publish(self, snapshot: Snapshot) -> None:
        """Make `snapshot` the one everybody reads from now on."""
        with self._lock:
            before = self._latest
            self._latest = Published(1 if before is None else before.version + 1, snapshot)
            if before is not None:
                self._note_resolved(before.snapshot, snapshot)
            # Batches may come several times a second; the past is drawn in steps of many seconds.
            if self._history_at_ms is None or abs(snapshot.at_ms - self._history_at_ms) >= 1_000:
                self._history_at_ms = snapshot.at_ms
                self._history.record(snapshot.at_ms, snapshot.queues)

    @property
    def latest(self) -> Published | None:
        """The latest snapshot, None before the first."""
        return self._latest

    def trend(self, queue: QueueName) -> Trend | None:
        """The recent past of one queue."""
        with self._lock:
            return self._history.of(queue)

    def resolved(self) -> tuple[Resolved, ...]:
        """Signals resolved lately, the last one first."""
        with self._lock:
            return tuple(reversed(self._resolved))

    def _note_resolved(self, before: Snapshot, now: Snapshot) -> None:
        still: set[SignalKey] = {finding.key for finding in now.firing}
        self._resolved.extend(Resolved(f, now.at_ms) for f in before.firing if f.key not in still)
