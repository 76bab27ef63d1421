"""Queries on the queues of a snapshot: filter, order and slice. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sinks.store import Published
from streaming.judge.findings.signals import SEVERITY_RANK
from streaming.judge.snapshot import QueueView
from streaming.judge.views.aggregated_queues import STATUS_RANK

MAX_LIMIT = 1_000
MOST_MEMBERS = 200
"""Queues of a folded view that are listed with it."""

# One sort value per queue; None (unknown) comes last in both directions.
_Key = Callable[[QueueView, Published], Any]


def _attention(queue: QueueView, published: Published) -> tuple[int, int, int, int]:
    findings = published.findings.get(queue.name, ())
    worst = SEVERITY_RANK[findings[0].severity] if findings else 0
    oldest_ms = queue.oldest_ms.get("all", 1 << 62)
    return worst, STATUS_RANK[queue.status], len(findings), -oldest_ms


def _negative(value: int | None) -> int | None:
    return None if value is None else -value


SORTS: Mapping[str, _Key] = {
    "attention": _attention,
    "queue": lambda queue, _: queue.queue.lower(),
    "status": lambda queue, published: (published.shown_status(queue) == "critical", STATUS_RANK[queue.status]),
    "signals": lambda queue, published: len(published.findings.get(queue.name, ())),
    "age": lambda queue, _: _negative(queue.oldest_ms.get("all")),
    "age_visible": lambda queue, _: _negative(queue.oldest_ms.get("visible")),
    "visible": lambda queue, _: queue.visible,
    "in_flight": lambda queue, _: queue.in_flight,
    "receives": lambda queue, _: queue.receive_count_max,
}
"""Sort values by the name of the `sort` parameter. `attention` sorts by worst signal, status and age."""


@dataclass(frozen=True, slots=True)
class QueueQuery:
    """Conditions that must all hold, an order and a slice."""

    text: str = ""
    """Case-insensitive part of the queue's name, system or scope; several words must all occur."""
    statuses: frozenset[str] = frozenset()
    """Accepted shown statuses; empty means all."""
    firing: bool = False
    """Only queues with a firing signal."""
    system: str | None = None
    scope: str | None = None
    sort: str = "attention"
    descending: bool = True
    offset: int = 0
    limit: int = 100


def matching(published: Published, query: QueueQuery) -> Sequence[QueueView]:
    """Return all matching rows, in order; ties are sorted by name. Folded queues are one row."""
    words = query.text.lower().split()
    ordered = published.once((query.sort, query.descending), lambda: _ordered(published, query))
    return [queue for queue in ordered if _holds(queue, published, query, words)]


def members_of(published: Published, aggregated: QueueView) -> Sequence[QueueView]:
    """Return the queues folded into a view, those that need attention first, at most `MOST_MEMBERS`."""
    members = [published.queues[name] for name in sorted(aggregated.members)]
    return sorted(members, key=lambda queue: _attention(queue, published), reverse=True)[:MOST_MEMBERS]


def _ordered(published: Published, query: QueueQuery) -> Sequence[QueueView]:
    """Return all rows in the order of `query`."""
    key = SORTS[query.sort]
    values = [(key(queue, published), queue) for queue in published.rows]
    known = [pair for pair in values if pair[0] is not None]
    known.sort(key=lambda pair: pair[0], reverse=query.descending)
    return [queue for _, queue in known] + [queue for value, queue in values if value is None]


def _holds(queue: QueueView, published: Published, query: QueueQuery, words: Sequence[str]) -> bool:
    if query.statuses and published.shown_status(queue) not in query.statuses:
        return False
    if query.system is not None and queue.system != query.system:
        return False
    if query.scope is not None and queue.scope != query.scope:
        return False
    if query.firing and queue.name not in published.findings:
        return False
    if words:
        names = (queue.name, *queue.members)
        return any(all(word in f"{name.queue} {name.system} {name.scope}".lower() for word in words) for name in names)
    return True
