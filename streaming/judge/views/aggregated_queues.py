"""Folded queues: all queues whose name matches a pattern as one row and one set of series, with the worst of them named.

Only what is shown is aggregated. Each queue is tracked and judged by itself, and its signals name it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, overload

import numpy as np

from streaming.core.reporting.merge import MergedQueues
from streaming.core.settings import QueueName, Settings
from streaming.core.state.queues import TOTALS
from streaming.judge.findings.signals import SEVERITY_RANK, Finding
from streaming.judge.snapshot import (
    AGE_SCOPES,
    AgeScope,
    ConsumerView,
    GroupState,
    GroupView,
    QueueStatus,
    QueueView,
)
from streaming.judge.views.durations import durations

STATUS_RANK: Mapping[QueueStatus, int] = {
    "failing": 6,
    "stalled": 5,
    "stopped": 4,
    "lagging": 3,
    "stale": 2,
    "unknown": 1,
    "ok": 0,
}
"""Higher is worse."""

_LATER = 1 << 62
_DIFFERENT = "its queues are known in different ways"

Number = TypeVar("Number", int, float)


class AggregatedQueues(Sequence[QueueView]):
    """One view for each pattern, system and scope of which there are queues, in the order of their names.

    They are made when they are first asked for.
    """

    def __init__(self, queues: MergedQueues, views: Sequence[QueueView], firing: Iterable[Finding], settings: Settings) -> None:
        self._ask: Callable[[], list[QueueView]] | None = lambda: list(_aggregated(queues, views, firing, settings))
        self._made: list[QueueView] = []

    def _views(self) -> list[QueueView]:
        ask = self._ask  # several threads may ask at once
        if ask is not None:
            self._made = ask()
            self._ask = None
        return self._made

    def __len__(self) -> int:
        return len(self._views())

    @overload
    def __getitem__(self, at: int) -> QueueView: ...
    @overload
    def __getitem__(self, at: slice) -> list[QueueView]: ...
    def __getitem__(self, at: int | slice) -> QueueView | list[QueueView]:
        return self._views()[at]


def _aggregated(
    queues: MergedQueues, views: Sequence[QueueView], firing: Iterable[Finding], settings: Settings
) -> Iterator[QueueView]:
    ever: dict[QueueName, list[int]] = {}
    members: dict[QueueName, list[QueueView]] = {}
    for place, name in enumerate(queues.names):
        rule = settings.fold_of(name)
        if rule is not None:
            ever.setdefault(name.sibling(rule.queues), []).append(place)
    for view in views:
        rule = settings.fold_of(view.name)
        if rule is not None:
            members.setdefault(view.name.sibling(rule.queues), []).append(view)
    severity: dict[QueueName, int] = {}
    for finding in firing:
        if finding.announced:
            name = finding.key.queue_name
            severity[name] = max(severity.get(name, 0), SEVERITY_RANK[finding.severity])
    for name in sorted(members):
        aggregated = aggregate_views(name, members[name], severity, settings.top_k)
        yield replace(aggregated, **_counted(queues, ever[name], members[name]))


def _counted(queues: MergedQueues, places: list[int], members: Sequence[QueueView]) -> dict[str, Any]:
    """Totals and durations, with those of queues that have vanished: a counter must never fall."""
    sums = dict(zip(TOTALS, queues.totals[places].sum(axis=0).tolist(), strict=True))
    reported = {name for view in members for name in view.totals}
    counted = {"durations": durations(queues.durations_of(places), sums)}
    return {"totals": {name: count for name, count in sums.items() if name in reported}} | counted


def aggregate_views(name: QueueName, members: Sequence[QueueView], severity: Mapping[QueueName, int], top_k: int) -> QueueView:
    """One view of several queues: counts are summed, of ages and statuses it is the worst.

    `severity` is that of the worst signal that fires, by queue. What is known of no queue stays unknown. A sum over queues of
    which some are not known is that of the others.
    """
    worst = max(members, key=lambda view: (severity.get(view.name, 0), *_badness(view)))
    groups, other_groups, other_groups_ms = _groups(members, top_k)
    consumers, other_consumers, other_consumers_ms = _consumers(members, top_k)
    bases = {view.basis for view in members}
    same_basis = len(bases) == 1
    exact = [scope for scope in AGE_SCOPES if all(view.is_oldest_exact(scope) for view in members)]
    known_one_by_one = all(view.age_counts or not view.tracked for view in members)
    counts = [view.age_counts for view in members if view.age_counts] if known_one_by_one else []
    return QueueView(
        system=name.system,
        scope=name.scope,
        queue=name.queue,
        status=max((view.status for view in members), key=STATUS_RANK.__getitem__),
        kind=_same(view.kind for view in members),
        ordered=any(view.ordered for view in members),
        is_dead_letter_queue=all(view.is_dead_letter_queue for view in members),
        visible=_sum(view.visible for view in members),
        in_flight=_sum(view.in_flight for view in members),
        delayed=_sum(view.delayed for view in members),
        tracked=sum(view.tracked for view in members),
        oldest_ms=_oldest(members),
        age_counts=tuple(np.sum(counts, axis=0).tolist()) if counts else (),
        age_sum_s=sum(view.age_sum_s for view in members) if counts else 0.0,
        totals={},
        receive_count_max=_most(view.receive_count_max for view in members),
        poison_messages=_sum(view.poison_messages for view in members),
        stuck_groups=sum(view.stuck_groups for view in members),
        groups=_added(view.groups for view in members),
        top_groups=groups,
        other_groups=other_groups,
        other_groups_oldest_ms=other_groups_ms,
        consumers=consumers,
        other_consumers=other_consumers,
        other_consumers_held_since_ms=other_consumers_ms,
        dead_letter_expires_at_ms=_least(view.dead_letter_expires_at_ms for view in members),
        time_to_drain_s=_time_to_drain(members),
        coverage_ratio=_least(view.coverage_ratio for view in members),
        messages=(),
        broker={},
        last_event_at_ms=max(view.last_event_at_ms for view in members),
        last_settled_at_ms=_most(view.last_settled_at_ms for view in members),
        last_received_at_ms=_most(view.last_received_at_ms for view in members),
        basis=worst.basis if same_basis else "partial",
        basis_since_ms=max(view.basis_since_ms for view in members),
        basis_reason=(_same(view.basis_reason for view in members) or "") if same_basis else _DIFFERENT,
        next_step=_same(view.next_step for view in members) or "",
        exact_ages=frozenset(exact),
        tracked_states=_added(view.tracked_states for view in members),
        dead_letter_queue=_same(view.dead_letter_queue for view in members),
        tags={key: value for key, value in worst.tags.items() if all(view.tags.get(key) == value for view in members)},
        clock_skew_s=_most(view.clock_skew_s for view in members),
        members=tuple(view.name for view in members),
        worst_member=worst.name,
    )


def _badness(view: QueueView) -> tuple[int, int]:
    return STATUS_RANK[view.status], -view.oldest_ms.get("all", _LATER)


def _oldest(members: Sequence[QueueView]) -> dict[AgeScope, int]:
    found: dict[AgeScope, int] = {}
    for view in members:
        for scope, since_ms in view.oldest_ms.items():
            found[scope] = min(since_ms, found.get(scope, since_ms))
    return found


def _time_to_drain(members: Sequence[QueueView]) -> float | None:
    """That of the slowest queue; None where a queue with a backlog does not drain."""
    waiting = [view.time_to_drain_s for view in members if view.visible or view.time_to_drain_s is not None]
    return None if None in waiting else _most(waiting)


def _groups(members: Sequence[QueueView], top_k: int) -> tuple[tuple[GroupView, ...], int, int | None]:
    """The oldest groups of all queues, each with its queue before its name."""
    found = [replace(group, group=f"{view.queue}/{group.group}") for view in members for group in view.top_groups]
    found.sort(key=lambda group: (group.oldest_sent_at_ms, group.group))
    rest = [group.oldest_sent_at_ms for group in found[top_k:]]
    others_ms = _least([*rest, *(view.other_groups_oldest_ms for view in members)])
    return tuple(found[:top_k]), len(rest) + sum(view.other_groups for view in members), others_ms


def _consumers(members: Sequence[QueueView], top_k: int) -> tuple[tuple[ConsumerView, ...], int, int | None]:
    """The consumers that have held a message longest; one that serves several queues is named once."""
    found: dict[str, ConsumerView] = {}
    held: Counter[str] = Counter()
    for view in members:
        for one in view.consumers:
            held[one.consumer] += one.held
            known = found.get(one.consumer)
            if known is None or (one.oldest_held_since_ms or _LATER) < (known.oldest_held_since_ms or _LATER):
                found[one.consumer] = one
    ordered = sorted(found.values(), key=lambda one: (one.oldest_held_since_ms or _LATER, one.consumer))
    shown = tuple(replace(one, held=held[one.consumer]) for one in ordered[:top_k])
    rest = [one.oldest_held_since_ms for one in ordered[top_k:]]
    others_ms = _least([*rest, *(view.other_consumers_held_since_ms for view in members)])
    return shown, len(rest) + sum(view.other_consumers for view in members), others_ms


Key = TypeVar("Key", str, GroupState)


def _added(counts: Iterable[Mapping[Key, int]]) -> dict[Key, int]:
    found: dict[Key, int] = {}
    for one in counts:
        for name, count in one.items():
            found[name] = found.get(name, 0) + count
    return found


def _known(values: Iterable[Number | None]) -> list[Number]:
    return [value for value in values if value is not None]


def _sum(values: Iterable[int | None]) -> int | None:
    known = _known(values)
    return sum(known) if known else None


def _most(values: Iterable[Number | None]) -> Number | None:
    return max(_known(values), default=None)


def _least(values: Iterable[Number | None]) -> Number | None:
    return min(_known(values), default=None)


def _same(values: Iterable[str | None]) -> str | None:
    """The value if all have the same one."""
    found = set(values)
    return found.pop() if len(found) == 1 else None
