"""Each step of the pipeline alone, on one core: decode, route, track, merge, judge, and the serialization between them."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final

import pyarrow as pa

from sources.wire import decode_records
from streaming.checkpoint.state_files import FileState
from streaming.core.allocator import keep_freed_memory
from streaming.core.events.packet import pack, unpack
from streaming.core.events.route import route
from streaming.core.gc_pause import gc_paused
from streaming.core.reporting.merge import merge
from streaming.core.reporting.shard_report import ShardReport
from streaming.core.settings import Settings
from streaming.core.state.state import ShardState
from streaming.core.track import track
from streaming.judge.judge import judge
from streaming.judge.memory.memory import JudgeMemory
from streaming.judge.snapshot import Snapshot
from tests.benchmarks.batches import batches
from tests.benchmarks.figures import Figure, Run
from tests.benchmarks.records import FORM_NAMES, FORMS, Form, records
from tests.benchmarks.shape import Shape

SHARDS: Final = 2
EMPTY_QUEUES: Final = 1_000
_NOTHING: Final = {"visible": 0, "in_flight": 0, "delayed": 0}
_STEPS: Final = {
    "decode": "decode",
    "route": "route, packing included",
    "unpack_packets": "unpack packets",
    "unpack_state": "unpack state",
    "track": "track",
    "pack_state": "pack state",
    "report": "report to bytes and back",
    "merge": "merge",
    "judge": "judge",
    "remember": "judge's memory to bytes",
}


class Chain:
    """The pipeline's steps in one process, each timed in processor time."""

    def __init__(self, form: Form) -> None:
        keep_freed_memory()  # as the job's workers do
        self._form = form
        self._settings = Settings()
        self._states = [ShardState.empty().pack()] * SHARDS
        self._memory = JudgeMemory.empty()
        self.snapshot: Snapshot | None = None
        """The snapshot that the last step published."""
        self._times_s: defaultdict[str, list[float]] = defaultdict(list)

    def step(self, table: pa.Table, beside: Iterable[bytes] = ()) -> None:
        """Process one batch of a load, and `beside` further records."""
        self.take([*records(table, self._form), *beside], _last_ms(table))

    def take(self, values: list[bytes], now: int) -> dict[str, float]:
        """Process a batch: do the work of two input tasks, two shards and the driver in sequence. Return seconds by step."""
        with gc_paused():
            return self._step(values, now)

    def median_of(self, times: int, batch: Callable[[], tuple[list[bytes], int]]) -> dict[str, float]:
        """Return the median time of each step over `times` batches."""
        taken = [self.take(*batch()) for _ in range(times)]
        return {step: median(spent[step] for spent in taken) for step in _STEPS}

    def _step(self, values: list[bytes], now: int) -> dict[str, float]:
        spent: defaultdict[str, float] = defaultdict(float)

        @contextmanager
        def timed(name: str) -> Iterator[None]:
            begin = time.process_time()
            yield
            spent[name] += time.process_time() - begin

        packets: list[list[bytes]] = []
        for task in range(SHARDS):
            with timed("decode"):
                decoded = decode_records(values[task::SHARDS])
            if decoded.invalid:
                raise RuntimeError(f"the load is not valid: {decoded.invalid[0]}")
            with timed("route"):
                routed = route(decoded.events, Counter(), [], SHARDS, self._settings)
                packets.append([pack(packet) for packet in routed])
        reports = []
        for shard in range(SHARDS):
            with timed("unpack_packets"):
                packet = unpack([of_task[shard] for of_task in packets])
            with timed("unpack_state"):
                state = ShardState.unpack(self._states[shard])
            with timed("track"):
                state, report = track(state, packet, now, self._settings)
            with timed("pack_state"):
                self._states[shard] = state.pack(FileState.ids_apart_from)
            with timed("report"):
                reports.append(ShardReport.from_bytes(report.to_bytes()))
        with timed("merge"):
            merged = merge(reports, self._settings)
        with timed("judge"):
            self._memory, self.snapshot, _ = judge(self._memory, merged, now, self._settings)
        with timed("remember"):
            self._memory.to_bytes()
        for name, seconds in spent.items():
            self._times_s[name].append(seconds)
        return spent

    def medians_s(self, first: int, last: int) -> dict[str, float]:
        """Return the median time of each step in the batches [first, last)."""
        return {name: median(times[first:last]) for name, times in self._times_s.items()}

    def state(self) -> tuple[int, int, int]:
        """Return rows of the state, rows of unsettled messages, and bytes, over all shards."""
        rows = live = 0
        for packed in self._states:
            state = ShardState.unpack(packed)
            rows += state.messages
            live += int((state.rows["ended"] == 0).sum())
        return rows, live, sum(packed.size for packed in self._states)


