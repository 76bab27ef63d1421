"""The job without Spark: its real code for everything it writes, and a minimal substitute for what Spark writes.

A batch is logged (`offsets`), planned, read, decoded, tracked, judged, published and committed (`commits`), in Spark's
order. A process keeps its state on disk: `Run` can be created again at any point.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql import DataFrame, Row

from sinks.append_once import AppendOnceFile
from sinks.records import Destination, Record
from sinks.signal_log import signal_records
from sources.wire.encode import encode_arrow
from streaming.checkpoint.memory_store import MemoryStore
from streaming.checkpoint.offset_log import batch_ids
from streaming.checkpoint.recovery import recover
from streaming.checkpoint.shards import shard_keys
from streaming.checkpoint.state_files import Pruner, state_keeper
from streaming.checkpoint.versions import FOLDER, VersionLedger
from streaming.config.source import SpoolSource
from streaming.core.events.packet import Quarantined
from streaming.core.settings import Settings
from streaming.delivery.outbox import Outbox
from streaming.delivery.outlets import Outlets
from streaming.delivery.quarantine import quarantine_records
from streaming.delivery.sender import deliver_next
from streaming.folder import LocalFolder
from streaming.health.monitor import Monitor
from streaming.judge.findings.signals import SignalChange
from streaming.judge.snapshot import Snapshot
from streaming.spark.batch_time import BatchTimes
from streaming.spark.decode import decode_and_route
from streaming.spark.publish import Publisher
from streaming.spark.spool_batches import SpoolBatches
from streaming.spark.spool_in_task import SPOOL
from streaming.spark.stateful_shard import track_shard
from streaming.spool import ledger as spool_ledger
from streaming.spool.ledger import SpoolLedger
from streaming.spool.pieces import Piece
from streaming.spool.planner import SpoolPlanner
from streaming.spool.reading import read_pieces
from tests.crash.shim import Operation
from tests.streaming.spark.packets import T0, event, ndjson
from tests.streaming.spark.test_stateful_shard import State

BATCHES: Final = 20
KEPT: Final = 8
"""How many batches back; few, so that old ones are deleted within the run, and more than those of which all is kept."""
STEP_MS: Final = 30_000
KEYS: Final = shard_keys(2)
LANES: Final = 2


def now_ms(batch_id: int) -> int:
    """Return the time at which a batch is judged."""
    return T0 + batch_id * STEP_MS


_FOLDER: Final = re.compile('(?<="origin": ")[^"]*(?=/spool/)')
"""The run's folder in a quarantined record, which differs between the processes that try points."""
SPARED: Final = ("sent", "topic", "checkpoint/offsets", "checkpoint/commits", "checkpoint/pointers")
"""Files written by Spark and by senders, which get no faults."""


def send_files(spool: Path, batch_id: int) -> None:
    """Add the files that senders write before a batch: poison, dead letters, an ordered queue, invalid events."""
    at, n = now_ms(batch_id) - 5_000, batch_id
    events = [event("sent", f"m{n}-{k}", at - k, sent_at=at - k) for k in range(6)]
    events += [event("received", f"m{n}-{k}", at, sent_at=at - k, receive_count=1, invisible_until=at + 30_000) for k in range(4)]
    events += [event("deleted", f"m{n - 1}-{k}", at) for k in range(4) if n]
    events += [event("sent", f"o{n}", at, queue="pay.fifo", group=f"g{n % 3}", sequence=str(n), sent_at=at)]
    if n % 5 in (1, 2, 3):
        receives = n % 5 + 1
        events.append(event("received", f"bad{n // 5}", at, sent_at=T0, receive_count=receives, invisible_until=at + 20_000))
    if n % 5 == 4:
        events.append(event("dead_lettered", f"bad{n // 5}", at, to_queue="orders-dlq"))
    lines = ndjson(*events)
    if n % 3 == 0:
        lines += b'{"v": 1, "type": "sent", "at"\n'
    _appear(spool / f"{n:03d}-a.ndjson", lines, at)
    _appear(spool / f"{n:03d}-b.arrow", encode_arrow([event("sent", f"a{n}-{k}", at, sent_at=at) for k in range(3)]), at)


