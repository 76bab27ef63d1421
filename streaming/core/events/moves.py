"""Derive the second row of events that concern two queues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.columns import plain
from streaming.core.events.events import ARRIVED, BY_RECEIVE, DEAD_LETTERED, DTYPES, RECEIVED, REDRIVEN, REDRIVEN_IN, Events
from streaming.core.hashing import ids_to_bits
from streaming.core.settings import QueueName


def expand_moves(events: Events, table: pa.Table) -> None:
    """Add the second row of every move, and note which queues are dead-letter queues."""
    code = events.columns["code"]
    moves = np.flatnonzero((code == DEAD_LETTERED) | (code == REDRIVEN))
    if table["from_queue"].null_count < len(code):
        from_queue = plain(table["from_queue"])
        reported = ~np.asarray(pc.is_null(from_queue).to_numpy(zero_copy_only=False))
        receives = np.flatnonzero((code == RECEIVED) & reported)
    else:
        receives = np.zeros(0, dtype=np.int64)
    if not len(moves) and not len(receives):
        return
    index_of = {name: i for i, name in enumerate(events.queues)}

    def index(name: QueueName) -> int:
        if name not in index_of:
            index_of[name] = len(events.queues)
            events.queues.append(name)
        return index_of[name]

    builder = _Derived(events)
    if len(moves):
        names = ("to_queue", "from_queue", "new_message_id", "message_id")
        to, origin, new_id, own_id = (plain(table[n]).take(pa.array(moves)).to_pylist() for n in names)
        for i, row in enumerate(moves.tolist()):
            here = events.queues[events.columns["queue"][row]]
            if code[row] == DEAD_LETTERED:
                if to[i] and to[i] != here.queue:
                    there = here.sibling(to[i])
                    events.dead_letter_queues.add(there)
                    events.columns["peer"][row] = index(there)
                    builder.add(row, ARRIVED, index(there), peer=int(events.columns["queue"][row]))
                continue
            # A redrive may be reported from either end.
            if not to[i] and origin[i] and origin[i] != here.queue:
                to[i], source = here.queue, here.sibling(origin[i])
                events.columns["queue"][row] = index(source)
            here = events.queues[events.columns["queue"][row]]
            events.dead_letter_queues.add(here)
            if to[i]:
                there = here.sibling(to[i])
                events.columns["peer"][row] = index(there)
                if new_id[i]:
                    same = new_id[i] == own_id[i]
                    peer = int(events.columns["queue"][row])
                    builder.add(row, REDRIVEN_IN, index(there), peer=peer, message_id=None if same else new_id[i])
    if len(receives):
        origins = from_queue.take(pa.array(receives)).to_pylist()
        for row, name in zip(receives.tolist(), origins, strict=True):
            here = events.queues[events.columns["queue"][row]]
            if name and name != here.queue:
                origin_index = index(here.sibling(name))
                events.dead_letter_queues.add(here)
                own = int(events.columns["queue"][row])
                builder.add(row, DEAD_LETTERED, origin_index, peer=own, flags=BY_RECEIVE)
                builder.add(row, ARRIVED, own, peer=origin_index, flags=BY_RECEIVE)
    builder.finish()


class _Derived:
    """Rows derived from other rows and appended together at the end."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.rows: list[int] = []
        self.changes: dict[str, list[Any]] = {"code": [], "queue": [], "peer": [], "flags": []}
        self.new_ids: list[tuple[int, str]] = []

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
        added["flags"] = np.array(self.changes["flags"], dtype=np.uint8)
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
        if self.new_ids:
            at = np.array([i for i, _ in self.new_ids])
            ids = pa.array([message_id for _, message_id in self.new_ids], pa.string())
            hi, lo, is_uuid = ids_to_bits(ids)
            added["hi"][at], added["lo"][at] = hi, lo
            added["text"][at] = np.where(is_uuid, -1, len(events.texts) + np.arange(len(ids)))
            events.texts = pa.concat_arrays([events.texts, ids])
        events.columns = {name: np.concatenate([events.columns[name], added[name]]) for name in events.columns}
