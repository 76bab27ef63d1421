"""The merged report of states as they are, and how two such reports differ."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from streaming.core.events.packet import empty_packet
from streaming.core.reporting.merge import Merged, merge
from streaming.core.reporting.message_columns import Listed
from streaming.core.settings import QueueName, QueueRule, Settings
from streaming.core.state.state import ShardState
from streaming.core.track import track

_BY_SHARD: Final = ("groups", "folded_groups", "consumers")
"""Of these every shard lists only so many, so what is listed depends on how the messages are spread."""


def report_of(states: Sequence[ShardState], settings: Settings, *, unordered: Collection[QueueName] = ()) -> Merged:
    """Return the shards' merged report as of their last batch. The states are not consumed.

    The queues in `unordered` are reported as if they kept no order: only so can they be reported from several shards.
    """
    copies = [ShardState.unpack(state.pack()) for state in states]
    for copy in copies:
        for name in copy.queues.index.keys() & unordered:
            copy.queues[copy.queues.index[name]].ordered = False
    known = _without_order(settings, unordered)
    return merge([track(copy, empty_packet(), copy.now, known)[1] for copy in copies], known)


def differences(one: Merged, other: Merged, *, moved: Collection[QueueName] = ()) -> list[str]:
    """Return what differs between two reports, each as `queue field`; the order in which shards list things is ignored.

    Where the messages of a queue have `moved` from several shards to one or back, what depends on that is left out: what each
    shard lists, and the deliveries of a dead letter in its source queue, which are looked up in the same shard.
    """
    a, b = _comparable(one, moved), _comparable(other, moved)
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


def _without_order(settings: Settings, names: Collection[QueueName]) -> Settings:
    """Return settings by which these queues, and others of the same patterns, keep no order."""
    if not names:
        return settings
    decisive = [settings.rule(name) for name in names]
    ids = {id(rule) for rule in decisive}
    rules = [replace(rule, ordered=False) if id(rule) in ids else rule for rule in settings.rules]
    return replace(settings, rules=(*rules, *([QueueRule("*", ordered=False)] if None in decisive else [])))


def _comparable(report: Merged, moved: Collection[QueueName]) -> dict[str, Any]:
    found: dict[str, Any] = {
        field.name: getattr(report, field.name)
        for field in fields(report)
        if field.init and field.name not in ("queues", "rows", "quarantine")
    }
    if moved:
        found["arrivals"] = [arrival._replace(receive_count=0) for arrival in found["arrivals"]]
    for total in ("events_total", "invalid_total"):
        found[total] = {name: n for name, n in found[total].items() if n}
    for queue, summary in report.queues.items():
        for field in fields(summary):
            if queue in moved and field.name in _BY_SHARD:
                continue
            value = getattr(summary, field.name)
            if field.name == "messages":
                value = {
                    kind: sorted(repr(_shown(one, bool(moved))) for one in listed) for kind, listed in value.items() if listed
                }
            elif field.name == "consumers":
                # Several messages may be held since the same instant; which one is named is arbitrary.
                value = [(held.consumer, held.messages, held.since) for held in value]
            elif field.name == "durations":
                value = {bucket: n for bucket, n in value.items() if n}
            found[f"{'/'.join(queue)} {field.name}"] = value
    return found


def _shown(listed: Listed, without_deliveries: bool) -> Listed:
    return listed._replace(view=replace(listed.view, attempts=(), deliveries_seen=0)) if without_deliveries else listed
