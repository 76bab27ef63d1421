"""The signals that become notifications: neither folded nor inhibited by the shipped Alertmanager configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from alerts.catalogue import BY_NAME

CONFIG = Path(__file__).resolve().parents[1] / "deploy" / "alertmanager" / "alertmanager.yml"
GROUP_WAIT_MS = 15_000
GROUP_INTERVAL_MS = 60_000
"""The `group_wait` and `group_interval` of the shipped configuration's main route."""

STILL = 1 << 62

Labels = Mapping[str, str]
Signal = Mapping[str, Any]
_MATCHER = re.compile(r'\s*(\w+)\s*(=~|!~|!=|=)\s*"(.*)"\s*\Z')


@dataclass(frozen=True)
class Inhibition:
    """One inhibit rule: alerts like `target` are muted while one like `source` with the same `equal` labels fires."""

    source: tuple[tuple[str, str, str], ...]
    target: tuple[tuple[str, str, str], ...]
    equal: tuple[str, ...]

    def holds_back(self, source: Labels, target: Labels) -> bool:
        """Whether `source` inhibits `target`."""
        same = all(source.get(name, "") == target.get(name, "") for name in self.equal)
        # An alert that matches both sides is not inhibited by another of its kind.
        return same and _matches(self.source, source) and _matches(self.target, target) and not _matches(self.source, target)


@cache
def shipped_inhibitions() -> tuple[Inhibition, ...]:
    """Return the inhibit rules of the shipped Alertmanager configuration."""
    rules = yaml.safe_load(CONFIG.read_text())["inhibit_rules"]
    return tuple(
        Inhibition(_parsed(r["source_matchers"]), _parsed(r["target_matchers"]), tuple(r.get("equal", ()))) for r in rules
    )


def announced(signals: Sequence[Signal], rules: Iterable[Inhibition] | None = None) -> list[Signal]:
    """Return the firing signals of at least warning severity that are neither folded nor inhibited when their group is sent."""
    return [signal for signal, _ in reaching(signals, rules)]


def reaching(signals: Sequence[Signal], rules: Iterable[Inhibition] | None = None) -> list[tuple[Signal, int | None]]:
    """Return the same signals, each with its end; None: it fires to the end of the run."""
    inhibitions = tuple(shipped_inhibitions() if rules is None else rules)
    spans = _spans(signals)
    found = []
    for signal, _, ends_at in spans:
        if signal["severity"] == "info" or not _alerts(signal):
            continue
        sent_at = min(signal["at"] + GROUP_WAIT_MS, ends_at)
        others = (o for o, begins, ends in spans if begins <= sent_at < ends and _alerts(o))
        mine = labels_of(signal)
        if not any(rule.holds_back(labels_of(o), mine) for o in others for rule in inhibitions):
            found.append((signal, None if ends_at == STILL else ends_at))
    return found


def _alerts(signal: Signal) -> bool:
    """Whether Alertmanager hears of it: what it does not hear of inhibits nothing."""
    return signal.get("alerting") is not False and not signal.get("folded")


def every(signals: Sequence[Signal]) -> list[tuple[Signal, int | None]]:
    """Return every signal that fired, of any severity, folded or not, with its end."""
    return [(signal, None if ends_at == STILL else ends_at) for signal, _, ends_at in _spans(signals)]


def notifications(signals: Sequence[Signal]) -> int:
    """Count the notifications for these signals: a group is sent once, and again after an interval with new alerts."""
    last: dict[tuple[str, ...], int] = {}
    count = 0
    for signal in sorted(signals, key=lambda s: s["at"]):
        labels = labels_of(signal)
        group = tuple(labels[name] for name in ("alertname", "system", "scope_id", "queue"))
        if group not in last or signal["at"] > last[group]:
            first = group not in last
            count += 1
            last[group] = signal["at"] + (GROUP_WAIT_MS if first else GROUP_INTERVAL_MS)
    return count


def labels_of(signal: Signal) -> Labels:
    """Return the labels that inhibit rules and groups use."""
    entry = BY_NAME[signal["signal"]]
    return {
        "alertname": entry.alert_name,
        "component": entry.component,
        "severity": signal["severity"],
        "job": "queuewatch",
        "system": signal["system"],
        "scope_id": signal.get("scope", ""),
        "queue": signal["queue"],
    }


def _spans(signals: Sequence[Signal]) -> list[tuple[Signal, int, int]]:
    """Return each firing signal with the times at which it began and ended.

    One that is no longer folded, or has become more severe, is another alert: it begins, and the one before ends.
    """
    spans: list[tuple[Signal, int, int]] = []
    open_: dict[tuple[Any, ...], int] = {}
    for signal in signals:
        names = ("signal", "system", "scope", "queue", "message_id", "group", "consumer", "part")
        key = tuple(signal.get(name) for name in names)
        if (n := open_.pop(key, None)) is not None:
            spans[n] = (*spans[n][:2], signal["at"])
        if signal["status"] == "firing":
            open_[key] = len(spans)
            spans.append((signal, signal["at"], STILL))
    return spans


def _parsed(matchers: Iterable[str]) -> tuple[tuple[str, str, str], ...]:
    found = []
    for text in matchers:
        parts = _MATCHER.match(text)
        if parts is None:
            raise ValueError(f"a matcher that is not understood: {text!r}")
        found.append((parts[1], parts[2], parts[3]))
    return tuple(found)


def _matches(matchers: Iterable[tuple[str, str, str]], labels: Labels) -> bool:
    for name, how, value in matchers:
        own = labels.get(name, "")
        equal = re.fullmatch(value, own) is not None if "~" in how else own == value
        if equal == how.startswith("!"):
            return False
    return True