def measure(run: Run, *, quick: bool) -> None:
    """Measure decoding of every form, and every step with few live messages and with a million."""
    run.say("micro: the steps one by one, per core")
    _decode(run, events=100_000 if quick else 500_000)
    _chain(run, "catching up", 0, 50_000 if quick else 250_000, 3 if quick else 5)
    live = 100_000 if quick else 1_000_000
    _chain(run, f"{live:,} live", live, 20_000 if quick else 100_000, 3 if quick else 5)
    _bursts(run, 10_000 if quick else 100_000, 3 if quick else 5)


def _decode(run: Run, events: int) -> None:
    for form in FORMS:
        table = next(batches(Shape(), events))
        values = list(records(table, form))
        times = []
        for _ in range(3):
            begin = time.process_time()
            decode_records(values)
            times.append(time.process_time() - begin)
        what = f"decode, {FORM_NAMES[form]}"
        detail = {"bytes_per_event": round(sum(map(len, values)) / events, 1)}
        run.add(Figure(f"micro.decode.{form}", what, events / min(times), "events/s/core", detail=detail))


def _chain(run: Run, name: str, live: int, events: int, measured: int) -> None:
    chain = Chain("ndjson")
    stream = batches(Shape(live=live, events_per_s=20_000 if live else 10_000), events)
    warm_up = 2 + live // events
    for _ in range(warm_up + measured):
        chain.step(next(stream))
    spent = chain.medians_s(warm_up, warm_up + measured)
    key = f"micro.{'live' if live else 'catching_up'}"
    for step, words in _STEPS.items():
        what = f"{name}, {events:,} events: {words}"
        run.add(Figure(f"{key}.{step}", what, 1000 * spent[step], "ms of a core"))
    total = sum(spent.values())
    run.add(Figure(f"{key}.all", f"{name}: all steps", events / total, "events/s/core"))
    rows, unsettled, size = chain.state()
    detail = {"rows": rows, "unsettled": unsettled, "bytes": size}
    run.add(Figure(f"{key}.row_bytes", f"{name}: packed state", size / rows, "bytes/row", detail=detail))
    if live:
        for _ in range(measured):
            table = next(stream)
            chain.step(table, _long_empty(EMPTY_QUEUES, _last_ms(table)))
        beside = chain.medians_s(warm_up + measured, warm_up + 2 * measured)
        what = f"{name}, {events:,} events, {EMPTY_QUEUES:,} empty queues beside: track"
        run.add(Figure(f"{key}.beside_empty", what, 1000 * beside["track"], "ms of a core"))


def _bursts(run: Run, messages: int, measured: int) -> None:
    """Measure steps of few events after very many messages failed at once: for minutes, all of them count as new."""
    for kind, words in (("dead_lettered", "dead letters"), ("dropped", "losses")):
        chain = Chain("ndjson")
        stream = batches(Shape(queues=4, events_per_s=1_000), 1_000)
        table = next(stream)
        chain.step(table, _went_wrong(kind, messages, _last_ms(table)))
        for _ in range(measured):
            chain.step(next(stream))
        total = 1000 * sum(chain.medians_s(1, 1 + measured).values())
        run.add(Figure(f"micro.burst.{kind}", f"1,000 events after {messages:,} {words}: all steps", total, "ms of a core"))


def _went_wrong(kind: str, messages: int, now: int) -> Iterator[bytes]:
    about = {"v": 1, "type": kind, "system": "aws_sqs", "queue": "orders", "at": now}
    to = {"to_queue": "orders-dlq"} if kind == "dead_lettered" else {}
    for first in range(0, messages, 500):
        lines = (about | to | {"message_id": f"{n:08x}-0000-4000-8000-000000000000"} for n in range(first, first + 500))
        yield b"\n".join(json.dumps(line).encode() for line in lines)


def _last_ms(table: pa.Table) -> int:
    return int(table["at"][-1].as_py())


def _long_empty(queues: int, now: int) -> Iterator[bytes]:
    """Yield records in which the broker reports `queues` queues as empty, now and 400 s ago."""
    for at in (now - 400_000, now):
        state = {"v": 1, "type": "queue_state", "system": "aws_sqs", "at": at, "attributes": _NOTHING}
        yield b"\n".join(json.dumps(state | {"queue": f"idle-{n}"}).encode() for n in range(queues))
