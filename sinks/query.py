"""Which queues of a snapshot somebody asks for, in which order, and which slice of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sinks.store import SEVERITY_RANK, Published
from streaming.judge.snapshot import QueueView

MAX_LIMIT = 1_000

_STATUS_RANK = {"failing": 6, "stalled": 5, "stopped": 4, "lagging": 3, "stale": 2, "unknown": 1, "ok": 0}

# One value per queue to sort by; None (not known) comes last in either direction.
_Key = Callable[[QueueView, Published], Any]


def _attention(queue: QueueView, published: Published) -> tuple[int, int, int, int]:
    findings = published.findings.get(queue.name, ())
    worst = SEVERITY_RANK[findings[0].severity] + 1 if findings else 0
    oldest_ms = queue.oldest_ms.get("all", 1 << 62)
    return worst, _STATUS_RANK[queue.status], len(findings), -oldest_ms


def _negative(value: int | None) -> int | None:
    return None if value is None else -value


SORTS: Mapping[str, _Key] = {
    "attention": _attention,
    "queue": lambda queue, _: queue.queue.lower(),
    "status": lambda queue, _: _STATUS_RANK[queue.status],
    "signals": lambda queue, published: len(published.findings.get(queue.name, ())),
    "age": lambda queue, _: _negative(queue.oldest_ms.get("all")),
    "age_visible": lambda queue, _: _negative(queue.oldest_ms.get("visible")),
    "visible": lambda queue, _: queue.visible,
    "in_flight": lambda queue, _: queue.in_flight,
    "receives": lambda queue, _: queue.receive_count_max,
}
"""By name of the `sort` parameter. `attention` is what needs somebody first: worst signal, status, oldest."""


@dataclass(frozen=True, slots=True)
class QueueQuery:
    """Conditions that must all hold, an order and a slice."""

    text: str = ""
    """Part of the queue's name, system or scope, whatever its case; several words must all occur."""
    statuses: frozenset[str] = frozenset()
    """Any of these; empty for all."""
    firing: bool = False
    """Only queues with a firing signal."""
    system: str | None = None
    scope: str | None = None
    sort: str = "attention"
    descending: bool = True
    offset: int = 0
    limit: int = 100


def matching(published: Published, query: QueueQuery) -> Sequence[QueueView]:
    """All queues the conditions hold for, in order; equal ones by name."""
    words = query.text.lower().split()
    found = [queue for queue in published.snapshot.queues if _holds(queue, published, query, words)]
    found.sort(key=lambda queue: queue.name)
    key = SORTS[query.sort]
    values = [(key(queue, published), queue) for queue in found]
    known = [pair for pair in values if pair[0] is not None]
    known.sort(key=lambda pair: pair[0], reverse=query.descending)
    return [queue for _, queue in known] + [queue for value, queue in values if value is None]


def _holds(queue: QueueView, published: Published, query: QueueQuery, words: Sequence[str]) -> bool:
    if query.statuses and queue.status not in query.statuses:
        return False
    if query.system is not None and queue.system != query.system:
        return False
    if query.scope is not None and queue.scope != query.scope:
        return False
    if query.firing and queue.name not in published.findings:
        return False
    if words:
        name = f"{queue.queue} {queue.system} {queue.scope}".lower()
        return all(word in name for word in words)
    return True
