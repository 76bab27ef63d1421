"""The history of one message from the recorded events: its deliveries, how each ended, and all events in order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.events.attributes import read_attributes
from streaming.core.settings import QueueName

MOST_EVENTS = 200
"""Maximum events shown per message; the latest are shown, earlier ones are counted."""

_ENDS = {
    "deleted": "deleted",
    "released": "given back",
    "dead_lettered": "dead-lettered",
    "dropped": "dropped",
    "expired": "expired",
    "redriven": "redriven",
}


@dataclass(frozen=True)
class TimelineEvent:
    """One event of the message. Times are epoch milliseconds."""

    at_ms: int
    what: str
    queue: str
    consumer: str | None
    receive_count: int | None
    until_ms: int | None
    note: str


@dataclass
class Delivery:
    """A delivery; `how` it ended is `window ended` if no event ended it, or `in flight` at the end of the recording."""

    queue: str
    consumer: str | None
    receive_count: int | None
    from_ms: int
    to_ms: int
    how: str


@dataclass
class MessageStory:
    """A message's events and deliveries, in order."""

    queue: QueueName
    message_id: str
    timeline: list[TimelineEvent] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    left_out: int = 0


def message_story(events: pa.Table, queue: QueueName, message_id: str, ends_ms: int) -> MessageStory:
    """Return everything the recording says about a message, also in its dead-letter queue, where it keeps its id.

    `ends_ms` is when what is shown of the recording ends; later events are left out. So are copies: an event may be sent twice.
    """
    story = MessageStory(queue, message_id)
    if not len(events):
        return story
    mine = events.filter(pc.fill_null(pc.equal(events["message_id"], message_id), False))
    copies = (row for row in mine.to_pylist() if (row["system"] or "", row["scope"] or "") == queue[:2] and row["at"] <= ends_ms)
    rows = list({tuple(row.values()): row for row in copies}.values())
    rows.sort(key=lambda row: row["at"])
    story.left_out = max(0, len(rows) - MOST_EVENTS)
    rows = rows[-MOST_EVENTS:]
    story.timeline = [_timeline_event(row) for row in rows]
    timeouts = {name: _timeouts(events, queue, name) for name in {row["queue"] for row in rows}}
    story.deliveries = list(_deliveries(rows, timeouts, ends_ms))
    return story


def _timeline_event(row: dict[str, Any]) -> TimelineEvent:
    notes = (
        (row["reason"], "{}"),
        (row["to_queue"], "to {}"),
        (row["from_queue"], "from {}"),
    )
    note = "; ".join(form.format(value) for value, form in notes if value)
    return TimelineEvent(
        at_ms=row["at"],
        what=row["type"],
        queue=row["queue"],
        consumer=row["consumer"],
        receive_count=row["receive_count"],
        until_ms=row["invisible_until"],
        note=note,
    )


def _deliveries(
    rows: Sequence[dict[str, Any]], timeouts: Mapping[str, Sequence[tuple[int, int]]], last_ms: int
) -> Iterator[Delivery]:
    open_: Delivery | None = None
    window_ends_ms: int | None = None
    for row in rows:
        at, what = row["at"], row["type"]
        if open_ is not None and window_ends_ms is not None and window_ends_ms <= at and what != "extended":
            # A late delete is still a delete: the work continued after the window had ended.
            ended = "deleted after the window" if what == "deleted" else "window ended"
            yield _ended(open_, at if what == "deleted" else window_ends_ms, ended)
            open_ = None
        elif open_ is not None and what in _ENDS:
            yield _ended(open_, at, _ENDS[what])
            open_ = None
        if what == "received":
            if open_ is not None:
                yield _ended(open_, at, "received again")
            open_ = Delivery(
                queue=row["queue"], consumer=row["consumer"], receive_count=row["receive_count"], from_ms=at, to_ms=at, how=""
            )
            window_ends_ms = row["invisible_until"] or _window_end(timeouts[row["queue"]], at)
        elif what == "extended" and row["invisible_until"]:
            window_ends_ms = row["invisible_until"]
    if open_ is not None:
        over = window_ends_ms is not None and window_ends_ms <= last_ms
        yield _ended(open_, window_ends_ms if over and window_ends_ms else last_ms, "window ended" if over else "in flight")


def _ended(delivery: Delivery, at_ms: int, how: str) -> Delivery:
    delivery.to_ms, delivery.how = max(at_ms, delivery.from_ms), how
    return delivery


def _timeouts(events: pa.Table, of: QueueName, queue: str) -> list[tuple[int, int]]:
    """Return the visibility timeouts of a queue that were reported, with their times, by time."""
    chosen = pc.and_(pc.equal(events["type"], "queue_state"), pc.equal(events["queue"], queue))
    found = []
    for row in events.filter(pc.fill_null(chosen, False)).select(["system", "scope", "at", "attributes"]).to_pylist():
        if (row["system"] or "", row["scope"] or "") == of[:2]:
            timeout_s = read_attributes(row["attributes"]).get("visibility_timeout_s")
            if timeout_s is not None:
                found.append((row["at"], round(timeout_s * 1000)))
    return sorted(found)


def _window_end(timeouts: Sequence[tuple[int, int]], received_at: int) -> int | None:
    """Return when a delivery ends by time: its timeout is the one reported last before it, or else the first that was."""
    if not timeouts:
        return None
    place = bisect_right(timeouts, received_at, key=itemgetter(0))
    return received_at + timeouts[max(place - 1, 0)][1]