def _appear(path: Path, content: bytes, at_ms: int) -> None:
    """Add a file to the folder, dated by the run's clock like everything else."""
    part = path.parent.parent / "sent" / path.name
    part.write_bytes(content)
    os.utime(part, (at_ms / 1000, at_ms / 1000))
    os.link(part, path)


@dataclass
class Published:
    """The last snapshot that was published."""

    snapshot: Snapshot | None = None


@dataclass
class Run:
    """One process on the folder of a run. `counted` is called for each send."""

    folder: Path
    counted: Callable[[Operation], object] = lambda _: None
    published: Published = field(default_factory=Published)

    def __post_init__(self) -> None:
        self.spool = self.folder / "spool"
        self.checkpoint = self.folder / "checkpoint"
        for path in (self.spool, self.folder / "sent", *(self.checkpoint / name for name in ("offsets", "commits", "pointers"))):
            path.mkdir(parents=True, exist_ok=True)
        spool_ledger.INDEX_EVERY = 3  # type: ignore[misc] # so that plans are compacted and deleted within the run

    def until(self, last: int, before_batch: Callable[[], object] = lambda: None) -> None:
        """Start, continue from the checkpoint, and commit every batch up to `last`. Raises what a batch raises."""
        recover(self.checkpoint)
        publisher, drain = self._publisher()
        committed = batch_ids(LocalFolder(self.checkpoint / "commits"))
        for batch_id in range(committed[-1] + 1 if committed else 0, last + 1):
            before_batch()
            self._send(batch_id)
            self._log("offsets", batch_id, f'v1\n{{"batchTimestampMs":{now_ms(batch_id)}}}\n{batch_id + 1}')
            publisher(cast(DataFrame, _Batch(self, batch_id)), batch_id)
            if batch_id % 2:
                drain()
            self._log("commits", batch_id, 'v1\n{"nextBatchWatermarkMs":0}')
        drain()

    def _send(self, batch_id: int) -> None:
        """Send the files of a batch once, even over restarts."""
        if not list((self.folder / "sent").glob(f"{batch_id:03d}-*")):
            send_files(self.spool, batch_id)

    def result(self) -> dict[str, Any]:
        """Return everything that must be the same whatever happened."""
        snapshot = self.published.snapshot
        assert snapshot is not None
        ledger = VersionLedger(LocalFolder(self.checkpoint / FOLDER))
        topic: dict[str, str] = {}
        for line in _lines(self.folder / "topic"):
            key, text = json.loads(line)
            topic.setdefault(key, text)
        return {
            "at": snapshot.at_ms,
            "queues": {view.queue: dict(view.totals) for view in snapshot.queues},
            "events": dict(snapshot.events_total),
            "invalid": dict(snapshot.invalid_total),
            "firing": sorted(map(repr, snapshot.firing)),
            "signal_log": _lines(self.folder / "signals.ndjson"),
            "quarantine": [_FOLDER.sub("", line) for line in _lines(self.folder / "quarantine.ndjson")],
            "topic": topic,
            "lost": dict(ledger.read(ledger.batches[-1]).lost),
            "waiting": sum(len(_names(self.checkpoint / "outbox" / name)) for name in ("log", "bad", "topic")),
        }

    def _publisher(self) -> tuple[Publisher, Callable[[], None]]:
        def folder(name: str) -> LocalFolder:
            return LocalFolder(self.checkpoint / name)

        destinations: dict[str, Destination] = {
            "log": AppendOnceFile(self.folder / "signals.ndjson", "run", max_bytes=4_000, keep_files=50),
            "bad": AppendOnceFile(self.folder / "quarantine.ndjson", "run", trims=True),
            "topic": _Topic(self.folder / "topic", self.counted),
        }
        outboxes = {name: Outbox(folder(f"outbox/{name}"), name) for name in destinations}

        def drain() -> None:
            for name, destination in destinations.items():
                while deliver_next(outboxes[name], destination):
                    pass

        def signals(changes: Sequence[SignalChange], batch_id: int) -> None:
            records = signal_records(changes)
            for name in ("log", "topic"):
                outboxes[name].put(batch_id, records)
            # A destination may have the records before or after the batch is committed.
            if batch_id % 2 == 0:
                drain()

        def quarantine(invalid: Sequence[Quarantined], batch_id: int) -> None:
            outboxes["bad"].put(batch_id, quarantine_records(invalid, batch_id, "run"))

        def show(snapshot: Snapshot) -> None:
            self.published.snapshot = snapshot

        keeper = self.keeper = state_keeper(str(self.checkpoint))
        memories = MemoryStore(folder("judge"), kept=KEPT)
        source = SpoolSource(folder=str(self.spool), after_reading="delete")
        planner = SpoolPlanner(source, self.spool, SpoolLedger(folder("spool"), kept=KEPT), lambda: 0.0, KEPT)
        ledger = VersionLedger(folder(FOLDER), kept=KEPT)
        committed = max(batch_ids(folder("commits")), default=-1)
        publisher = Publisher(
            settings=Settings(),
            shards=len(KEYS),
            memories=memories,
            outlets=Outlets(show, signals, quarantine),
            monitor=Monitor(),
            pruner=Pruner(keeper, len(KEYS), kept=KEPT, earlier=ledger.files(committed)),
            times=BatchTimes(folder("offsets"), memories),
            ledger=ledger,
            spool=SpoolBatches(planner, LANES, folder("offsets")),
        )
        return publisher, drain

    def _log(self, name: str, batch_id: int, content: str) -> None:
        """Write a log entry as Spark does; Spark's own writing is not tested here."""
        path = self.checkpoint / name / str(batch_id)
        if not path.exists():
            part = path.with_name(f".{batch_id}")
            part.write_text(content)
            part.rename(path)


