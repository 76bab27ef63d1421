"""A load generator with real message lifecycles: a million events a second, reproducible by seed.

A message is sent, waits, is delivered, may fail (its window ends, or the consumer releases it) and be delivered again, may
have its window extended, and is finally deleted, or moved to a dead-letter queue and perhaps redriven from there. In an
ordered queue a message is delivered only once those before it in its group are settled, so a poison head blocks its group.
The broker's own counts (`queue_state`) are exact when they are reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tests.benchmarks.shape import Shape
from tests.benchmarks.topology import Topology

TYPES: Final = (
    "sent",
    "received",
    "extended",
    "released",
    "deleted",
    "dead_lettered",
    "redriven",
    "queue_state",
    "heartbeat",
    "lapsed",
)
"""Event types by code. `lapsed` (a window ended by time) is not an event; it only keeps the counts exact."""
SENT, RECEIVED, EXTENDED, RELEASED, DELETED = range(5)
DEAD_LETTERED, REDRIVEN, QUEUE_STATE, HEARTBEAT, LAPSED = range(5, 10)

ROW: Final = np.dtype(
    [
        ("at", "i8"),
        ("id_hi", "u8"),
        ("id_lo", "u8"),
        ("new_hi", "u8"),
        ("new_lo", "u8"),
        ("sent_at", "i8"),
        ("first_received_at", "i8"),
        ("invisible_until", "i8"),
        ("sequence", "i8"),
        ("type", "i4"),
        ("queue", "i4"),
        ("receive_count", "i4"),
        ("group", "i4"),
        ("consumer", "i4"),
        ("to_queue", "i4"),
        ("attributes", "i4"),
        ("padding", "i4"),
    ]
)
"""One event. Absent values: 0 for times, counts and sequences, -1 for indices."""

Rows = npt.NDArray[np.void]
Ints = npt.NDArray[np.int64]

# The last 15 of the 20 digits of an SQS sequence number; the table prepends the others.
_FIRST_SEQUENCE: Final = 496_460_467_696_128
# Without a dead-letter queue a poison message comes back until somebody deletes it.
_MAX_ATTEMPTS: Final = 12


class Lifecycles:
    """An endless load in event-time order. One instance is one load: iterate `windows()` only once."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.topology = Topology(shape)
        self._rng = np.random.default_rng(shape.seed)
        # Future events by window, because the whole life of a message is drawn when it is sent.
        self._ahead: defaultdict[int, list[Rows]] = defaultdict(list)
        self._group_free_at: Ints = np.zeros(shape.queues * shape.groups_per_queue, dtype=np.int64)
        self._sequence = _FIRST_SEQUENCE
        self._waiting: Ints = np.zeros(self.topology.total, dtype=np.int64)
        self._in_flight: Ints = np.zeros(self.topology.total, dtype=np.int64)
        self.attributes: list[str] = []

    def windows(self) -> Iterator[pa.Table]:
        """Yield tables of events (columns of the wire format), each `window_ms` of event time, in order of `at`.

        The first table is the backlog: `live` messages sent in the time before `start_ms`.
        """
        shape = self.shape
        backlog = self._backlog()
        if len(backlog):
            yield self.topology.table(backlog, self.attributes)
        window = 0
        while True:
            begin_ms = shape.start_ms + window * shape.window_ms
            new = self._rng.poisson(shape.messages_per_s * shape.window_ms / 1000)
            self._send(int(new), begin_ms, begin_ms + shape.window_ms)
            # The report precedes events of the same millisecond, because its counts do not include them.
            rows = _in_order([self._watcher(begin_ms), *self._ahead.pop(window, [])])
            self._count(rows)
            yield self.topology.table(_pick(rows, np.flatnonzero(rows["type"] != LAPSED)), self.attributes)
            window += 1

    def take(self, events: int) -> pa.Table:
        """Return at least `events` events as one table, plus the backlog, which does not count."""
        tables: list[pa.Table] = []
        rows = -self.shape.live
        for table in self.windows():
            tables.append(table)
            rows += table.num_rows
            if rows >= events:
                break
        return pa.concat_tables(tables)

    # The following methods draw lives. Times are epoch milliseconds, for `n` messages at a time.

    def _backlog(self) -> Rows:
        if not self.shape.live:
            return np.zeros(0, dtype=ROW)
        end_ms = self.shape.start_ms
        edges = np.linspace(end_ms - self.topology.backlog_ms, end_ms, 51).astype(np.int64)
        for begin_ms, until_ms in pairwise(edges.tolist()):
            self._send(self.shape.live // 50, begin_ms, until_ms, standard_only=True)
        rows = _in_order(self._ahead.pop(-1, []))
        self._count(rows)
        return _pick(rows, np.flatnonzero(rows["type"] != LAPSED))

    def _send(self, n: int, begin_ms: int, end_ms: int, *, standard_only: bool = False) -> None:
        """Draw the lives of `n` messages sent in [begin_ms, end_ms) and file their events."""
        rng, topology = self._rng, self.topology
        sent = np.zeros(n, dtype=ROW)
        sent["type"] = SENT
        sent["at"] = sent["sent_at"] = np.sort(rng.integers(begin_ms, end_ms, n))
        sent["queue"] = queue = topology.draw_queues(rng, n, standard_only=standard_only)
        sent["id_hi"], sent["id_lo"] = _ids(rng, n)
        ordered = topology.ordered[queue]
        groups = np.floor(self.shape.groups_per_queue * rng.random(n) ** 1.5).astype(np.int64)
        sent["group"] = np.where(ordered, queue * self.shape.groups_per_queue + groups, -1)
        sent["sequence"] = np.where(ordered, self._sequence + np.arange(n), 0)
        sent["consumer"] = sent["to_queue"] = sent["attributes"] = -1
        self._sequence += n
        self._file(sent)
        self._deliver(sent)

    def _deliver(self, sent: Rows) -> None:
        rng, shape, topology = self._rng, self.shape, self.topology
        n = len(sent)
        queue = sent["queue"].astype(np.int64)
        timeout_ms = topology.visibility_ms[queue]
        limit = topology.max_receives[queue]
        luck = rng.random(n)
        poison = luck < shape.poison_ratio
        again = ~poison & (luck < shape.poison_ratio + shape.redelivered_ratio)
        attempts = np.where(poison, np.where(limit > 0, limit, _MAX_ATTEMPTS), 1 + again).astype(np.int64)

        of = np.repeat(np.arange(n), attempts)  # the message of each delivery
        first = np.cumsum(attempts) - attempts
        count = np.arange(len(of)) - first[of] + 1
        fails = (count < attempts[of]) | (poison & (limit > 0))[of]
        hold_ms = 1 + np.minimum(rng.lognormal(5.3, 0.8, len(of)), 0.6 * timeout_ms[of]).astype(np.int64)
        released = fails & (rng.random(len(of)) < 0.5)
        extensions = np.where(~fails & (rng.random(len(of)) < shape.extended_ratio), 1, 0)
        extensions[~fails & (rng.random(len(of)) < shape.held_ratio)] = 30
        step_ms = (0.8 * timeout_ms[of]).astype(np.int64)
        hold_ms += extensions * step_ms
        lasts_ms = np.where(fails & ~released, timeout_ms[of], hold_ms)
        pause_ms = rng.integers(20, 400, len(of)) * fails

        elapsed = np.cumsum(lasts_ms + pause_ms)
        before = elapsed - (lasts_ms + pause_ms)
        offset_ms = before - before[first][of]
        service_ms = offset_ms[first + attempts - 1] + (lasts_ms + pause_ms)[first + attempts - 1]
        wait_ms = np.where(topology.ordered[queue], 0, topology.backlog_ms)
        ready_ms = sent["at"] + wait_ms + rng.integers(5, 500, n)
        start_ms = self._start(sent["group"], ready_ms, service_ms)

        received = _pick(sent, of)
        received["type"] = RECEIVED
        received["receive_count"] = count
        received["at"] = start_ms[of] + offset_ms
        received["first_received_at"] = start_ms[of]
        received["invisible_until"] = received["at"] + timeout_ms[of]
        workers = rng.integers(0, shape.consumers_per_queue, len(of))
        received["consumer"] = received["queue"] * shape.consumers_per_queue + workers
        self._file(received)

        end = received.copy()
        end["at"] += lasts_ms
        end["type"] = np.where(~fails, DELETED, np.where(released, RELEASED, LAPSED))
        for column in ("sent_at", "first_received_at", "invisible_until"):
            end[column] = 0
        self._file(end)
        self._extend(received, extensions, step_ms, timeout_ms[of])
        moved = np.flatnonzero(poison & (limit > 0))
        if len(moved):
            self._dead_letter(received[(first + attempts - 1)[moved]], (start_ms + service_ms)[moved])

    def _start(self, group: npt.NDArray[np.int32], ready_ms: Ints, service_ms: Ints) -> Ints:
        """Return when each message is first delivered: once it is ready, and after the previous one of its group."""
        start_ms = ready_ms.copy()
        chosen = np.flatnonzero(group >= 0)
        chosen = chosen[np.argsort(group[chosen], kind="stable")]
        if not len(chosen):
            return start_ms
        member = group[chosen].astype(np.int64)
        heads = np.flatnonzero(np.r_[True, member[1:] != member[:-1]])
        lane = np.cumsum(np.r_[True, member[1:] != member[:-1]]) - 1
        ready = ready_ms[chosen] - self.shape.start_ms
        ready[heads] = np.maximum(ready[heads], self._group_free_at[member[heads]])
        busy_ms = service_ms[chosen] + 1  # the next one is delivered after this one's end, never in the same millisecond
        served = np.cumsum(busy_ms)
        before = served - busy_ms
        # Per group, messages are served one after another: finish[i] = served[i] + max(ready[j] - before[j], j <= i).
        # One running maximum handles all groups if each group's values lie in a separate band.
        slack = ready - before + before[heads][lane]
        band = int(slack.max() - slack.min()) + 1
        latest = np.maximum.accumulate(slack + lane * band) - lane * band
        finish = latest + served - before[heads][lane]
        self._group_free_at[member] = finish  # indices are in order, so the value of the group's last message remains
        start_ms[chosen] = finish - busy_ms + self.shape.start_ms
        return start_ms

    def _extend(self, received: Rows, extensions: Ints, step_ms: Ints, timeout_ms: Ints) -> None:
        of = np.repeat(np.arange(len(received)), extensions)
        nth = np.arange(len(of)) - (np.cumsum(extensions) - extensions)[of] + 1
        rows = _pick(received, of)
        rows["type"] = EXTENDED
        rows["at"] += nth * step_ms[of]
        rows["invisible_until"] = rows["at"] + timeout_ms[of]
        for column in ("sent_at", "first_received_at"):
            rows[column] = 0
        self._file(rows)

    def _dead_letter(self, last: Rows, at_ms: Ints) -> None:
        rng, n = self._rng, len(last)
        moved = last.copy()
        moved["type"] = DEAD_LETTERED
        moved["at"] = at_ms
        moved["invisible_until"] = 0
        moved["consumer"] = -1
        moved["to_queue"] = dead = self.topology.dead_letter[last["queue"]]
        self._file(moved)
        back = np.flatnonzero(rng.random(n) < self.shape.redriven_ratio)
        redriven = moved[back]
        redriven["type"] = REDRIVEN
        redriven["at"] += rng.integers(5_000, 60_000, len(back))
        redriven["queue"], redriven["to_queue"] = dead[back], last["queue"][back]
        redriven["new_hi"], redriven["new_lo"] = _ids(rng, len(back))
        self._file(redriven)
        again = redriven.copy()
        again["type"] = RECEIVED
        again["queue"], again["to_queue"] = redriven["to_queue"], -1
        again["id_hi"], again["id_lo"] = redriven["new_hi"], redriven["new_lo"]
        again["new_hi"] = again["new_lo"] = 0
        again["at"] += rng.integers(100, 2_000, len(back))
        again["receive_count"] = 1
        again["first_received_at"] = again["at"]
        again["invisible_until"] = again["at"] + self.topology.visibility_ms[again["queue"]]
        again["consumer"] = again["queue"] * self.shape.consumers_per_queue
        self._file(again)
        done = again.copy()
        done["type"] = DELETED
        done["at"] += rng.integers(50, 2_000, len(back))
        done["sent_at"] = done["first_received_at"] = done["invisible_until"] = 0
        self._file(done)

    def _file(self, rows: Rows) -> None:
        """Put events into the windows in which they happen; -1 is the time before the start."""
        if not len(rows):
            return
        window = np.maximum(-1, (rows["at"] - self.shape.start_ms) // self.shape.window_ms)
        order = np.argsort(window, kind="stable")
        edges = np.flatnonzero(np.diff(window[order])) + 1
        for part in np.split(order, edges):
            self._ahead[int(window[part[0]])].append(_pick(rows, part))

    # The collector's own events, and the counts that they report.

    def _watcher(self, at_ms: int) -> Rows:
        shape, since_ms = self.shape, at_ms - self.shape.start_ms
        parts = [np.zeros(0, dtype=ROW)]
        if since_ms % shape.heartbeat_every_ms == 0:
            beat = _blank(1, HEARTBEAT, at_ms)
            beat["consumer"] = self.topology.collector
            parts.append(beat)
        if since_ms % shape.poll_every_ms == 0:
            state = _blank(self.topology.total, QUEUE_STATE, at_ms)
            state["queue"] = np.arange(self.topology.total)
            state["attributes"] = len(self.attributes) + np.arange(self.topology.total)
            self.attributes += [
                self.topology.attributes(q, int(self._waiting[q]), int(self._in_flight[q])) for q in range(self.topology.total)
            ]
            parts.append(state)
        return np.concatenate(parts)

    def _count(self, rows: Rows) -> None:
        def per_queue(column: str, *types: int) -> Any:
            chosen = rows[column][np.isin(rows["type"], types)]
            return np.bincount(chosen, minlength=self.topology.total)

        taken = per_queue("queue", RECEIVED)
        returned = per_queue("queue", RELEASED, LAPSED)
        moved = per_queue("queue", DEAD_LETTERED, REDRIVEN)
        arrived = per_queue("to_queue", DEAD_LETTERED, REDRIVEN)
        self._waiting += per_queue("queue", SENT) + returned + arrived - taken - moved
        self._in_flight += taken - returned - per_queue("queue", DELETED)


def _blank(n: int, kind: int, at_ms: int) -> Rows:
    rows = np.zeros(n, dtype=ROW)
    rows["type"] = kind
    rows["at"] = at_ms
    for column in ("queue", "group", "consumer", "to_queue", "attributes"):
        rows[column] = -1
    return rows


def _ids(rng: np.random.Generator, n: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return the two halves of `n` random UUIDs of version 4, big-endian."""
    high, low = rng.integers(0, 2**64, (2, n), dtype=np.uint64)
    high = (high & np.uint64(0xFFFF_FFFF_FFFF_0FFF)) | np.uint64(0x4000)
    low = (low & np.uint64(0x3FFF_FFFF_FFFF_FFFF)) | np.uint64(0x8000_0000_0000_0000)
    return high, low


def _pick(rows: Rows, index: npt.NDArray[np.intp]) -> Rows:
    """Return `rows[index]` three times as fast: numpy copies rows of plain words faster than records."""
    words = np.ascontiguousarray(rows).view(np.int64).reshape(len(rows), ROW.itemsize // 8)
    return words.take(index, axis=0).view(ROW).reshape(len(index))


def _in_order(parts: list[Rows]) -> Rows:
    if not parts:
        return np.zeros(0, dtype=ROW)
    rows = np.concatenate(parts)
    return _pick(rows, np.argsort(rows["at"], kind="stable"))
