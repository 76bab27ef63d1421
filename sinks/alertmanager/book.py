"""Which alerts Alertmanager should know of now: kept while they fire, ended properly, never flapping. Pure,
told the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from alerts.catalogue import BY_NAME
from alerts.config import AlertRulesConfig
from alerts.entry import AlertName
from alerts.explains import explained_by
from sinks.alertmanager.alert import OTHERS, Told
from sinks.alertmanager.config import AlertmanagerConfig
from sinks.store import SEVERITY_RANK
from streaming.core.settings import QueueName
from streaming.judge.signals import Finding, Severity, SignalKey

ENDED_KEPT_MS = 900_000
"""An ended alert is told again for so long, for an Alertmanager that was away when it ended."""


@dataclass(frozen=True, slots=True)
class Line:
    """One alert in the book."""

    told: Told
    version: int
    """When it began, changed or ended: a destination sends what is newer than it has sent."""
    seen_ms: int
    """When the signal was last seen firing."""
    ended_ms: int | None = None


_Kind = tuple[str, str, str, str]
"""signal, system, scope, queue."""


class AlertBook:
    """Findings in, alerts out. Times are epoch milliseconds. Not safe for threads."""

    def __init__(self, config: AlertmanagerConfig, rules: AlertRulesConfig) -> None:
        self._config = config
        self._rules = rules
        self._lines: dict[tuple[SignalKey, Severity], Line] = {}
        self.version = 0
        """Counts up with every change."""
        self.unsent = 0
        """How many findings the latest update left out for want of room."""

    def update(self, firing: Iterable[Finding], now_ms: int) -> None:
        """Note what fires now. What is not among it ends, after `keep_firing_s`."""
        before = self.version
        self.version += 1
        changed = False
        current = {told.finding.key: told for told in self._choose(firing)}
        for (key, severity), line in list(self._lines.items()):
            told = current.pop(key, None) if line.ended_ms is None else None
            if told is None:
                changed |= self._age(key, severity, line, now_ms)
            elif SEVERITY_RANK[told.severity] > SEVERITY_RANK[severity]:
                # Graver than told: the milder alert ends, one with the new severity begins.
                self._lines[key, severity] = replace(line, ended_ms=now_ms, version=self.version)
                self._lines[key, told.severity] = Line(told, self.version, now_ms)
                changed = True
            else:
                # Milder again: the severity is a label, and going back and forth would notify every time.
                self._lines[key, severity] = replace(line, told=replace(told, severity=severity), seen_ms=now_ms)
        for key, told in current.items():
            self._lines[key, told.severity] = Line(told, self.version, now_ms)
            changed = True
        if not changed:
            self.version = before

    def resume(self, lines: Iterable[Line], version: int) -> None:
        """Go on from what an earlier process saved. What fires is then ended, or not, by the next `update`."""
        self._lines = {(line.told.finding.key, line.told.severity): line for line in lines}
        self.version = version

    def since(self, version: int) -> list[Line]:
        """What changed after `version`; all lines for -1."""
        return [line for line in self._lines.values() if line.version > version]

    def count(self) -> int:
        """How many alerts fire."""
        return sum(line.ended_ms is None for line in self._lines.values())

    def _age(self, key: SignalKey, severity: Severity, line: Line, now_ms: int) -> bool:
        if line.ended_ms is not None:
            if now_ms - line.ended_ms > ENDED_KEPT_MS:
                del self._lines[key, severity]
            return False
        if now_ms - line.seen_ms < self._config.keep_firing_s * 1000:
            return False
        self._lines[key, severity] = replace(line, ended_ms=now_ms, version=self.version)
        return True

    def _choose(self, firing: Iterable[Finding]) -> Iterator[Told]:
        """The findings that become alerts, and one for the rest of each signal and queue."""
        wanted = [told for finding in firing if (told := self._wanted(finding)) is not None]
        wanted = _without_explained(wanted)
        wanted.sort(key=self._order)
        by_kind: dict[_Kind, list[Told]] = {}
        chosen: list[Told] = []
        for told in wanted:
            key = told.finding.key
            by_kind.setdefault((key.signal, key.system, key.scope, key.queue), []).append(told)
        for of_kind in by_kind.values():
            chosen += of_kind[: self._config.max_per_queue]
            if rest := of_kind[self._config.max_per_queue :]:
                chosen.append(_folded(rest))
        chosen.sort(key=self._order)
        self.unsent = max(0, len(chosen) - self._config.max_alerts)
        yield from chosen[: self._config.max_alerts]

    def _wanted(self, finding: Finding) -> Told | None:
        switch = self._rules.switch(BY_NAME[finding.key.signal])
        severity = switch.severity or finding.severity
        queue = finding.key.queue
        if (
            not finding.announced
            or not switch.enabled
            or SEVERITY_RANK[severity] < SEVERITY_RANK[self._config.min_severity]
            or (switch.only_queues and not re.fullmatch(switch.only_queues, queue))
            or (switch.exclude_queues and re.fullmatch(switch.exclude_queues, queue))
        ):
            return None
        return Told(finding, severity)

    def _order(self, told: Told) -> tuple[int, bool, int, str]:
        """Gravest first; then what is told already, so that a full book does not change its mind; then the
        oldest.

        Dead letters the other way round: every new one must notify, the oldest has done so.
        """
        finding = told.finding
        newest_first = finding.key.signal == "DeadLetterArrived"
        held = not newest_first and self._is_told(finding.key)
        age = -finding.since_ms if newest_first else finding.since_ms
        return -SEVERITY_RANK[told.severity], not held, age, repr(finding.key)

    def _is_told(self, key: SignalKey) -> bool:
        return any((line := self._lines.get((key, severity))) is not None and line.ended_ms is None for severity in SEVERITY_RANK)


def _without_explained(wanted: list[Told]) -> list[Told]:
    """One incident, one page: what another alert of the same queue explains is left to that one."""
    firing: dict[QueueName, set[AlertName]] = {}
    for told in wanted:
        firing.setdefault(told.finding.key.queue_name, set()).add(told.finding.key.signal)
    return [t for t in wanted if explained_by(t.finding.key.signal, firing[t.finding.key.queue_name]) is None]


def _folded(rest: Sequence[Told]) -> Told:
    """One alert for many findings of one signal and queue: its labels do not change with their number."""
    latest = max(rest, key=lambda told: told.finding.since_ms)
    gravest = max(rest, key=lambda told: SEVERITY_RANK[told.severity])
    key = latest.finding.key
    of_queue = SignalKey(key.signal, key.system, key.scope, key.queue, part=OTHERS)
    since_ms = min(told.finding.since_ms for told in rest)
    return Told(replace(latest.finding, key=of_queue, since_ms=since_ms), gravest.severity, folded=len(rest))
