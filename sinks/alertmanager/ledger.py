"""The ledger of current alerts: kept while they fire, ended properly, without flapping. Pure: the caller passes the time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from alerts.catalogue import BY_NAME
from alerts.config import AlertRulesConfig
from alerts.entry import AlertName
from alerts.explains import explained_by
from sinks.alertmanager.alert import OTHERS, PendingAlert
from sinks.alertmanager.config import AlertmanagerConfig
from streaming.core.settings import QueueName
from streaming.judge.findings.signals import SEVERITY_RANK, Finding, Severity, SignalKey

ENDED_KEPT_MS = 900_000
"""How long an ended alert is sent again, in case an Alertmanager was down when it ended."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One alert in the ledger."""

    alert: PendingAlert
    version: int
    """The ledger version of its last change; a destination sends entries newer than what it has sent."""
    seen_ms: int
    """When the signal was last seen firing."""
    ended_ms: int | None = None


_Kind = tuple[str, str, str, str]
"""Signal, system, scope, queue."""


class AlertLedger:
    """Turns findings into alerts. Times are epoch milliseconds. Not thread-safe."""

    def __init__(self, config: AlertmanagerConfig, rules: AlertRulesConfig) -> None:
        self._config = config
        self._rules = rules
        self._entries: dict[tuple[SignalKey, Severity], LedgerEntry] = {}
        self.version = 0
        """Incremented with every change."""
        self.unsent = 0
        """The number of alerts that the latest update left out because of `max_alerts`."""

    def update(self, firing: Iterable[Finding], now_ms: int) -> None:
        """Record the firing findings. Alerts not among them end after `keep_firing_s`."""
        before = self.version
        self.version += 1
        changed = False
        current = {alert.finding.key: alert for alert in self._choose(firing)}
        for (key, severity), entry in list(self._entries.items()):
            if self._entries[key, severity] is not entry:
                continue  # The severity rose to that of an ended alert, whose entry the new one has replaced.
            alert = current.pop(key, None) if entry.ended_ms is None else None
            if alert is None:
                changed |= self._age(key, severity, entry, now_ms)
            elif SEVERITY_RANK[alert.severity] > SEVERITY_RANK[severity]:
                # The severity rose: the alert with the old severity ends, one with the new severity begins.
                self._entries[key, severity] = replace(entry, ended_ms=now_ms, version=self.version)
                self._entries[key, alert.severity] = LedgerEntry(alert, self.version, now_ms)
                changed = True
            else:
                # A falling severity is ignored: it is a label, and going back and forth would notify every time.
                self._entries[key, severity] = replace(entry, alert=replace(alert, severity=severity), seen_ms=now_ms)
        for key, alert in current.items():
            self._entries[key, alert.severity] = LedgerEntry(alert, self.version, now_ms)
            changed = True
        if not changed:
            self.version = before

    def resume(self, entries: Iterable[LedgerEntry], version: int) -> None:
        """Continue from the entries saved by an earlier process. The next `update` decides which of them end.

        That process may have been of a later release: an alert for a signal that only that one knows cannot be sent.
        """
        known = (entry for entry in entries if entry.alert.finding.key.signal in BY_NAME)
        self._entries = {(entry.alert.finding.key, entry.alert.severity): entry for entry in known}
        self.version = version

    def since(self, version: int) -> list[LedgerEntry]:
        """Return the entries that changed after `version`; all entries for -1."""
        return [entry for entry in self._entries.values() if entry.version > version]

    def count(self) -> int:
        """Return the number of firing alerts."""
        return sum(entry.ended_ms is None for entry in self._entries.values())

    def _age(self, key: SignalKey, severity: Severity, entry: LedgerEntry, now_ms: int) -> bool:
        if entry.ended_ms is not None and now_ms >= entry.ended_ms:
            if now_ms - entry.ended_ms > ENDED_KEPT_MS:
                del self._entries[key, severity]
            return False
        # A clock that was set back leaves times in the future: an alert with such an end would last until then.
        if entry.ended_ms is None and 0 <= now_ms - entry.seen_ms < self._config.keep_firing_s * 1000:
            return False
        self._entries[key, severity] = replace(entry, ended_ms=now_ms, version=self.version)
        return True

    def _choose(self, firing: Iterable[Finding]) -> Iterator[PendingAlert]:
        """Return the findings that become alerts, and one alert for the rest of each signal and queue."""
        wanted = [alert for finding in firing if (alert := self._wanted(finding)) is not None]
        wanted = _without_explained(wanted)
        wanted.sort(key=self._order)
        by_kind: dict[_Kind, list[PendingAlert]] = {}
        chosen: list[PendingAlert] = []
        for alert in wanted:
            key = alert.finding.key
            by_kind.setdefault((key.signal, key.system, key.scope, key.queue), []).append(alert)
        for of_kind in by_kind.values():
            chosen += of_kind[: self._config.max_per_queue]
            if rest := of_kind[self._config.max_per_queue :]:
                chosen.append(_folded(rest))
        chosen.sort(key=self._order)
        self.unsent = max(0, len(chosen) - self._config.max_alerts)
        yield from chosen[: self._config.max_alerts]

    def _wanted(self, finding: Finding) -> PendingAlert | None:
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
        return PendingAlert(finding, severity)

    def _order(self, alert: PendingAlert) -> tuple[int, bool, int, str]:
        """Return the sort key: highest severity first, then active alerts, so that a full ledger is stable, then the oldest.

        Dead letters are sorted newest first: every new one must notify, the oldest has already done so.
        """
        finding = alert.finding
        newest_first = finding.key.signal == "DeadLetterArrived"
        held = not newest_first and self._is_notified(finding.key)
        age = -finding.since_ms if newest_first else finding.since_ms
        return -SEVERITY_RANK[alert.severity], not held, age, repr(finding.key)

    def _is_notified(self, key: SignalKey) -> bool:
        return any(
            (entry := self._entries.get((key, severity))) is not None and entry.ended_ms is None for severity in SEVERITY_RANK
        )


def _without_explained(wanted: list[PendingAlert]) -> list[PendingAlert]:
    """Leave out alerts that another alert of the same queue explains, so that an incident causes one page."""
    firing: dict[QueueName, set[AlertName]] = {}
    for alert in wanted:
        firing.setdefault(alert.finding.key.queue_name, set()).add(alert.finding.key.signal)
    return [t for t in wanted if explained_by(t.finding.key.signal, firing[t.finding.key.queue_name]) is None]


def _folded(rest: Sequence[PendingAlert]) -> PendingAlert:
    """Return one alert for many findings of one signal and queue, whose labels do not change with their number."""
    latest = max(rest, key=lambda alert: alert.finding.since_ms)
    gravest = max(rest, key=lambda alert: SEVERITY_RANK[alert.severity])
    key = latest.finding.key
    of_queue = SignalKey(key.signal, key.system, key.scope, key.queue, part=OTHERS)
    since_ms = min(alert.finding.since_ms for alert in rest)
    return PendingAlert(replace(latest.finding, key=of_queue, since_ms=since_ms), gravest.severity, folded=len(rest))
