"""Derive the second row of events that concern two queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.columns import nonzero, plain
from streaming.core.events.events import ARRIVED, DEAD_LETTERED, DTYPES, RECEIVED, REDRIVEN, REDRIVEN_IN, Events
from streaming.core.events.flags import BY_RECEIVE, LATE, SAME_ID
from streaming.core.hashing import ids_to_bits
from streaming.core.settings import QueueName


def expand_moves(events: Events, table: pa.Table) -> None:
    """Add the second row of every move, and note which queues are dead-letter queues."""
    code = events.columns["code"]
    derived = _Derived(events)
    moved = nonzero((code == DEAD_LETTERED) | (code == REDRIVEN))
    if len(moved):
        fields = (plain(table[name]).take(pa.array(moved)).to_pylist() for name in _MOVE_FIELDS)
        for row, *move in zip(moved.tolist(), *fields, strict=True):
            expand = _expand_dead_letter if code[row] == DEAD_LETTERED else _expand_redrive
            expand(derived, row, *move)
    if table["from_queue"].null_count < len(code):
        origins = plain(table["from_queue"])
        reported = ~np.asarray(pc.is_null(origins).to_numpy(zero_copy_only=False))
        received = nonzero((code == RECEIVED) & reported)
        counts = events.columns["receive_count"][received].tolist()
        for row, origin, count in zip(received.tolist(), origins.take(pa.array(received)).to_pylist(), counts, strict=True):
            _expand_receive(derived, row, origin, count)
    derived.finish()


_MOVE_FIELDS: Final = ("to_queue", "from_queue", "new_message_id", "message_id")
KEEPS_COUNT: Final = frozenset({"aws_sqs"})
"""Systems that keep the receive count of a message that they move to a dead-letter queue."""


def with_targets(events: Events, targets: Mapping[int, str]) -> Events:
    """Return the events with the second rows of moves that do not say where to; `targets` are the queues by row."""
    columns = events.columns | {"peer": events.columns["peer"].copy()}
    named = replace(events, columns=columns, queues=[*events.queues], dead_letter_queues={*events.dead_letter_queues})
    derived = _Derived(named)
    for row, to in targets.items():
        _expand_dead_letter(derived, row, to)
    derived.finish()
    return named


def _expand_dead_letter(derived: _Derived, row: int, to: str | None, *_: str | None) -> None:
    """Add the arrival of a message that was moved to the dead-letter queue `to`."""
    here = derived.queue(row)
    if to and to != here.queue:
        there = here.sibling(to)
        derived.events.dead_letter_queues.add(there)
        peer = derived.number(there)
        derived.events.columns["peer"][row] = peer
        derived.add(row, ARRIVED, peer, peer=derived.own(row))


def _expand_redrive(
    derived: _Derived, row: int, to: str | None, origin: str | None, new_id: str | None, own_id: str | None
) -> None:
    """Add the arrival of a message that was moved back, where its new id is reported. Either end may report a redrive."""
    here = derived.queue(row)
    if not to and origin and origin != here.queue:
        to, here = here.queue, here.sibling(origin)
        derived.events.columns["queue"][row] = derived.number(here)
    derived.events.dead_letter_queues.add(here)
    if not to:
        return
    there = here.sibling(to)
    derived.events.redrive_targets.add(there)
    peer = derived.number(there)
    derived.events.columns["peer"][row] = peer
    if new_id:
        flags, message_id = (SAME_ID, None) if new_id == own_id else (0, new_id)
        derived.add(row, REDRIVEN_IN, peer, peer=derived.own(row), flags=flags, message_id=message_id)


def _expand_receive(derived: _Derived, row: int, origin: str | None, count: int) -> None:
    """Add the move that a receive shows, of a dead letter that names the queue it came from.

    A message that was redriven may still name it. Its receives count from one, while those of a dead letter go on from its source
    queue's. Later receives do not differ. All of them are moves only where the queue is taken for a dead-letter queue.
    """
    here = derived.queue(row)
    if not origin or origin == here.queue:
        return
    events, source, own = derived.events, derived.number(here.sibling(origin)), derived.own(row)
    was_redriven = here.system in KEEPS_COUNT and count == 1
    (events.redrive_targets if was_redriven else events.apparent_dead_letter_queues).add(here)
    derived.add(row, DEAD_LETTERED, source, peer=own, flags=BY_RECEIVE)
    derived.add(row, ARRIVED, own, peer=source, flags=BY_RECEIVE)


class _Derived:
    """Rows derived from other rows and appended together at the end."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.rows: list[int] = []
        self.changes: dict[str, list[Any]] = {"code": [], "queue": [], "peer": [], "flags": []}
        self.new_ids: list[tuple[int, str]] = []

    @cached_property
    def _numbers(self) -> dict[QueueName, int]:
        return {name: number for number, name in enumerate(self.events.queues)}

    def own(self, row: int) -> int:
        """Return the index of the queue of a row of the events."""
        return int(self.events.columns["queue"][row])

    def queue(self, row: int) -> QueueName:
        """Return the queue of a row of the events."""
        return self.events.queues[self.own(row)]

    def number(self, name: QueueName) -> int:
        """Return a queue's index in `events.queues`; one that is not there is added."""
        if name not in self._numbers:
            self._numbers[name] = len(self.events.queues)
            self.events.queues.append(name)
        return self._numbers[name]

    def add(self, row: int, code: int, queue: int, *, peer: int, flags: int = 0, message_id: str | None = None) -> None:
        """Add a copy of `row` with `code` in `queue`, about `message_id` where that differs."""
        if message_id is not None:
            self.new_ids.append((len(self.rows), message_id))
        self.rows.append(row)
        self.changes["code"].append(code)
        self.changes["queue"].append(queue)
        self.changes["peer"].append(peer)
        self.changes["flags"].append(flags)

    def finish(self) -> None:
        events = self.events
        if not self.rows:
            return
        added = events.take(np.array(self.rows))
        for name in ("code", "queue", "peer"):
            added[name] = np.array(self.changes[name], dtype=DTYPES[name])
        added["flags"] = np.array(self.changes["flags"], dtype=np.uint8) | (added["flags"] & np.uint8(LATE))
        # The event's delivery and order fields describe its own queue, not the other one.
        for name, unknown in (
            ("end", 0),
            ("seq_kind", 0),
            ("seq_hi", 0),
            ("seq_lo", 0),
            ("batch", 0),
            ("consumer", -1),
        ):
            added[name][:] = unknown
        # A redriven message is a new message, sent when it was moved.
        renewed = added["code"] == REDRIVEN_IN
        added["sent_at"][renewed] = added["at"][renewed]
        added["receive_count"][:] = 0
        added["first_received_at"][:] = 0
        if self.new_ids:
            at = np.array([i for i, _ in self.new_ids])
            ids = pa.array([message_id for _, message_id in self.new_ids], pa.string())
            hi, lo, is_uuid = ids_to_bits(ids)
            added["hi"][at], added["lo"][at] = hi, lo
            added["text"][at] = np.where(is_uuid, -1, len(events.texts) + np.arange(len(ids)))
            events.texts = pa.concat_arrays([events.texts, ids])
        events.columns = {name: np.concatenate([events.columns[name], added[name]]) for name in events.columns}
