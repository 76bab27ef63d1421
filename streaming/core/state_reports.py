"""The merged report of states as they are, and how two such reports differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from streaming.core.events.packet import empty_packet
from streaming.core.reporting.merge import Merged, merge
from streaming.core.settings import Settings
from streaming.core.state.state import ShardState
from streaming.core.track import track


def report_of(states: Sequence[ShardState], settings: Settings) -> Merged:
    """Return the shards' merged report as of their last batch. The states are not consumed."""
    copies = [ShardState.unpack(state.pack()) for state in states]
    return merge([track(copy, empty_packet(), copy.now, settings)[1] for copy in copies], settings)


def differences(one: Merged, other: Merged) -> list[str]:
    """Return what differs between two reports, each as `queue field`; the order in which shards list things is ignored."""
    a, b = _comparable(one), _comparable(other)
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


def _comparable(report: Merged) -> dict[str, Any]:
    found: dict[str, Any] = {
        field.name: getattr(report, field.name) for field in fields(report) if field.name not in ("queues", "rows", "quarantine")
    }
    for total in ("events_total", "invalid_total"):
        found[total] = {name: n for name, n in found[total].items() if n}
    for (system, scope, queue), summary in report.queues.items():
        for field in fields(summary):
            value = getattr(summary, field.name)
            if field.name == "messages":
                value = {kind: sorted(map(repr, listed)) for kind, listed in value.items() if listed}
            elif field.name == "consumers":
                # Several messages may be held since the same instant; which one is named is arbitrary.
                value = [(held.consumer, held.held, held.since) for held in value]
            elif field.name == "durations":
                value = {bucket: n for bucket, n in value.items() if n}
            found[f"{system}/{scope}/{queue} {field.name}"] = value
    return found
