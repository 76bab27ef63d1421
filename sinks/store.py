"""The store of the latest snapshot, written by the job and read by everything that shows it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar, get_args

from sinks.history import History, Trend
from streaming.core.settings import QueueName
from streaming.judge.findings.signals import SEVERITY_RANK, Finding, SignalKey
from streaming.judge.snapshot import QueueStatus, QueueView, Snapshot

Answer = TypeVar("Answer")

ShownStatus = Literal["critical", QueueStatus]
SHOWN_STATUSES: tuple[ShownStatus, ...] = get_args(ShownStatus)
"""The statuses by which queues are shown, counted and filtered."""


class Published:
    """An immutable snapshot with lookups for readers, built on first use."""

    def __init__(self, version: int, snapshot: Snapshot) -> None:
        self.version = version
        """Incremented with every published snapshot."""
        self.snapshot = snapshot
        self._answers: dict[object, Any] = {}

    def once(self, key: object, work_out: Callable[[], Answer]) -> Answer:
        """Return the result of `work_out` for this snapshot; it is computed on the first call only."""
        if key not in self._answers:
            self._answers[key] = work_out()
        answer: Answer = self._answers[key]
        return answer

    @cached_property
    def queues(self) -> Mapping[QueueName, QueueView]:
        """Queues by identity, folded ones too, and the views they are folded into."""
        return {queue.name: queue for queue in (*self.snapshot.queues, *self.snapshot.aggregated_queues)}

    @cached_property
    def rows(self) -> Sequence[QueueView]:
        """What the table of queues shows, by name: each queue, or the view it is folded into."""
        return sorted(self.snapshot.rows(), key=lambda queue: queue.name)

    @cached_property
    def findings(self) -> Mapping[QueueName, tuple[Finding, ...]]:
        """Firing signals by queue, the worst and then the longest firing first. Folded queues have theirs together as well."""
        found: dict[QueueName, list[Finding]] = {}
        for finding in self.firing:
            found.setdefault(finding.key.queue_name, []).append(finding)
        for aggregated in self.snapshot.aggregated_queues:
            members = set(aggregated.members)
            if of_members := [finding for finding in self.firing if finding.key.queue_name in members]:
                found[aggregated.name] = of_members
        return {name: tuple(of_queue) for name, of_queue in found.items()}

    def shown_status(self, queue: QueueView) -> ShownStatus:
        """Return the status of a queue, or `critical` if it is `ok` while a critical signal is announced for it."""
        return "critical" if queue.status == "ok" and queue.name in self._critical else queue.status

    @cached_property
    def _critical(self) -> Set[QueueName]:
        """The queues with an announced critical signal, and the views they are folded into."""
        return {
            name for name, found in self.findings.items() if any(one.severity == "critical" and one.announced for one in found)
        }

    @cached_property
    def firing(self) -> tuple[Finding, ...]:
        """All firing signals, the worst and then the longest firing first."""
        return tuple(sorted(self.snapshot.firing, key=lambda f: (-SEVERITY_RANK[f.severity], f.since_ms)))


@dataclass(frozen=True, slots=True)
class Resolved:
    """A signal that fired in one snapshot but not in a later one."""

    finding: Finding
    at_ms: int


class SnapshotStore:
    """The latest snapshot, a short history of each queue, and the last resolved signals. Thread-safe."""

    def __init__(self, *, history_step_s: float = 10.0, history_points: int = 90, resolved_kept: int = 100) -> None:
        self._lock = threading.Lock()
        self._latest: Published | None = None
        self._history = History(history_step_s, history_points)
        self._history_at_ms: int | None = None
        self._resolved: deque[Resolved] = deque(maxlen=resolved_kept)

    def publish(self, snapshot: Snapshot) -> None:
        """Make `snapshot` the one that all readers get from now on."""
        with self._lock:
            before = self._latest
            self._latest = Published(1 if before is None else before.version + 1, snapshot)
            if before is not None:
                self._note_resolved(before.snapshot, snapshot)
            # There may be several batches per second, but the history has steps of many seconds.
            if self._history_at_ms is None or abs(snapshot.at_ms - self._history_at_ms) >= 1_000:
                self._history_at_ms = snapshot.at_ms
                self._history.record(snapshot.at_ms, snapshot.queues, snapshot.aggregated_queues)

    @property
    def latest(self) -> Published | None:
        """The latest snapshot, or None before the first."""
        return self._latest

    def trend(self, queue: QueueName) -> Trend | None:
        """Return the recent history of one queue."""
        with self._lock:
            return self._history.of(queue)

    def resolved(self) -> tuple[Resolved, ...]:
        """Return recently resolved signals, the latest first."""
        with self._lock:
            return tuple(reversed(self._resolved))

    def _note_resolved(self, before: Snapshot, now: Snapshot) -> None:
        still: set[SignalKey] = {finding.key for finding in now.firing}
        self._resolved.extend(Resolved(f, now.at_ms) for f in before.firing if f.key not in still)
