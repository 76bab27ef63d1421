"""Search queues, and listed messages, groups and consumers, by a part of their name. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nsmallest
from typing import Literal

from streaming.judge.snapshot import QueueView, Snapshot

MAX_MATCHES = 50
MatchKind = Literal["queue", "message", "group", "consumer"]
_KIND_RANK: dict[MatchKind, int] = {"queue": 0, "message": 1, "group": 2, "consumer": 3}


@dataclass(frozen=True, slots=True)
class Match:
    """One thing whose name contains the text."""

    kind: MatchKind
    name: str
    queue: QueueView


def find(snapshot: Snapshot, text: str, limit: int = MAX_MATCHES) -> tuple[tuple[Match, ...], int]:
    """Return the best matches and their total number: whole names first, then prefixes, then other parts."""
    wanted = text.strip().lower()
    if not wanted:
        return (), 0
    found = [match for match in _candidates(snapshot) if wanted in match.name.lower()]
    return tuple(nsmallest(limit, found, key=lambda match: _rank(match, wanted))), len(found)


def _candidates(snapshot: Snapshot) -> Iterator[Match]:
    for queue in snapshot.queues:
        yield Match("queue", queue.queue, queue)
        for message in queue.messages:
            yield Match("message", message.message_id, queue)
        for group in queue.top_groups:
            yield Match("group", group.group, queue)
        for consumer in queue.consumers:
            yield Match("consumer", consumer.consumer, queue)


def _rank(match: Match, wanted: str) -> tuple[int, int, str, str]:
    name = match.name.lower()
    closeness = 0 if name == wanted else 1 if name.startswith(wanted) else 2
    return closeness, _KIND_RANK[match.kind], name, match.queue.queue
