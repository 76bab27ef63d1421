"""The catalogue of all alerts. Rules, dashboards and the runbook are generated from it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from alerts.entries import (
    consumers,
    dead_letters,
    flow,
    groups,
    messages,
    objectives,
    purges,
    queues,
    redrive,
    telemetry,
    watcher,
)
from alerts.entry import Entry
from alerts.judge_constants import JUDGE_CONSTANTS
from alerts.units import shown, spoken, spoken_duration
from streaming.core.thresholds import Thresholds

CATALOGUE: tuple[Entry, ...] = (
    *messages.ENTRIES,
    *purges.ENTRIES,
    *dead_letters.ENTRIES,
    *redrive.ENTRIES,
    *groups.ENTRIES,
    *consumers.ENTRIES,
    *queues.ENTRIES,
    *flow.ENTRIES,
    *objectives.ENTRIES,
    *telemetry.ENTRIES,
    *watcher.ENTRIES,
)
BY_NAME: Mapping[str, Entry] = MappingProxyType({entry.name: entry for entry in CATALOGUE})

UNUSED_THRESHOLDS: Mapping[str, str] = MappingProxyType(
    {
        "reconcile_after_s": (
            "No signal. Tracked messages are removed when the broker's own counts have been zero for this long. Those that seem "
            "to wait in a standard queue are removed when three counts over this long show nothing visible. Those of an SQS FIFO "
            "group are removed when a later message of the group was received this long after they were last heard of. All are "
            "counted in queuewatch_messages_reconciled_total."
        ),
    }
)
"""Thresholds that no alert uses, each with its purpose."""


def entry(name: str) -> Entry:
    """Return the entry of a signal or raw alert; the `KeyError` for an unknown name suggests the nearest one."""
    for known in CATALOGUE:
        if known.name == name:
            return known
    raise KeyError(f"no alert {name}{did_you_mean(name)}")


def did_you_mean(name: str) -> str:
    """Return ` (did you mean X?)` or an empty string."""
    close = difflib.get_close_matches(name, [e.name for e in CATALOGUE], n=1, cutoff=0.5)
    return f" (did you mean {close[0]}?)" if close else ""


def rule_text(
    entry: Entry, thresholds: Thresholds | None = None, limit: float | None = None, for_s: float | None = None
) -> tuple[str, ...]:
    """Return the numbered rule with its thresholds, limit, wait and the judge's constants filled in. None means the default."""
    values = thresholds or Thresholds()
    words = {**JUDGE_CONSTANTS, **{name: shown(name, getattr(values, name)) for name in entry.thresholds}}
    words["wait"] = spoken_duration(entry.alert.for_s if for_s is None else for_s)
    if entry.alert.limit is not None:
        words["limit"] = spoken(entry.alert.limit.default if limit is None else limit, entry.alert.limit.unit)
    return tuple(step.format(**words) for step in entry.rule)
