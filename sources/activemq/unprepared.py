"""Find the advisories a queue does not send, by comparing the broker's counts with what was read.

Optional advisories are enabled per destination policy entry, and entries do not merge: a queue with its own
entry may be silent while all others report. No network, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sources.activemq.advisory import MessageKind
from sources.activemq.statistics import QueueCounts

FLAGS: Final = {
    "delivered": "advisoryForDelivery",
    "dispatched": "advisoryForDispatched",
    "consumed": "advisoryForConsumed",
}
"""Kind of advisory -> the policy entry's attribute that enables it."""

_SILENT_POLLS = 2
"""One silent interval may be a message between its count and its advisory; two in a row cannot."""


@dataclass(slots=True)
class _Queue:
    counted: dict[str, int] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    silent: dict[str, int] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()


class FlagWatch:
    """The flags that seem to be off, per queue."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}

    def read(self, kind: MessageKind, queue: str) -> None:
        """Record that an advisory of `kind` about `queue` was read."""
        read = self._queues.setdefault(queue, _Queue()).read
        read[kind] = read.get(kind, 0) + 1

    def observe(self, counts: QueueCounts) -> frozenset[str]:
        """Compare the broker's counts of one queue; return the flags (`advisoryFor…`) that are known to be off."""
        queue = self._queues.setdefault(counts.queue, _Queue())
        totals = {
            "delivered": counts.enqueued,
            "dispatched": counts.dispatched,
            "consumed": counts.dequeued,
        }
        for kind, total in totals.items():
            before = queue.counted.get(kind)
            if queue.read.get(kind):
                queue.silent[kind] = 0
            elif before is not None and total > before:
                queue.silent[kind] = queue.silent.get(kind, 0) + 1
        queue.counted, queue.read = totals, {}
        queue.missing = frozenset(FLAGS[kind] for kind, polls in queue.silent.items() if polls >= _SILENT_POLLS)
        return queue.missing

    def missing(self) -> dict[str, frozenset[str]]:
        """Return the queues with flags that are off."""
        return {name: queue.missing for name, queue in self._queues.items() if queue.missing}

    def keep_only(self, queues: set[str]) -> None:
        """Forget queues that no longer exist on the broker."""
        for name in self._queues.keys() - queues:
            del self._queues[name]
