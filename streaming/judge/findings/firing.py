"""The firing signals, and how they change in a step.

Thousands may go on firing for days about queues of which nothing is reported: a step handles only those of the queues it judged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from streaming.core.reporting.merge import MergedQueues
from streaming.core.settings import QueueName
from streaming.judge.findings.lasting import is_lasting
from streaming.judge.findings.signals import SEVERITY_RANK, Finding, SignalChange, SignalKey, SignalStatus

NO_QUEUE = QueueName("", "", "")
"""The queue of signals about a collector or a clock."""


@dataclass(slots=True)
class FiringSignals:
    """The signals that fire, in the order in which they began."""

    findings: dict[SignalKey, Finding] = field(default_factory=dict)
    _by_queue: dict[QueueName, dict[SignalKey, Finding]] = field(init=False, compare=False, repr=False)
    _changing: set[QueueName] = field(init=False, compare=False, repr=False)
    _names: tuple[QueueName, ...] | None = field(init=False, default=None, compare=False, repr=False)
    """The names of the queues known in the step before."""

    def __post_init__(self) -> None:
        self._by_queue, self._changing = {}, set()
        for key, finding in self.findings.items():
            self._by_queue.setdefault(key.queue_name, {})[key] = finding
        self._note_changing(self._by_queue)

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings.values())

    def of(self, name: QueueName) -> Mapping[SignalKey, Finding]:
        """Return what fires about one queue."""
        return self._by_queue.get(name, {})

    def changing(self) -> set[QueueName]:
        """Return the queues with a signal that may change in every step."""
        return self._changing

    def forgotten(self, queues: MergedQueues) -> list[QueueName]:
        """Return the queues with signals that are no longer known at all."""
        if queues.names is self._names:
            return []
        self._names = queues.names
        return [name for name in self._by_queue if name != NO_QUEUE and queues.place(name) is None]

    def update(self, concerned: Iterable[QueueName], after: Mapping[SignalKey, Finding], now: int) -> list[SignalChange]:
        """Replace what fires about the queues of `concerned` by `after`; return the signals that began and those that ended.

        A signal that continues keeps its start time and its place in the order. One that becomes more severe than it was ever
        announced begins to fire again: who only reads changes must see that it pages now.
        """
        concerned = set(concerned)
        before = {key: finding for name in concerned for key, finding in self.of(name).items()}
        changes: list[SignalChange] = []
        for key, finding in after.items():
            known = before.get(key)
            announced_as = known.announced_as if known is not None else None
            if finding.announced and (announced_as is None or SEVERITY_RANK[finding.severity] > SEVERITY_RANK[announced_as]):
                # It may have been folded or not alerting since it began, and no longer be so.
                announced_as = finding.severity
                changes.append(_change(now, "firing", finding))
            elif known is None:
                changes.append(_change(now, "firing", finding))
            since_ms = finding.since_ms if known is None else min(known.since_ms, finding.since_ms)
            self._put(key, finding.continued(since_ms, announced_as))
        for key, finding in before.items():
            if key not in after:
                changes.append(_change(now, "resolved", finding))
                self._drop(key)
        self._note_changing(concerned)
        changes.sort(key=lambda c: (c.status, _order(c.finding.key)))
        return changes

    def _put(self, key: SignalKey, finding: Finding) -> None:
        self.findings[key] = finding
        self._by_queue.setdefault(key.queue_name, {})[key] = finding

    def _drop(self, key: SignalKey) -> None:
        del self.findings[key]
        of_queue = self._by_queue[key.queue_name]
        del of_queue[key]
        if not of_queue:
            del self._by_queue[key.queue_name]

    def _note_changing(self, names: Iterable[QueueName]) -> None:
        for name in names:
            if all(map(is_lasting, self.of(name))):
                self._changing.discard(name)
            else:
                self._changing.add(name)


def _change(now: int, status: SignalStatus, finding: Finding) -> SignalChange:
    text = "\0".join((*_order(finding.key), status, str(now), finding.folded or ""))
    return SignalChange(now, status, finding, hashlib.blake2b(text.encode(), digest_size=12).hexdigest())


def _order(key: SignalKey) -> tuple[str, ...]:
    about = (key.message_id, key.group, key.consumer, key.part)
    return (key.system, key.scope, key.queue, key.signal, *(word or "" for word in about))
