"""The outcome of one simulation: what clients could have reported, what was true, and the faults (labels)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lab.history import History
from lab.report import Report, System
from lab.simulation import T0_MS


@dataclass(frozen=True)
class Label:
    """One fault. Times are epoch milliseconds."""

    fault: str
    queue: str
    from_ms: int
    to_ms: int | None
    """None: until the end of the recording."""
    detectable_ms: int
    """The earliest time at which anything observable differs from health, with everything instrumented."""
    message_id: str | None = None
    group: str | None = None
    consumer: str | None = None
    expected: tuple[str, ...] = ()
    """Signals of which each one names the fault."""
    cause_ms: int | None = None
    """When its cause began, if earlier: an alarm from then on is not a false one."""


@dataclass
class Recording:
    """A scenario that has run. `settings` is the configuration of each queue as the collector reads it."""

    name: str
    seed: int
    duration_s: float
    reports: list[Report]
    history: History
    settings: Mapping[str, dict[str, Any]]
    labels: list[Label] = field(default_factory=list)
    allowed: frozenset[str] = frozenset()
    """Signals that may fire as critical once the fault exists: the fault itself and its effects."""
    system: System = "aws_sqs"
    changes: Sequence[tuple[int, str, dict[str, Any]]] = ()
    """Changes of a queue's configuration, as the collector reads it, with the epoch millisecond from which each applies."""
    learning_s: float = 0.0
    """A healthy recording that looks like a fault before this many seconds; one page until then is no error."""

    @property
    def ends_at(self) -> int:
        return T0_MS + round(self.duration_s * 1000)

    def fault_at(self) -> int | None:
        """When the first fault begins; None for a healthy recording."""
        return min((label.from_ms for label in self.labels), default=None)

    def cause_ms(self) -> int | None:
        """The time from which an alarm is not a false one; None for a healthy recording."""
        return min((label.from_ms if label.cause_ms is None else label.cause_ms for label in self.labels), default=None)

    def settings_at(self, queue: str, at: int) -> dict[str, Any]:
        """Return a queue's configuration as the collector reads it at a time in epoch milliseconds."""
        settings = dict(self.settings[queue])
        for since, changed, attributes in self.changes:
            if changed == queue and since <= at:
                settings |= attributes
        return settings

    def truth(self, every_s: float = 10.0) -> list[dict[str, Any]]:
        """Return sampled counts and oldest ages of every queue."""
        step = round(every_s * 1000)
        rows = []
        for at in range(T0_MS, self.ends_at + 1, step):
            for name, queue in self.history.queues.items():
                oldest, visible = queue.oldest_sent_at(at), queue.oldest_sent_at(at, visible_only=True)
                row: dict[str, Any] = {"at": at, "queue": name, **queue.counts(at)._asdict()}
                row["oldest_age_s"] = None if oldest is None else (at - oldest) / 1000
                row["oldest_visible_age_s"] = None if visible is None else (at - visible) / 1000
                rows.append(row)
        return rows

    def labels_json(self) -> list[dict[str, Any]]:
        """Return the labels as plain values, without absent fields."""
        return [{name: value for name, value in asdict(label).items() if value is not None} for label in self.labels]
