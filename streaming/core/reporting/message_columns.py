"""Listed messages as columns: a step lists many, and few of them are ever shown."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import pyarrow as pa

from streaming.core.columns import Array
from streaming.core.events.sequences import sequence_text
from streaming.core.hashing import bits_to_uuid
from streaming.core.reporting.views import STATES, Attempt, MessageView
from streaming.core.state.queues import NEVER
from streaming.core.state.rows import F_ARRIVED_BY_RECEIVE, F_ARRIVED_INFERRED, F_SENT, F_SENT_KNOWN

_WHAT: tuple[Literal["received", "extended", "released"], ...] = ("received", "extended", "released")


class Listed(NamedTuple):
    """A message a shard lists under one of the kinds `poison`, `held`, `dead_letter`, `oldest`; `rank` orders them."""

    rank: tuple[int, ...]
    view: MessageView


@dataclass(slots=True)
class AttemptColumns:
    """The attempts of several messages, concatenated: those of message i are `starts[i]:starts[i + 1]`."""

    starts: Array
    at: Array
    what: Array
    """Index into received, extended, released."""
    receive_count: Array
    end: Array
    consumers: pa.Array

    def of(self, start: int, stop: int) -> list[tuple[Attempt, ...]]:
        """Return the timelines of the messages from `start` to `stop`."""
        first, last = int(self.starts[start]), int(self.starts[stop])
        made = [
            Attempt(at, _WHAT[what], receives, end if 0 < end < NEVER else None, consumer)
            for at, what, receives, end, consumer in zip(
                *(values[first:last].tolist() for values in (self.at, self.what, self.receive_count, self.end)),
                self.consumers.slice(first, last - first).to_pylist(),
                strict=True,
            )
        ]
        bounds = (self.starts[start : stop + 1] - first).tolist()
        return [tuple(made[a:b]) for a, b in pairwise(bounds)]


@dataclass(slots=True)
class MessageColumns:
    """Some messages as columns; `views` converts a range of them to what is shown."""

    numbers: dict[str, Array]
    texts: pa.Array
    """Ids that are not UUIDs; null for the others."""
    groups: pa.Array
    consumers: pa.Array
    attempts: AttemptColumns

    def views(self, start: int, stop: int, why: tuple[str, ...]) -> list[MessageView]:
        """Return the messages from `start` to `stop` as they are shown."""
        n = {name: values[start:stop].tolist() for name, values in self.numbers.items()}
        size = stop - start
        texts, groups, consumers = (column.slice(start, size).to_pylist() for column in (self.texts, self.groups, self.consumers))
        attempts = self.attempts.of(start, stop)
        return [
            MessageView(
                message_id=texts[i] if texts[i] is not None else bits_to_uuid(n["hi"][i], n["lo"][i]),
                state=STATES[n["state"][i]],
                sent_at_ms=n["sent"][i],
                receive_count=n["receive_count"][i],
                why=why,
                group=groups[i],
                sequence=sequence_text(n["seq_kind"][i], n["seq_hi"][i], n["seq_lo"][i]) if n["seq_kind"][i] else None,
                consumer=consumers[i],
                last_received_at_ms=n["last_received"][i] or None,
                invisible_until_ms=n["window_end"][i] if n["state"][i] == 1 and n["window_end"][i] < NEVER else None,
                arrived_at_ms=n["arrived"][i] or None,
                expires_at_ms=n["expires"][i] if n["expires"][i] < NEVER else None,
                arrival_known_by=arrival_known_by(n["flags"][i]) if n["arrived"][i] else None,
                attempts=attempts[i],
                sent_known=bool(n["flags"][i] & F_SENT_KNOWN),
                deliveries_seen=n["seen"][i],
                refused_settlements=n["refused"][i],
                held_since_ms=n["held_since"][i] or None,
            )
            for i in range(size)
        ]


@dataclass(slots=True)
class ListedMessages:
    """The messages of one kind that a shard lists, queue by queue, lowest rank first."""

    kind: str
    queue: Array
    """Row number of the queue, ascending."""
    ranks: tuple[Array, ...]
    messages: MessageColumns
    most: int
    """At most so many of each queue are listed."""

    def between(self, start: int, stop: int) -> list[Listed]:
        """Return the messages of a range of rows."""
        if start == stop:
            return []
        ranks = zip(*(column[start:stop].tolist() for column in self.ranks), strict=True)
        return [Listed(rank, view) for rank, view in zip(ranks, self.messages.views(start, stop, (self.kind,)), strict=True)]


def arrival_known_by(flags: int) -> str:
    """Return how a dead letter's arrival became known."""
    if flags & F_ARRIVED_BY_RECEIVE:
        return "first_receive"
    # Its send to the dead-letter queue is an event too.
    return "inferred" if flags & F_ARRIVED_INFERRED and not flags & F_SENT else "event"