class _Topic:
    """A destination with at-least-once delivery."""

    def __init__(self, path: Path, counted: Callable[[Operation], object]) -> None:
        self._path = path
        self._counted = counted

    def append(self, records: Sequence[Record], batch_id: int) -> None:
        """Append the records one by one, as a broker receives them."""
        del batch_id
        for record in records:
            self._counted("send")
            with self._path.open("a") as file:
                file.write(json.dumps([record.key, record.line]) + "\n")

    def close(self) -> None:
        """Do nothing: no file is open."""


class _Batch:
    """A batch's frame; `collect` reads, decodes and tracks."""

    def __init__(self, run: Run, batch_id: int) -> None:
        self._run = run
        self._batch_id = batch_id
        self._properties: dict[str, str] = {}
        self.sparkSession = self
        self.sparkContext = self

    def setLocalProperty(self, name: str, value: str) -> None:  # noqa: N802 - Spark's name
        """Set a property, which the driver passes to the tasks."""
        self._properties[name] = value

    def collect(self) -> list[Row]:
        """Return the rows of both shards; their states are stored before the batch is published, as in Spark."""
        reported = json.loads(self._properties[SPOOL] or "{}")
        decode = decode_and_route(KEYS, Settings())
        lanes = reported.get("lanes", [[]])
        packets = [
            rows
            for lane in lanes
            for rows in decode(cast(Any, iter([*read_pieces(self._run.spool, map(Piece.of, lane)), _tick()])))
        ]
        table = pa.Table.from_batches(packets).to_pandas()
        table["step_ms"] = now_ms(self._batch_id)
        pointers = self._run.checkpoint / "pointers"
        before = pointers / str(self._batch_id - 1)
        kept = json.loads(before.read_text()) if before.exists() else {}
        out = []
        for key in KEYS:
            state = State()
            if str(key) in kept:
                state.update((bytes.fromhex(kept[str(key)]),))
            stage = track_shard(Settings(), self._run.keeper)
            (frame,) = stage((key,), iter([table[table["shard"] == key]]), cast(Any, state))
            kept[str(key)] = state.get[0].hex()
            out += [Row(**one) for one in frame.to_dict("records")]
        part = pointers / ".part"
        part.write_text(json.dumps(kept))
        part.rename(pointers / str(self._batch_id))
        return out


def _tick() -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"value": pa.nulls(1, pa.binary()), "origin": pa.nulls(1, pa.string()), "position": pa.nulls(1, pa.int64())}
    )


def _lines(path: Path) -> list[str]:
    """Return the lines of a file and of its rotated predecessors, the oldest first."""
    rotated = sorted(path.parent.glob(f"{path.name}.[0-9]*"), key=lambda one: -int(one.suffix[1:]))
    return [line for one in (*rotated, path) if one.exists() for line in one.read_text().splitlines()]


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*.out")]
